import { describe, expect, test } from 'vitest'
import { onEachStore } from '../../scripts/acceptance/world.ts'
import { agent, task } from '../curfew.ts'
import { VirtualClock } from './testing.ts'

describe('VirtualClock', () => {
  test('stands still until it is advanced', async () => {
    const clock = new VirtualClock(1_000)
    await clock.settle()
    expect([clock.wall(), clock.monotonic()]).toEqual([1_000, 1_000])
    await clock.advance('1m')
    expect(clock.wall()).toBe(61_000)
    await clock.advanceTo(70_000)
    expect(clock.wall()).toBe(70_000)
  })

  test('what is no time is refused, and the clock stays where it is', async () => {
    const clock = new VirtualClock(1_000)
    for (const time of [Number.NaN, Number.POSITIVE_INFINITY, new Date(2_000), '2s', undefined]) {
      await expect(clock.advanceTo(time as number)).rejects.toMatchObject({ code: 'invalid_option' })
      if (time !== undefined) expect(() => new VirtualClock(time as number)).toThrow('milliseconds')
    }
    expect(clock.wall()).toBe(1_000)
  })

  test('fires timers in the order of their times, each at its own', async () => {
    const clock = new VirtualClock(0)
    const fired: string[] = []
    const note = (name: string) => () => void fired.push(`${name} at ${clock.wall()}`)
    clock.setTimer(300, note('c'))
    clock.setTimer(100, note('a'))
    clock.setTimer(200, () => {
      note('b')()
      clock.setTimer(50, note('set on the way'))
    })
    clock.setTimer(100, note('a, later set'))
    clock.setTimer(250, note('cancelled')).cancel()
    await clock.advance(299)
    expect(fired).toEqual(['a at 100', 'a, later set at 100', 'b at 200', 'set on the way at 250'])
    await clock.advance(1)
    expect(fired.at(-1)).toBe('c at 300')
  })

  test('a timer of more than 2^31 milliseconds comes at its time', async () => {
    const clock = new VirtualClock(0)
    let firedAt = 0
    clock.setTimer(2 ** 31 + 5, () => {
      firedAt = clock.wall()
    })
    await clock.advance('100d')
    expect(firedAt).toBe(2 ** 31 + 5)
  })

  test('a background timer runs once for all the periods that were jumped over, before what is due', async () => {
    const clock = new VirtualClock(0)
    const order: string[] = []
    const renew = () => {
      order.push(`renewed at ${clock.wall()}`)
      clock.setTimer(1_000, renew, { background: true })
    }
    clock.setTimer(1_000, renew, { background: true })
    clock.setTimer(60_000, () => order.push('due'))
    await clock.advance('2m')
    expect(order).toEqual(['renewed at 60000', 'due', 'renewed at 120000'])
  })

  test('sleep follows its signal', async () => {
    const clock = new VirtualClock()
    const stop = new AbortController()
    const sleeping = clock.sleep('1h', stop.signal)
    stop.abort(new Error('enough'))
    await expect(sleeping).rejects.toThrow('enough')
    await expect(clock.sleep('1h', stop.signal)).rejects.toThrow('enough')
    const other = clock.sleep('1h')
    await clock.advance('1h')
    await other
  })

  test('refuses to go on for ever', async () => {
    const clock = new VirtualClock(0, { restWithin: 200 })
    clock.virtual.join({ idle: () => false })
    await expect(clock.settle()).rejects.toThrow('it does not come to rest')
  })
})

onEachStore('an engine on the virtual clock', (test) => {
  test('advance comes back when everything that fell due has been decided and done', async ({ world }) => {
    const { clock } = world
    const start = world.now
    const story: string[] = []
    const step = task({
      name: 'step',
      retries: 2,
      backoff: { initial: '10m', max: '10m', jitter: 0 },
      run: async (_, { attempt }) => {
        story.push(`attempt ${attempt} at ${(world.now - start) / 60_000} min`)
        await clock.sleep('1m')
        if (attempt < 3) throw new Error('again')
      },
    })
    const curfew = await world.open({ tasks: [step] })
    const handle = await curfew.schedule(step, null, { delay: '30m' })
    await clock.advance('1h')
    expect(story).toEqual(['attempt 1 at 30 min', 'attempt 2 at 41 min', 'attempt 3 at 52 min'])
    expect(await handle.status()).toBe('completed')
  })

  test('a handler that schedules more work is waited for as well', async ({ world }) => {
    const leaf = task({ name: 'leaf', run: (n: number) => n * 2 })
    const tree = task({
      name: 'tree',
      run: async (n: number) => {
        const handles = await curfew.scheduleMany(leaf, [n, n + 1])
        const results = await Promise.all(handles.map((handle) => handle.result()))
        return results.reduce((sum, result) => sum + result)
      },
    })
    const curfew = await world.open({ tasks: [leaf, tree] })
    const handle = await curfew.schedule(tree, 1)
    await world.clock.settle()
    expect(await handle.view()).toMatchObject({ status: 'completed', output: 6 })
  })

  test('an agent whose code runs for an hour sees no outage when it asks for news', async ({ world }) => {
    const { clock } = world
    const slow = agent({
      name: 'slow',
      run: (_: null, ctx) => ctx.run('work', ({ signal }) => clock.sleep('1h', signal)),
    })
    const curfew = await world.open({ agents: [slow] })
    const handle = await curfew.start(slow, null)
    await clock.advance('4.5s') // it asks before the next renewal is due
    await clock.advance('2h')
    expect(await handle.status()).toBe('completed')
    expect(world.log.filter(({ level }) => level === 'warn' || level === 'error')).toEqual([])
  })

  test('years pass without a warning about leases or stores', async ({ world }) => {
    const { clock } = world
    const slow = task({ name: 'slow', run: async (_, { signal }) => clock.sleep('300d', signal) })
    const curfew = await world.open({ tasks: [slow] })
    const handle = await curfew.schedule(slow, null)
    await clock.advance('1d')
    await clock.advance('100d')
    expect(await handle.view()).toMatchObject({ status: 'running', attempts: 1 })
    await clock.advance('300d')
    await clock.advance('399d')
    expect(world.log.filter(({ level }) => level === 'warn' || level === 'error')).toEqual([])
  })
})

import { expect } from 'vitest'
import { errorOf, onEachStore } from '../scripts/acceptance/world.ts'
import { CurfewError, task } from './curfew.ts'

onEachStore('what must not be left hanging', (test, kind) => {
  test('a queue with a limit works off a bulk that is larger than one batch', async ({ world }) => {
    let ran = 0
    const one = task({ name: 'one', queue: 'narrow', run: () => ++ran })
    const curfew = await world.open({
      tasks: [one],
      queues: { narrow: { concurrency: kind === 'postgres' ? 4 : 1 } },
    })
    // More than the funnel takes at once: reports of the first ones come while others are still being stored.
    await curfew.scheduleMany(one, Array(kind === 'postgres' ? 600 : 1_200).fill(undefined))
    await world.clock.settle()
    expect(ran).toBe(kind === 'postgres' ? 600 : 1_200)
  })

  test('whoever waits for a result when the engine is closed is told so', async ({ world }) => {
    const never = task({ name: 'never', run: () => 1 })
    const curfew = await world.open()
    const handle = await curfew.schedule(never)
    const waiting = errorOf(handle.result(), CurfewError)
    await world.close(curfew)
    expect(await waiting).toMatchObject({ code: 'closed' })
    expect(await errorOf(handle.result(), CurfewError)).toMatchObject({ code: 'closed' })
    expect(await errorOf(curfew.schedule(never), CurfewError)).toMatchObject({ code: 'closed' })
    expect(await errorOf(curfew.list(), CurfewError)).toMatchObject({ code: 'closed' })
  })

  test('a second close ends the draining of the first', async ({ world }) => {
    const { clock } = world
    const long = task({ name: 'long', run: (_: null, { signal }) => clock.sleep('1d', signal) })
    const curfew = await world.open({ tasks: [long] })
    await curfew.schedule(long, null)
    await clock.settle()
    const drained = curfew.close({ drain: true })
    await clock.settle()
    await world.close(curfew)
    await drained
  })

  test('a drain that makes no sense is refused, and the engine goes on', async ({ world }) => {
    const work = task({ name: 'work', run: () => 'done' })
    const curfew = await world.open({ tasks: [work] })
    expect(() => curfew.close({ drain: 'soon' })).toThrow(CurfewError)
    expect(await (await curfew.schedule(work)).result()).toBe('done')
  })

  test('what a handler returns while its process closes is its result', async ({ world }) => {
    const { clock } = world
    const deaf = task({ name: 'deaf', grace: '10s', run: () => clock.sleep('3s').then(() => 'through') })
    const curfew = await world.open({ tasks: [deaf] })
    const handle = await curfew.schedule(deaf)
    await clock.settle()
    const result = handle.result()
    await world.close(curfew)
    expect(await result).toBe('through')
  })
})

onEachStore(
  'damage',
  (test) => {
    test('an input that cannot be read fails its task alone', async ({ world }) => {
      const work = task({ name: 'work', run: () => 1 })
      const first = await world.open()
      const handle = await first.schedule(work)
      await world.sql(`update curfew.tasks set input = '{'`)
      const curfew = await world.open({ tasks: [work] })
      await world.runFor(3)
      expect(await curfew.task(handle.id).view()).toMatchObject({
        status: 'failed',
        failure: { code: 'invalid_input' },
      })
    })
  },
  ['postgres'],
)

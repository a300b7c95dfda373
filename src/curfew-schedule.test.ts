import { expect } from 'vitest'
import { z } from 'zod'
import { errorOf, onEachStore } from '../scripts/acceptance/world.ts'
import { CurfewError, TaskTimedOut, task } from './curfew.ts'

/** Of a name that no process here runs: it stays pending. */
const elsewhere = task({ name: 'elsewhere', run: (_input: unknown) => 1 })

onEachStore('scheduling', (test) => {
  test('row 3: a limit that is not a length of time is refused and nothing is stored', async ({ world }) => {
    const curfew = await world.open()
    const wrong = [
      0,
      -1,
      Number.NaN,
      Number.POSITIVE_INFINITY,
      '0s',
      '-5s',
      '',
      '5 parsecs',
      '401d',
      {},
      { weeks: 1 },
    ]
    for (const timeout of wrong) {
      for (const key of ['timeout', 'attemptTimeout', 'queueTimeout', 'heartbeatTimeout', 'stuckAfter']) {
        const refused = curfew.schedule(elsewhere, null, { [key]: timeout } as object)
        const error = await errorOf(refused, CurfewError)
        expect(error.code, `${key}: ${JSON.stringify(timeout)}`).toBe('invalid_duration')
        expect(error.message).toContain(key)
      }
    }
    expect(await curfew.list()).toEqual({ tasks: [], cursor: null })
  })

  test('row 3: other wrong options and inputs are refused and nothing is stored', async ({ world }) => {
    const curfew = await world.open()
    const cyclic: Record<string, unknown> = {}
    cyclic.self = cyclic
    const cases: [unknown, object, string][] = [
      [null, { retries: -1 }, 'invalid_option'],
      [null, { retries: 1.5 }, 'invalid_option'],
      [null, { warnAt: 2 }, 'invalid_option'],
      [null, { priority: 'high' }, 'invalid_option'],
      [null, { onTimeout: 'explode' }, 'invalid_option'],
      [null, { timout: '5s' }, 'invalid_option'],
      [null, { backoff: { base: '1s' } }, 'invalid_option'],
      [null, { delay: '1s', startAt: 5 }, 'invalid_option'],
      [null, { startAt: new Date('never') }, 'invalid_option'],
      [null, { delay: '-1s' }, 'invalid_duration'],
      [null, { queue: '' }, 'invalid_name'],
      [null, { key: '' }, 'invalid_name'],
      [null, { key: 'a\u0000b' }, 'invalid_name'],
      [null, { key: 'x'.repeat(501) }, 'invalid_name'],
      [Number.NaN, {}, 'invalid_json'],
      [{ deep: [{ n: Number.POSITIVE_INFINITY }] }, {}, 'invalid_json'],
      [cyclic, {}, 'invalid_json'],
      [() => 1, {}, 'invalid_json'],
      [10n, {}, 'invalid_json'],
      [JSON.parse('{"__proto__": 1}'), {}, 'invalid_json'],
      ['x'.repeat(1024 * 1024), {}, 'too_big'],
    ]
    for (const [input, options, code] of cases) {
      const error = await errorOf(curfew.schedule(elsewhere, input, options), CurfewError)
      expect(error.code, error.message).toBe(code)
    }
    await errorOf(curfew.schedule({} as typeof elsewhere, null), CurfewError)
    await errorOf(curfew.scheduleMany(elsewhere, [1, 2], { keys: ['one'] }), CurfewError)
    // One wrong input among good ones: none of them.
    await errorOf(curfew.scheduleMany(elsewhere, [1, Number.NaN, 3]), CurfewError)
    expect(await curfew.list()).toEqual({ tasks: [], cursor: null })
  })

  test('an input is checked by its schema when it is scheduled, and arrives transformed', async ({
    world,
  }) => {
    const sized = task({
      name: 'sized',
      input: z.object({ width: z.coerce.number().int().positive(), unit: z.string().default('px') }),
      run: ({ width, unit }) => `${width + 1} ${unit}`,
    })
    const curfew = await world.open({ tasks: [sized] })
    const error = await errorOf(curfew.schedule(sized, { width: -1 }), CurfewError)
    expect(error.code).toBe('invalid_input')
    expect(error.message).toContain('width')
    expect((await curfew.list()).tasks).toEqual([])
    expect(await (await curfew.schedule(sized, { width: '41' })).result()).toBe('42 px')
  })

  test('a delayed task starts at its time; timeout and queueTimeout count from there', async ({ world }) => {
    const { clock } = world
    const start = world.now
    const startedAt: Record<string, number> = {}
    const hang = task({
      name: 'hang',
      timeout: '5s',
      run: async (name: string, { signal }) => {
        startedAt[name] = world.now - start
        await clock.sleep('1h', signal)
      },
    })
    const curfew = await world.open({ tasks: [hang] })
    const delayed = await curfew.schedule(hang, 'delayed', { delay: '1h' })
    const at = await curfew.schedule(hang, 'at', { startAt: new Date(start + 7_200_000) })
    const past = await curfew.schedule(hang, 'past', { startAt: start - 1_000 })
    const queued = await curfew.schedule(elsewhere, null, { delay: '1h', queueTimeout: '10s' })
    expect(await delayed.view()).toMatchObject({ startAt: start + 3_600_000, deadlineAt: start + 3_605_000 })
    expect((await delayed.explain()).summary).toMatch(/^starts in 1h/)
    await clock.advance('59m')
    expect(startedAt).toEqual({ past: 0 })
    expect(await past.view()).toMatchObject({ status: 'timed_out', deadlineAt: start + 5_000 })
    await clock.advance('3h')
    expect(startedAt).toEqual({ past: 0, delayed: 3_600_000, at: 7_200_000 })
    expect(await delayed.view()).toMatchObject({ status: 'timed_out', endedAt: start + 3_605_000 })
    expect(await at.view()).toMatchObject({ status: 'timed_out', endedAt: start + 7_205_000 })
    expect(await queued.view()).toMatchObject({ timeoutKind: 'queue', endedAt: start + 3_610_000 })
  })

  test('lower priority numbers first, then the older one', async ({ world }) => {
    const { clock } = world
    const order: string[] = []
    const blocker = task({ name: 'blocker', run: () => clock.sleep('1s') })
    const note = task({ name: 'note', run: (name: string) => void order.push(name) })
    const other = task({ name: 'other', queue: 'other', run: (name: string) => void order.push(name) })
    const curfew = await world.open({ tasks: [blocker, note, other], concurrency: 1 })
    await curfew.schedule(blocker, null)
    await curfew.schedule(note, 'plain 1')
    await curfew.schedule(other, 'plain 2')
    await curfew.schedule(note, 'later', { priority: 5 })
    await curfew.schedule(other, 'urgent 1', { priority: -3 })
    await curfew.schedule(note, 'urgent 2', { priority: -3 })
    await curfew.schedule(note, 'plain 3')
    expect(order).toEqual([])
    await clock.advance('1s')
    expect(order).toEqual(['urgent 1', 'urgent 2', 'plain 1', 'plain 2', 'plain 3', 'later'])
  })

  test('a queue with a limit runs so many at a time, others go on beside it', async ({ world }) => {
    const { clock } = world
    let running = 0
    let most = 0
    const narrow = task({
      name: 'narrow',
      queue: 'narrow',
      run: async () => {
        most = Math.max(most, ++running)
        await clock.sleep('1s')
        running--
      },
    })
    let wide = 0
    const free = task({ name: 'free', run: () => ++wide })
    const curfew = await world.open({
      tasks: [narrow, free],
      concurrency: 10,
      queues: { narrow: { concurrency: 2 } },
    })
    const handles = await curfew.scheduleMany(narrow, [1, 2, 3, 4, 5, 6])
    await curfew.scheduleMany(free, [1, 2, 3])
    await clock.settle()
    expect(wide).toBe(3)
    expect(running).toBe(2)
    expect((await handles[5]?.explain())?.summary).toContain('waits for a worker')
    await clock.advance('2500ms')
    expect(running).toBe(2)
    await clock.advance('1s')
    expect(await Promise.all(handles.map((handle) => handle.status()))).toEqual(Array(6).fill('completed'))
    expect(most).toBe(2)
  })

  test('a retried attempt takes its place in the limit of its queue', async ({ world }) => {
    const { clock } = world
    const order: string[] = []
    const narrow = task({
      name: 'narrow',
      queue: 'one',
      retries: 1,
      backoff: { initial: '1s', jitter: 0 },
      run: async (name: string, { attempt }) => {
        order.push(`${name}${attempt}`)
        await clock.sleep('2s')
        if (name === 'a' && attempt === 1) throw new Error('again')
      },
    })
    const curfew = await world.open({ tasks: [narrow], queues: { one: { concurrency: 1 } } })
    const handles = await curfew.scheduleMany(narrow, ['a', 'b'])
    await clock.advance('10s')
    await Promise.all(handles.map((handle) => handle.result()))
    expect(order).toEqual(['a1', 'b1', 'a2'])
  })

  test('row 35: the same key is the same task; other options of the second call are ignored', async ({
    world,
  }) => {
    const curfew = await world.open()
    const first = await curfew.schedule(elsewhere, { n: 1 }, { key: 'k', timeout: '30s' })
    await world.clock.advance('10s')
    const again = await curfew.schedule(
      elsewhere,
      { n: 1 },
      { key: 'k', timeout: '2h', retries: 5, priority: 9 },
    )
    expect(again.id).toBe(first.id)
    expect([first.existing, again.existing]).toEqual([false, true])
    expect(await again.view()).toMatchObject({ deadlineAt: world.now + 20_000, priority: 0 })
    await world.clock.advance('20s')
    expect(await errorOf(again.result(), TaskTimedOut)).toMatchObject({ timeoutMs: 30_000 })
    // Ended, and still the task of its key.
    expect((await curfew.schedule(elsewhere, { n: 1 }, { key: 'k' })).id).toBe(first.id)
    expect((await curfew.list()).tasks).toHaveLength(1)
  })

  test('row 35: the same key with another input is a conflict and stores nothing', async ({ world }) => {
    const curfew = await world.open()
    const other = task({ name: 'other', run: () => 1 })
    const first = await curfew.schedule(elsewhere, { n: 1 }, { key: 'k' })
    const error = await errorOf(curfew.schedule(elsewhere, { n: 2 }, { key: 'k' }), CurfewError)
    expect(error).toMatchObject({ code: 'key_conflict', fields: { key: 'k', taskId: first.id } })
    // In bulk it takes the whole call with it, and nothing that came together with it.
    const bulk = curfew.scheduleMany(elsewhere, [{ n: 7 }, { n: 8 }], { keys: ['new', 'k'] })
    const beside = curfew.schedule(other, null, { key: 'beside' })
    expect(await errorOf(bulk, CurfewError)).toMatchObject({ code: 'key_conflict' })
    expect((await beside).existing).toBe(false)
    // Keys are per name.
    expect((await curfew.schedule(other, null, { key: 'k' })).existing).toBe(false)
    const { tasks } = await curfew.list()
    expect(tasks.map(({ name, key }) => `${name} ${key}`).sort()).toEqual([
      'elsewhere k',
      'other beside',
      'other k',
    ])
  })

  test('many at once with keys: those that exist are answered in their place', async ({ world }) => {
    const curfew = await world.open()
    const [b] = await curfew.scheduleMany(elsewhere, ['b'], { keys: ['b'] })
    const three = await curfew.scheduleMany(elsewhere, ['a', 'b', 'c'], { keys: ['a', 'b', 'c'] })
    expect(three.map(({ existing }) => existing)).toEqual([false, true, false])
    expect(three[1]?.id).toBe(b?.id)
    // Twice in one call: one task.
    const twice = await curfew.scheduleMany(elsewhere, ['d', 'd'], { keys: ['d', 'd'] })
    expect(new Set(twice.map(({ id }) => id)).size).toBe(1)
    expect((await curfew.list()).tasks).toHaveLength(4)
  })

  test('a key is free again when its record is gone', async ({ world }) => {
    const done = task({ name: 'done', retention: '1h', run: (n: number) => n })
    const curfew = await world.open({ tasks: [done] })
    const first = await curfew.schedule(done, 1, { key: 'k' })
    expect(await first.result()).toBe(1)
    await world.clock.advance('59m')
    expect((await curfew.schedule(done, 1, { key: 'k' })).existing).toBe(true)
    await world.clock.advance('2m')
    const second = await curfew.schedule(done, 2, { key: 'k' })
    expect(second.existing).toBe(false)
    expect(await second.result()).toBe(2)
    expect(await errorOf(first.view(), CurfewError)).toMatchObject({ code: 'not_found' })
    expect(await errorOf(first.result(), CurfewError)).toMatchObject({ code: 'not_found' })
    expect(await first.cancel()).toBe('not_found')
  })

  test('retention takes what has ended, and never what has not', async ({ world }) => {
    const { clock } = world
    const bad = task({ name: 'bad', retention: '1m', run: () => Promise.reject(new Error('no')) })
    const slow = task({
      name: 'slow',
      retention: '1m',
      run: async (_, { signal }) => clock.sleep('1h', signal),
    })
    const deaf = task({
      name: 'deaf',
      retention: '1m',
      timeout: '1s',
      run: () => new Promise(() => undefined),
    })
    const curfew = await world.open({ tasks: [bad, slow, deaf] })
    const failed = await curfew.schedule(bad, null)
    const kept = await curfew.schedule(bad, null, { retention: '7d' })
    const running = await curfew.schedule(slow, null)
    const pending = await curfew.schedule(elsewhere, null, { retention: '1m' })
    const abandoned = await curfew.schedule(deaf, null)
    await clock.advance('50s')
    expect(await failed.status()).toBe('failed')
    await clock.advance('30m')
    expect(await errorOf(failed.status(), CurfewError)).toMatchObject({ code: 'not_found' })
    expect(await errorOf(failed.events(), CurfewError)).toMatchObject({ code: 'not_found' })
    expect(await kept.status()).toBe('failed')
    expect(await running.status()).toBe('running')
    expect(await pending.status()).toBe('pending')
    // Its handler still holds a slot: the record stays.
    expect(await abandoned.view()).toMatchObject({ status: 'timed_out', receipt: 'abandoned' })
  })

  test('more than fit into one step are all stored, in order', async ({ world }) => {
    const curfew = await world.open()
    const handles = await curfew.scheduleMany(
      elsewhere,
      Array.from({ length: 1_201 }, (_, i) => i),
    )
    expect(new Set(handles.map(({ id }) => id)).size).toBe(1_201)
    expect(await curfew.scheduleMany(elsewhere, [])).toEqual([])
  })
})

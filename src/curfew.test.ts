import { existsSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import { errorOf, onEachStore } from '../scripts/acceptance/world.ts'
import type { OpenOptions, WorkOptions } from './curfew.ts'
import { Curfew, CurfewError, Stopped, task } from './curfew.ts'

const quick = task({ name: 'quick', run: (n: number) => n + 1 })

describe('Curfew.open', () => {
  test('refuses options that make no sense, with a code and a message that names them', async () => {
    const cases: [object, string][] = [
      [{}, 'store'],
      [{ store: '' }, 'store'],
      [{ store: 'mysql://somewhere/db' }, 'mysql'],
      [{ store: ':memory:', concurency: 3 }, 'concurency'],
      [{ store: ':memory:', concurrency: -1 }, 'concurrency'],
      [{ store: ':memory:', concurrency: 1.5 }, 'concurrency'],
      [{ store: ':memory:', concurrency: 1e9 }, 'concurrency'],
      [{ store: ':memory:', tasks: [{}] }, 'tasks[0]'],
      [{ store: ':memory:', tasks: [quick, quick] }, 'quick'],
      [{ store: ':memory:', queues: { narrow: { concurrency: 0 } } }, 'narrow'],
      [{ store: ':memory:', queues: { narrow: null } }, 'narrow'],
      [{ store: ':memory:', tasks: quick }, 'tasks'],
      [{ store: ':memory:', residents: 5 }, 'residents'],
      [{ store: ':memory:', first: 'this' }, 'first'],
    ]
    for (const [options, named] of cases) {
      const error = await errorOf(Curfew.open(options as OpenOptions), CurfewError)
      expect(error.code, error.message).toBe('invalid_option')
      expect(error.message).toContain(named)
    }
    const unnamed = Curfew.open({ store: ':memory:', queues: { '': { concurrency: 1 } } })
    expect(await errorOf(unnamed, CurfewError)).toMatchObject({ code: 'invalid_name' })
    const missing = Curfew.open({ store: '/nowhere/at/all/tasks.db' })
    expect(await errorOf(missing, CurfewError)).toMatchObject({ code: 'store_unavailable' })
  })

  test('so do Curfew.work and Curfew.connect, in their own name', async () => {
    const managers = 'http://127.0.0.1:1'
    const works: [object | undefined, string][] = [
      [undefined, 'options'],
      [{}, 'managers'],
      [{ managers: [] }, 'managers'],
      [{ managers: 5 }, 'managers'],
      [{ managers, store: 'tasks.db' }, 'store'],
      [{ managers, workQueues: ['bank'] }, 'workQueues'],
      [{ managers, queues: 'bank' }, 'queues'],
      [{ managers, concurrency: -1 }, 'concurrency'],
      [{ managers, turns: 0 }, 'turns'],
      [{ managers, tasks: [{}] }, 'tasks[0]'],
    ]
    for (const [options, named] of works) {
      const error = await errorOf(Curfew.work(options as unknown as WorkOptions), CurfewError)
      expect(error).toMatchObject({ code: 'invalid_option', message: expect.stringContaining(named) })
      expect(error.message).toMatch(/^Curfew\.work: /)
    }
    const connects: [unknown, object, string][] = [
      [undefined, {}, 'managers'],
      [[], {}, 'managers'],
      [managers, { tokens: 'cft_…' }, 'tokens'],
      [managers, { tasks: quick }, 'tasks'],
    ]
    for (const [urls, options, named] of connects) {
      const error = await errorOf(Curfew.connect(urls as string, options), CurfewError)
      expect(error).toMatchObject({ code: 'invalid_option', message: expect.stringContaining(named) })
      expect(error.message).toMatch(/^Curfew\.connect: /)
    }
  })

  test('a definition that makes no sense is refused where it is written', () => {
    const define = task as (definition: object) => unknown
    expect(() => define({ name: '', run: () => 1 })).toThrow(CurfewError)
    expect(() => define({ name: 'x' })).toThrow(/run must be a function/)
    expect(() => define({ name: 'x', run: () => 1, timeout: '5' })).toThrow(/task x: timeout/)
    expect(() => define({ name: 'x', run: () => 1, isolation: 'process' })).toThrow(/import\.meta\.url/)
    expect(() => define({ name: 'x', run: () => 1, input: {} })).toThrow(/Standard Schema/)
    expect(() => define({ name: 'x', run: () => 1, retry: 3 })).toThrow(/retry is not an option/)
  })
})

test('a call with an option that nobody knows is refused, and does nothing', async () => {
  await using curfew = await Curfew.open({ store: ':memory:', tasks: [quick], listen: '127.0.0.1:0' })
  await using client = await Curfew.connect(curfew.url as string)
  const { id } = await curfew.submit(quick, 1)
  for (const { job, deadLetters, watch } of [curfew, client].map((engine) => ({
    job: engine.job(id),
    deadLetters: engine.deadLetters,
    watch: (options: object) => engine.watch(id, options).next(),
  }))) {
    const misspelt = { timout: '1s' } as object
    const calls: [string, Promise<unknown>][] = [
      ['wait', job.result(misspelt)],
      ['wait', job.cancelled(misspelt)],
      ['wait', job.workflow('quick').result(misspelt)],
      ['wait', job.workflow('quick').settled(misspelt)],
      ['wait', job.workflow('quick').cancelled(misspelt)],
      ['cancel', job.workflow('quick').cancel(misspelt)],
      ['watch', watch(misspelt)],
      ['dead letters', deadLetters.list(misspelt)],
      ['dead letters', deadLetters.read(id, misspelt).next()],
      ['dead letters', deadLetters.discard(id, misspelt)],
      ['dead letters', deadLetters.claim(id, { retryId: 'r', ...misspelt })],
    ]
    for (const [what, call] of calls) {
      const { code, message } = await errorOf(call, CurfewError)
      expect(code).toBe('invalid_option')
      expect(message).toMatch(RegExp(`^${what}: 'timout' is not an option; there (is|are) `))
    }
    await expect(job.result('1s' as never)).rejects.toThrow('wait: its options must be an object')
  }
  await expect(curfew.close({ drian: true } as object)).rejects.toThrow(
    "close: 'drian' is not an option; there is drain",
  )
  expect(await curfew.job(id).result({ timeout: '1m' })).toEqual({ quick: 2 })
})

onEachStore('opening and closing', (test, kind) => {
  test('runs what it has the code of; the rest waits for a process that has', async ({ world }) => {
    const curfew = await world.open({ tasks: [quick], workQueues: ['default', 'mine'] })
    const other = task({ name: 'other', run: () => 'other' })
    const mine = await curfew.schedule(quick, 1, { queue: 'mine' })
    const theirs = await curfew.schedule(quick, 1, { queue: 'theirs' })
    const unknown = await curfew.schedule(other, null)
    expect(await mine.result()).toBe(2)
    await world.clock.advance('1h')
    expect(await theirs.status()).toBe('pending')
    expect(await unknown.status()).toBe('pending')
    if (kind === 'memory') return
    await world.close(curfew)
    const later = await world.open({ tasks: [quick, other] })
    expect(await later.task(theirs.id).result()).toBe(2)
    expect(await later.task(unknown.id).result()).toBe('other')
  })

  test('close without drain: attempts are told to stop and go back to the queue', async ({ world }) => {
    const { clock } = world
    const reasons: unknown[] = []
    const starts: number[] = []
    const slow = task({
      name: 'slow',
      run: async (_, { attempt, signal }) => {
        starts.push(attempt)
        if (attempt > 1) return 'well'
        await clock.sleep('1h', signal).catch((reason) => {
          reasons.push(reason)
          throw reason
        })
        return 'ill'
      },
    })
    const first = await world.open({ tasks: [slow] })
    const { id } = await first.schedule(slow, null)
    await clock.advance('1s')
    await world.close(first)
    expect(reasons).toMatchObject([{ code: 'closing' }])
    expect(reasons[0]).toBeInstanceOf(Stopped)
    expect(await errorOf(first.schedule(slow, null), CurfewError)).toMatchObject({ code: 'closed' })
    if (kind === 'memory') return
    const second = await world.open({ tasks: [slow] })
    expect(await second.task(id).result()).toBe('well')
    expect(starts).toEqual([1, 2])
    expect((await second.task(id).explain()).attempts).toMatchObject([
      { attempt: 1, status: 'lost', receipt: 'aborted' },
      { attempt: 2, status: 'completed' },
    ])
  })

  test('close with drain: attempts may end, nothing new is started', async ({ world }) => {
    const { clock } = world
    const started: number[] = []
    const slow = task({
      name: 'slow',
      run: async (n: number) => {
        started.push(n)
        await clock.sleep('10s')
        return n
      },
    })
    const first = await world.open({ tasks: [slow], concurrency: 1 })
    const [running, waiting] = await first.scheduleMany(slow, [1, 2])
    const result = running?.result()
    await clock.advance('1s')
    await world.close(first, { drain: true })
    expect(await result).toBe(1)
    expect(started).toEqual([1])
    if (kind === 'memory') return
    const second = await world.open()
    expect(await second.task(running!.id).status()).toBe('completed')
    expect(await second.task(waiting!.id).status()).toBe('pending')
  })

  test('close with a bound on the drain: what ends in time counts, the rest goes back', async ({ world }) => {
    const { clock } = world
    const slow = task({
      name: 'slow',
      run: async (duration: string, { signal }) => {
        await clock.sleep(duration, signal)
        return duration
      },
    })
    const first = await world.open({ tasks: [slow] })
    const handles = await first.scheduleMany(slow, ['5s', '1h'])
    await clock.settle()
    const start = world.now
    await world.close(first, { drain: '20s' })
    expect(world.now - start).toBeLessThan(30_000)
    if (kind === 'memory') return
    const second = await world.open()
    const statuses = await Promise.all(handles.map(({ id }) => second.task(id).status()))
    expect(statuses).toEqual(['completed', 'pending'])
  })

  test('close is done once, also with `await using`', async ({ world }) => {
    const curfew = await world.open({ tasks: [quick] })
    const handle = await curfew.schedule(quick, 1)
    expect(await handle.result()).toBe(2)
    await Promise.all([curfew.close(), curfew.close(), curfew[Symbol.asyncDispose]()])
    await world.close(curfew)
    expect(await errorOf(handle.status(), Error)).toBeInstanceOf(Error)
  })

  test('closing is not a loss: however often the process is restarted, the task is repeated', async ({
    world,
  }) => {
    if (kind === 'memory') return
    const { clock } = world
    const slow = task({ name: 'slow', run: async (_, { signal }) => clock.sleep('1h', signal) })
    let id = ''
    for (let i = 0; i < 6; i++) {
      const curfew = await world.open({ tasks: [slow] })
      id ||= (await curfew.schedule(slow, null)).id
      await clock.advance('1m')
      expect(await curfew.task(id).view()).toMatchObject({ status: 'running', attempts: i + 1 })
      await world.close(curfew)
    }
  })
})

onEachStore(
  'a SQLite file',
  (test) => {
    test('belongs to one engine at a time', async ({ world }) => {
      const first = await world.open({ tasks: [quick] })
      const error = await errorOf(world.open(), CurfewError)
      expect(error).toMatchObject({ code: 'store_unavailable' })
      expect(error.message).toContain(`in use by process ${process.pid}`)
      expect(await (await first.schedule(quick, 1)).result()).toBe(2)
      await world.close(first)
      expect(existsSync(`${world.store}.lock`)).toBe(false)
      const second = await world.open()
      expect((await second.list()).tasks).toMatchObject([{ name: 'quick', status: 'completed', output: 2 }])
    })
  },
  ['file'],
)

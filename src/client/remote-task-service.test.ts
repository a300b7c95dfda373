/** X5: how a client asks again, what it counts, and what it gives up on; over a transport in memory, on a virtual clock. */
import type { ServiceImpl } from '@connectrpc/connect'
import { expect, test } from 'vitest'
import { gone, inTime, NEVER, refusal, setUp } from '../../scripts/acceptance/managers-in-memory.ts'
import type { CurfewError } from '../core/errors.ts'
import type { JobService } from '../wire/gen/curfew/v1/jobs_pb.ts'

test('X5: a request that nobody answers is tried three more times, half a second to two apart', async () => {
  const at: number[] = []
  const { service, clock, counters, chances } = setUp({
    get: () => {
      at.push(clock.wall())
      throw gone()
    },
  })
  chances.push(1, 1, 1)
  const { ended } = await inTime(clock, service.get('t_1'))
  expect(at.map((time) => time - (at[0] as number))).toEqual([0, 500, 1_500, 3_500])
  expect(ended).toMatchObject({ code: 'unreachable', fields: { urls: ['http://manager-0'] } })
  expect((ended as CurfewError).message).toMatch(
    /^nobody answers at http:\/\/manager-0: connect ECONNREFUSED/,
  )
  expect(counters).toEqual({ requests: 1, retries: 3, failures: 1, reconnects: 0, orphaned: 0 })
})

test('X5: the time between two tries is drawn, and never above five seconds', async () => {
  const at: number[] = []
  const { service, clock, chances } = setUp({
    wait: () => {
      at.push(clock.wall())
      throw gone()
    },
  })
  chances.push(0, 0, 0, 1, 1, 1, 1, 1)
  await inTime(clock, service.settled('t_1', null))
  const apart = at.slice(1).map((time, i) => time - (at[i] as number))
  expect(apart).toEqual([250, 500, 1_000, 4_000, 5_000, 5_000])
})

test('X5: the same request goes to the next manager, with the ids it had', async () => {
  const seen: string[] = []
  const answering = (name: string): Partial<ServiceImpl<typeof JobService>> => ({
    schedule: ({ tasks }) => {
      seen.push(`${name} ${tasks.map(({ id }) => id).join()}`)
      if (name === 'first') throw gone()
      return { tasks: tasks.map(({ id }) => ({ id, existing: false })) }
    },
    signal: ({ requestId }) => {
      seen.push(`${name} ${requestId}`)
      if (name === 'second') throw refusal('not_leading')
      return {}
    },
  })
  const { service, clock, counters } = setUp(answering('first'), answering('second'))
  const request = { kind: 'task', name: 'echo', policy: {}, start: { delayMs: 0 } } as const
  const { ended } = await inTime(clock, service.schedule({ ...request, tasks: [{ input: '1', key: null }] }))
  const [id] = (ended as { id: string }[]).map((one) => one.id)
  expect(id).toMatch(/^t_[0-9a-z]{26}$/)
  // The one that answered last is asked first.
  await inTime(clock, service.signal('g_1', 'go', '1'))
  const requestId = seen[3]?.split(' ')[1]
  expect(requestId).toMatch(/^q_[0-9a-z]{26}$/)
  expect(seen).toEqual([`first ${id}`, `second ${id}`, `second ${requestId}`, `first ${requestId}`])
  await inTime(clock, service.signal('g_1', 'go', '1'))
  expect(seen[4]).not.toBe(`first ${requestId}`)
  expect(counters).toMatchObject({ requests: 3, retries: 2, failures: 0 })
})

test('a large request is on its way while the next one is made', async () => {
  let made = 0
  const madeBefore: number[] = []
  const { service, clock } = setUp({
    schedule: () => {
      madeBefore.push(made)
      return { tasks: [] }
    },
  })
  const task = Object.defineProperty({ input: '', key: null }, 'input', { get: () => `${made++}` })
  const request = { kind: 'task', name: 'echo', policy: {}, start: { delayMs: 0 } } as const
  const schedule = () => service.schedule({ ...request, tasks: [task, task] })
  await inTime(clock, Promise.all(Array.from({ length: 20 }, schedule)))
  expect(madeBefore).toHaveLength(20)
  expect(madeBefore[0]).toBeLessThan(10)
})

test('X5: requests that fail together all go to the next manager, and whatever comes then does too', async () => {
  const asked: string[] = []
  const answering = (name: string): Partial<ServiceImpl<typeof JobService>> => ({
    get: ({ id }) => {
      asked.push(`${name} ${id}`)
      if (name === 'first') throw gone()
      return {}
    },
  })
  const { service, clock, counters } = setUp(answering('first'), answering('second'))
  await inTime(clock, Promise.all(['t_1', 't_2', 't_3', 't_4'].map((id) => service.get(id))))
  await inTime(clock, service.get('t_5'))
  expect(asked.filter((one) => one.startsWith('first'))).toEqual([
    'first t_1',
    'first t_2',
    'first t_3',
    'first t_4',
  ])
  expect(asked.at(-1)).toBe('second t_5')
  expect(counters).toMatchObject({ requests: 5, retries: 4, failures: 0 })
})

test('a watch that its reader leaves is over at the manager too', async () => {
  const over = Promise.withResolvers<string>()
  const { service } = setUp({
    async *watch({ lastSequence }, { signal }) {
      signal.addEventListener('abort', () => over.resolve('over'))
      yield { lastSequence, work: { id: 't_1', status: 'running' } }
      await over.promise
    },
  })
  for await (const { work } of service.watch('t_1', 0, NEVER)) {
    expect(work.status).toBe('running')
    break
  }
  expect(await over.promise).toBe('over')
})

test.each([
  'not_found',
  'key_conflict',
  'refused',
  'invalid_option',
  'too_big',
  'unauthenticated',
  'stale_fence',
])('X5: %s is an answer: it is not asked again', async (code) => {
  let asked = 0
  const { service, clock, counters } = setUp({
    cancel: () => {
      asked++
      throw refusal(code)
    },
  })
  const { took, ended } = await inTime(clock, service.cancel('t_1'))
  expect(ended).toMatchObject({ code, message: 'so it is', fields: { n: 1 } })
  expect([asked, took <= 10]).toEqual([1, true])
  expect(counters).toEqual({ requests: 1, retries: 0, failures: 1, reconnects: 0, orphaned: 0 })
})

test.each(['store_unavailable', 'commit_unknown', 'not_leading', 'closed', 'overloaded'])(
  'X5: %s passes: it is asked again',
  async (code) => {
    let asked = 0
    const { service, clock } = setUp({
      cancel: () => {
        if (++asked < 4) throw refusal(code)
        return { status: 'cancelled' }
      },
    })
    expect((await inTime(clock, service.cancel('t_1'))).ended).toBe('cancelled')
    expect(asked).toBe(4)
  },
)

test('X5: a wait is given up when nobody has answered for fifteen seconds, and counted as orphaned', async () => {
  const { service, clock, counters } = setUp({
    wait: () => {
      throw gone()
    },
  })
  const { took, ended } = await inTime(clock, service.settled('t_1', null))
  expect(ended).toMatchObject({ code: 'unreachable' })
  expect(took).toBeGreaterThan(15_000)
  expect(took).toBeLessThan(25_000)
  expect(counters).toMatchObject({ requests: 1, failures: 1, orphaned: 1 })
})

test('a wait that has its own limit is over when that is, whether or not somebody answers', async () => {
  const { service, clock, counters } = setUp({
    wait: () => {
      throw gone()
    },
  })
  const { took, ended } = await inTime(clock, service.settled('t_1', 2_000))
  expect(ended).toBeNull()
  expect(took).toBeLessThan(2_100)
  expect(counters.orphaned).toBe(0)
})

test('a wait for one is asked for again and again, for no longer than a manager may be silent', async () => {
  const waits: (number | undefined)[] = []
  const { service, clock, counters } = setUp({
    wait: async ({ timeoutMs }) => {
      waits.push(timeoutMs)
      await clock.sleep(timeoutMs as number)
      return waits.length === 3 ? { settled: true, output: '[1]' } : {}
    },
  })
  const { ended, took } = await inTime(clock, service.settled('t_1', null))
  expect(ended).toEqual({ status: 'completed', output: '[1]' })
  expect(waits).toEqual([10_000, 10_000, 10_000])
  expect(took).toBeLessThan(30_100)
  expect(counters).toMatchObject({ requests: 1, retries: 0, reconnects: 0 })
  waits.length = 3
  expect((await inTime(clock, service.settled('t_1', 15_000))).ended).toBeNull()
  waits.length = 3
  const short = await inTime(clock, service.settled('t_1', 50))
  expect([short.ended, waits[3]]).toEqual([null, 50])
  expect(short.took).toBeLessThan(70)
})

test('a workflow of a job is waited for by its run, and told as that ended', async () => {
  const runId = 't_1'
  let ended = false
  const { service, clock } = setUp({
    listWorkflows: ({ withoutOutputs }) => {
      expect(withoutOutputs).toBe(true)
      return { workflows: [{ id: 'w', kind: 'task', name: 'n', status: 'running', runId }] }
    },
    wait: async ({ id, timeoutMs }) => {
      expect(id).toBe(runId)
      await clock.sleep(timeoutMs as number)
      return ended ? { settled: true, work: { id, status: 'timed_out', timeoutKind: 'total' } } : {}
    },
  })
  expect((await inTime(clock, service.memberSettled('j_1', 'w', 15_000))).ended).toBeNull()
  ended = true
  expect((await inTime(clock, service.memberSettled('j_1', 'w', null))).ended).toEqual({
    ...{ id: 'w', kind: 'task', name: 'n', runId, dependsOn: [] },
    ...{ status: 'timed_out', timeoutKind: 'total', output: null, failure: null },
  })
})

test('X5: who waits for a workflow of a job waits as long for a manager as everybody who waits', async () => {
  const { service, clock } = setUp({
    listWorkflows: () => {
      if (clock.monotonic() < goneUntil) throw gone()
      return { workflows: [{ id: 'w', status: 'completed', runId: 't_1' }] }
    },
    wait: () => ({ settled: true, output: '7' }),
  })
  let goneUntil = clock.monotonic() + 12_000
  expect((await inTime(clock, service.memberSettled('j_1', 'w', null))).ended).toMatchObject({ output: 7 })
  goneUntil = Infinity
  const { ended, took } = await inTime(clock, service.memberSettled('j_1', 'w', null))
  expect(ended).toMatchObject({ code: 'unreachable' })
  expect(took).toBeGreaterThan(15_000)
})

test('a workflow of a job that has ended is told however short the limit is', async () => {
  const { service, clock } = setUp({
    listWorkflows: async () => {
      await clock.sleep(50)
      return { workflows: [{ id: 'w', status: 'completed', runId: 't_1' }] }
    },
    wait: ({ timeoutMs }) => {
      expect(timeoutMs).toBe(0)
      return { settled: true, output: '[1]' }
    },
  })
  const { ended } = await inTime(clock, service.memberSettled('j_1', 'w', 1))
  expect(ended).toMatchObject({ id: 'w', output: [1] })
})

test('however many wait for workflows of jobs, and whether or not somebody answers, each limit is over when it should be', async () => {
  const { service, clock } = setUp({ listWorkflows: () => new Promise<never>(() => undefined) })
  const from = clock.monotonic()
  const waits = Array.from({ length: 300 }, async (_, i) => {
    const ended = await service.memberSettled('j_1', `w${i}`, 2_000 + i)
    return { ended, lateMs: clock.monotonic() - from - 2_000 - i }
  })
  const { ended } = await inTime(clock, Promise.all(waits))
  expect(ended).toEqual(new Array(300).fill({ ended: null, lateMs: 0 }))
})

test('X5: a watch goes on elsewhere from the last sequence; one that ends early is no reason to hurry', async () => {
  const asked: number[] = []
  const at: number[] = []
  const { service, clock, counters } = setUp({
    async *watch({ lastSequence }) {
      asked.push(lastSequence)
      at.push(clock.wall())
      const seq = lastSequence + 1
      yield {
        lastSequence: seq,
        final: asked.length === 4,
        work: { id: 't_1' },
        events: [{ type: 'e', seq }],
      }
      if (asked.length === 2) throw gone()
    },
  })
  const seqs: number[] = []
  const watching = (async () => {
    for await (const { events } of service.watch('t_1', 5, NEVER)) seqs.push(...events.map(({ seq }) => seq))
  })()
  await inTime(
    clock,
    watching.then(() => true),
  )
  expect(asked).toEqual([5, 6, 7, 8])
  expect(seqs).toEqual([6, 7, 8, 9])
  for (const [i, time] of at.slice(1).entries()) expect(time - (at[i] as number)).toBeGreaterThanOrEqual(250)
  expect(counters).toMatchObject({ reconnects: 3, orphaned: 0 })
})

test('X4: a watch over a connection that has died without a word goes on over another', async () => {
  const asked: number[] = []
  const { service, clock, counters } = setUp({
    async *watch({ lastSequence }, { signal }) {
      asked.push(lastSequence)
      const work = { id: 't_1', status: asked.length === 1 ? 'running' : 'completed' }
      const last = asked.length > 1
      yield { lastSequence: 3, final: last, work, events: last ? [] : [{ type: 'e', seq: 3 }] }
      if (last) return
      // Nothing new, said again: no reason to tell anybody, nor to give up.
      for (let i = 0; i < 4; i++) {
        await clock.sleep('5s', signal)
        yield { lastSequence: 3, work }
      }
      await new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason)))
    },
  })
  const views: string[] = []
  const watching = (async () => {
    for await (const { work, final } of service.watch('t_1', 0, NEVER)) views.push(`${work.status} ${final}`)
  })()
  const { took } = await inTime(
    clock,
    watching.then(() => true),
  )
  expect(views).toEqual(['running false', 'completed true'])
  expect(asked).toEqual([0, 3])
  expect(took).toBeGreaterThanOrEqual(35_000)
  expect(took).toBeLessThan(37_000)
  expect(counters.reconnects).toBe(1)
})

test('X5: a watch that nobody answers is given up like a wait', async () => {
  const { service, clock, counters } = setUp({
    // biome-ignore lint/correctness/useYield: it has nothing to say
    async *watch() {
      throw gone()
    },
  })
  const watching = (async () => {
    for await (const _ of service.watch('t_1', 0, NEVER)) break
  })()
  const { ended, took } = await inTime(clock, watching)
  expect(ended).toMatchObject({ code: 'unreachable' })
  expect(took).toBeGreaterThan(15_000)
  expect(counters.orphaned).toBe(1)
})

test('a client that is closed answers so: what is under way, what waits for another try, and what comes then', async () => {
  const { service, clock } = setUp({
    get: () => new Promise<never>(() => undefined),
    list: () => {
      throw gone()
    },
  })
  const under = service.get('t_1').catch((error: CurfewError) => error.code)
  const waiting = service
    .list({ statuses: null, limit: 1 } as never)
    .catch((error: CurfewError) => error.code)
  await clock.settle()
  await service.close()
  const after = service.get('t_1').catch((error: CurfewError) => error.code)
  expect(await Promise.all([under, waiting, after])).toEqual(['closed', 'closed', 'closed'])
})

test('X5: the status of a manager says whether it may decide, and who it is', async () => {
  const { service } = setUp({}, {})
  expect(await service.serverStatus()).toEqual({
    ...{
      nodeId: 'n_0',
      version: '9',
      protocol: 0,
      store: 'sqlite',
      ready: true,
      now: 0,
      workers: 3,
      fence: 7,
    },
  })
})

/** X5: managers that take connections and answer nothing, as one does that was stopped; and those that only take long. */
import { expect, test } from 'vitest'
import type { Answering } from '../../scripts/acceptance/managers-in-memory.ts'
import { inTime, NEVER, refusal, setUp } from '../../scripts/acceptance/managers-in-memory.ts'

/** Whatever is asked; `asked` says what was. */
function silent(asked: string[] = []): Answering {
  const never = (name: string) => () => {
    asked.push(name)
    return new Promise<never>(() => undefined)
  }
  return {
    ...{ getStatus: never('getStatus'), get: never('get'), wait: never('wait'), submit: never('submit') },
    schedule: never('schedule'),
    listWorkflows: never('listWorkflows'),
    async *watch(_, { signal }) {
      asked.push('watch')
      await new Promise((_resolve, reject) => signal.addEventListener('abort', () => reject(signal.reason)))
    },
  }
}

const REQUEST = { kind: 'task', name: 'echo', policy: {}, start: { delayMs: 0 } } as const

async function read(watch: AsyncIterable<{ work: { status: string } }>): Promise<string[]> {
  const statuses: string[] = []
  for await (const { work } of watch) statuses.push(work.status)
  return statuses
}

test('a request is given up on after fifteen seconds, and says who does not answer', async () => {
  const asked: string[] = []
  const { service, clock, counters } = setUp(silent(asked))
  const { ended, took } = await inTime(clock, service.get('t_1'))
  expect(ended).toMatchObject({
    code: 'unreachable',
    message: expect.stringMatching(/^nobody answers at http:\/\/manager-0: no answer within 15000 ms/),
    hint: 'Is the manager running, and is this its address?',
  })
  expect(took).toBeGreaterThanOrEqual(15_000)
  expect(took).toBeLessThan(15_100)
  expect(asked.filter((what) => what === 'get')).toHaveLength(1)
  expect(counters).toEqual({ requests: 1, retries: 0, failures: 1, reconnects: 0, orphaned: 1 })
})

test('a watch, and a wait, are given up on like it', async () => {
  const { service, clock, counters } = setUp(silent())
  const reason = {
    code: 'unreachable',
    message: expect.stringMatching(/^nobody answers at http:\/\/manager-0: no/),
  }
  for (const ask of [
    () => read(service.watch('t_1', 0, NEVER)),
    () => service.settled('t_1', null),
    () => service.memberSettled('j_1', 'w', null),
  ]) {
    const { ended, took } = await inTime(clock, ask() as Promise<unknown>)
    expect(ended).toMatchObject(reason)
    expect(took).toBeGreaterThanOrEqual(15_000)
    expect(took).toBeLessThan(16_000)
  }
  expect(counters.orphaned).toBe(3)
})

test('a watch whose manager falls silent later asks it once more, and then gives up', async () => {
  let opened = 0
  const { service, clock } = setUp({
    ...silent(),
    async *watch({ lastSequence }, { signal }) {
      if (++opened === 1) yield { lastSequence, work: { id: 't_1', status: 'running' } }
      await new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason)))
    },
  })
  const { ended, took } = await inTime(clock, read(service.watch('t_1', 0, NEVER)))
  expect(ended).toMatchObject({ code: 'unreachable' })
  expect(opened).toBe(2)
  expect(took).toBeGreaterThanOrEqual(20_000)
  expect(took).toBeLessThan(21_000)
})

test('the next manager is asked after five seconds, by everybody who waits for the silent one, with the ids they had', async () => {
  const ids: string[] = []
  const first = silent()
  const { service, clock, counters } = setUp(
    {
      ...first,
      schedule: ({ tasks }) => {
        ids.push(tasks[0]?.id as string)
        return new Promise<never>(() => undefined)
      },
    },
    {
      get: () => ({ work: { id: 't_1', status: 'running' } }),
      async *watch({ lastSequence }) {
        yield { lastSequence, final: true, work: { id: 't_1', status: 'completed' } }
      },
      schedule: ({ tasks }) => {
        ids.push(tasks[0]?.id as string)
        return { tasks: tasks.map(({ id }) => ({ id, existing: false })) }
      },
    },
  )
  const { ended, took } = await inTime(
    clock,
    Promise.all([
      service.get('t_1'),
      read(service.watch('t_1', 0, NEVER)),
      service.schedule({ ...REQUEST, tasks: [{ input: '1', key: null }] }),
    ]),
  )
  expect(ended).toMatchObject([{ status: 'running' }, ['completed'], [{ id: ids[0] }]])
  expect(ids).toEqual([ids[0], ids[0]])
  expect(took).toBeGreaterThanOrEqual(5_000)
  expect(took).toBeLessThan(6_000)
  // From then on nobody waits for it.
  expect((await inTime(clock, service.get('t_2'))).took).toBeLessThan(100)
  expect(counters).toMatchObject({ failures: 0, orphaned: 0 })
})

test('however many are silent, each is asked before a request is given up on', async () => {
  const answering: Answering = { get: () => ({ work: { id: 't_1', status: 'running' } }) }
  const { service, clock } = setUp(silent(), silent(), silent(), silent(), silent(), answering)
  expect((await inTime(clock, service.get('t_1'))).ended).toMatchObject({ status: 'running' })
  const all = setUp(silent(), silent())
  const { ended, took } = await inTime(all.clock, all.service.get('t_1'))
  expect(ended).toMatchObject({
    code: 'unreachable',
    fields: { urls: ['http://manager-0', 'http://manager-1'] },
  })
  expect(took).toBeLessThan(17_000)
})

test('a manager that takes long for one request, and answers others, is waited for and not asked twice', async () => {
  const asked: string[] = []
  const slow = (name: string): Answering => ({
    schedule: async ({ tasks }) => {
      asked.push(name)
      await clock.sleep('14s')
      return { tasks: tasks.map(({ id }) => ({ id, existing: false })) }
    },
    async *watch({ lastSequence }) {
      asked.push(`watch ${name}`)
      await clock.sleep('14s')
      yield { lastSequence, final: true, work: { id: 't_1', status: 'completed' } }
    },
  })
  const { service, clock } = setUp(slow('first'), slow('second'))
  const { ended, took } = await inTime(
    clock,
    Promise.all([
      service.schedule({ ...REQUEST, tasks: [{ input: '1', key: null }] }),
      read(service.watch('t_1', 0, NEVER)),
    ]),
  )
  expect(ended).toMatchObject([[{ existing: false }], ['completed']])
  expect(took).toBeLessThan(14_100)
  expect(asked).toEqual(['first', 'watch first'])
})

test.each([[1], [2]])('a store that is away is waited for once at each of %i managers', async (count) => {
  let asked = 0
  const waiting: Answering = {
    submit: async () => {
      asked++
      await clock.sleep('10s')
      throw refusal('store_unavailable')
    },
  }
  const { service, clock } = setUp(...new Array<Answering>(count).fill(waiting))
  const submit = { ...{ what: { task: 'echo' }, input: 1, key: null, timeout: null, delay: null } }
  const { ended, took } = await inTime(clock, service.submit({ ...submit, trace: null, requestId: null }))
  expect(ended).toMatchObject({ code: 'store_unavailable', message: 'so it is' })
  expect(asked).toBe(count)
  expect(took).toBeLessThan(10_000 * count + 1_000)
})

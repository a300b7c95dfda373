// The conformance suite, second half: every statement but the hot five, the same on every store.
import { afterAll, beforeAll, beforeEach, describe, expect, inject, test } from 'vitest'
import { createDatabase } from '../../scripts/postgres/database.ts'
import { claimedRow, newRow, newTask } from '../engine/fixtures/task-rows.ts'
import { NodeStatements } from '../leadership/node-statements.ts'
import type { AttemptRow, EventRow } from './attempt-row.ts'
import { STORE_KINDS, TestStore } from './fixtures/stores.ts'
import type { TaskFilter } from './statements.ts'
import type { TaskRow } from './task-row.ts'

const id = (n: number) => `t_${String(n).padStart(5, '0')}`
const plain = <T extends object>(rows: T[]): T[] => rows.map((row) => ({ ...row }))
const ids = (rows: { id: string }[]) => rows.map((row) => row.id)

/** An attempt of this node that holds a slot. */
function live(n: number, nodeId: string, more: Partial<TaskRow> = {}): TaskRow {
  return { ...claimedRow(newRow({ id: id(n) }), { now: 1_000, nodeId, token: `a_${n}` }), ...more }
}

const EVERYTHING: Partial<TaskRow> = {
  status: 'timed_out',
  ready: 0,
  live: 1,
  stopping: 1,
  parked: 'a reason',
  output: '"größe 📧"',
  failure: '{"code":"x"}',
  timeoutKind: 'heartbeat',
  receipt: 'terminated',
  attempt: 3,
  failures: 2,
  losses: 1,
  token: 'a_7',
  nodeId: 'n_7',
  startedAt: 1_800_000_000_001,
  endedAt: 1_800_000_000_002,
  settledAt: 1_800_000_000_003,
  deadlineAt: 1_800_000_000_004,
  queueDeadlineAt: 1_800_000_000_005,
  attemptDeadlineAt: 1_800_000_000_006,
  heartbeatDeadlineAt: 1_800_000_000_007,
  stuckDeadlineAt: 1_800_000_000_008,
  exhaustedDeadlineAt: 1_800_000_000_009,
  stopBoundAt: 1_800_000_000_010,
  retryAt: 1_800_000_000_011,
  dueAt: 1_800_000_000_012,
  warned: 31,
  progress: '{"fraction":0.5}',
  details: '[1]',
  extension: '{"grants":1}',
  extendedMs: 34_560_000_000,
  seq: 2_000_000,
  startedSeq: 1_999_998,
  endedSeq: 1_999_999,
}

describe.each(STORE_KINDS)('on %s', (kind) => {
  let db: TestStore
  beforeAll(async () => {
    db = await TestStore.open(kind, () => createDatabase(inject('postgresUrl')))
  })
  afterAll(() => db[Symbol.asyncDispose]())
  beforeEach(() => db.clear())

  describe('rows of tasks', () => {
    test('updateTasks writes every field that can change, of many rows at once, and of no other', async () => {
      const rows = [newRow({ id: id(1) }), newRow({ id: id(2) }), newRow({ id: id(3) })]
      await db.put(...rows)
      const changed = { ...(rows[0] as TaskRow), ...EVERYTHING }
      const back = { ...changed, ...(rows[1] as TaskRow), seq: 5 }
      await db.run(db.statements.updateTasks([changed, back]))
      expect(await db.all()).toEqual([changed, back, rows[2]])
      await db.run(db.statements.updateTasks([{ ...changed, ...(rows[0] as TaskRow) }]))
      expect(await db.get(id(1))).toEqual(rows[0])
    })

    test('what never changes is not written again', async () => {
      await db.put(newRow({ id: id(1) }))
      await db.run(
        db.statements.updateTasks([newRow({ id: id(1), name: 'other', input: '2', queue: 'q', now: 9 })]),
      )
      expect(await db.get(id(1))).toMatchObject({
        name: 'resize',
        input: 'null',
        queue: 'default',
        createdAt: 0,
      })
    })

    test('lockTasks reads those there are in the order of their ids; readTasks the same without a lock', async () => {
      await db.put(newRow({ id: id(3) }), newRow({ id: id(1) }), newRow({ id: id(2) }))
      const wanted = [id(3), id(9), id(1)]
      expect(ids(await db.run(db.statements.lockTasks(wanted)))).toEqual([id(1), id(3)])
      expect(ids(await db.run(db.statements.readTasks(wanted))).sort()).toEqual([id(1), id(3)])
      expect(await db.run(db.statements.lockTasks([]))).toEqual([])
      expect(plain(await db.run(db.statements.readTasks([id(2)])))).toEqual([newRow({ id: id(2) })])
    })

    test('tasksByKey finds those of this name alone', async () => {
      await db.put(
        newRow({ id: id(1), key: 'a', input: '1' }),
        newRow({ id: id(2), key: 'b' }),
        newRow({ id: id(3), key: 'a', name: 'other' }),
        newRow({ id: id(4) }),
      )
      expect(plain(await db.run(db.statements.tasksByKey('resize', ['a', 'z'])))).toEqual([
        { id: id(1), key: 'a', input: '1' },
      ])
    })

    test('settledTasks and outcomes tell a waiting caller how far each is', async () => {
      await db.put(newRow({ id: id(1) }), {
        ...newRow({ id: id(2) }),
        status: 'completed',
        settledAt: 5,
        output: '"done"',
      })
      expect(plain(await db.run(db.statements.settledTasks([id(1), id(2), id(9)])))).toEqual([{ id: id(2) }])
      const outcomes = plain(await db.run(db.statements.outcomes([id(1), id(2)])))
      expect(outcomes.sort((a, b) => (a.id < b.id ? -1 : 1))).toEqual([
        { id: id(1), status: 'pending', settledAt: null, output: null },
        { id: id(2), status: 'completed', settledAt: 5, output: '"done"' },
      ])
    })

    test('parkTask takes a record out of every queue and every clock, and leaves the rest', async () => {
      const row = newRow({ id: id(1), timeout: 5_000 })
      await db.put(row)
      await db.run(db.statements.parkTask(id(1), 'its record cannot be read'))
      expect(await db.get(id(1))).toEqual({
        ...row,
        parked: 'its record cannot be read',
        ready: 0,
        dueAt: null,
        version: 1,
      })
    })
  })

  describe('attempts and events', () => {
    const attempt = (taskId: string, n: number, more: Partial<AttemptRow> = {}): AttemptRow => ({
      ...{ taskId, attempt: n, status: 'timed_out', nodeId: 'n_1', startedAt: 1, startedSeq: 2, endedAt: 3 },
      ...{
        timeoutKind: 'stuck',
        failure: '{}',
        receipt: 'killed',
        grantedMs: 4,
        progress: '{}',
        details: '1',
      },
      ...more,
    })

    test('attempts come back in their order, whole; one that is there already stays', async () => {
      await db.put(newRow({ id: id(1) }), newRow({ id: id(2) }))
      const rows = [
        attempt(id(1), 2, { timeoutKind: null, failure: null, receipt: null, progress: null, details: null }),
        attempt(id(1), 1),
        attempt(id(2), 1),
      ]
      await db.run(db.statements.insertAttempts(rows))
      await db.run(db.statements.insertAttempts([attempt(id(1), 1, { status: 'lost' })]))
      expect(plain(await db.run(db.statements.attempts([id(1)])))).toEqual([rows[1], rows[0]])
      expect(plain(await db.run(db.statements.attempts([id(2), id(1)])))).toEqual([rows[1], rows[0], rows[2]])
      await db.run(db.statements.updateReceipt(id(1), 2, 'exited'))
      expect((await db.run(db.statements.attempts([id(1)]))).map(({ receipt }) => receipt)).toEqual([
        'killed',
        'exited',
      ])
    })

    test('events come back in their order; a number is given out once', async () => {
      const event = (rootId: string, seq: number): EventRow => ({
        rootId,
        seq,
        at: 1_800_000_000_000,
        body: '[{}]',
      })
      await db.run(db.statements.insertEvents([event(id(1), 5), event(id(1), 2), event(id(2), 2)]))
      const own = [event(id(1), 2), event(id(1), 5)]
      expect(plain(await db.run(db.statements.events([id(1)])))).toEqual(own)
      expect(plain(await db.run(db.statements.events([id(2), id(1)])))).toEqual([...own, event(id(2), 2)])
      await expect(db.run(db.statements.insertEvents([event(id(1), 5)]))).rejects.toMatchObject({
        code: 'store_refused',
      })
    })
  })

  describe('listTasks', () => {
    const list = async (filter: Partial<TaskFilter> = {}) => {
      const none: TaskFilter = {
        statuses: null,
        name: null,
        queue: null,
        timeoutKind: null,
        kind: null,
        parentId: null,
        parked: null,
        after: null,
        limit: 100,
      }
      return ids(await db.run(db.statements.listTasks({ ...none, ...filter })))
    }

    test('newest first, by each filter and by all together', async () => {
      await db.put(
        newRow({ id: id(1) }),
        { ...newRow({ id: id(2), name: 'mail' }), status: 'failed' },
        { ...newRow({ id: id(3), queue: 'q' }), status: 'timed_out', timeoutKind: 'stuck' },
        { ...newRow({ id: id(4), name: 'mail', queue: 'q' }), status: 'timed_out', timeoutKind: 'total' },
      )
      expect(await list()).toEqual([4, 3, 2, 1].map(id))
      expect(await list({ statuses: ['failed', 'timed_out'] })).toEqual([4, 3, 2].map(id))
      expect(await list({ statuses: [] })).toEqual([])
      expect(await list({ name: 'mail' })).toEqual([4, 2].map(id))
      expect(await list({ queue: 'q' })).toEqual([4, 3].map(id))
      expect(await list({ timeoutKind: 'stuck' })).toEqual([id(3)])
      expect(await list({ statuses: ['timed_out'], name: 'mail', queue: 'q', timeoutKind: 'total' })).toEqual(
        [id(4)],
      )
      expect(
        await list({ statuses: ['timed_out'], name: 'resize', queue: 'q', timeoutKind: 'total' }),
      ).toEqual([])
    })

    test('pages neither skip nor repeat anything while new tasks come in', async () => {
      await db.run(
        ...db.statements.hot.insertTasks(Array.from({ length: 25 }, (_, i) => newTask({ id: id(i) }))),
      )
      const seen: string[] = []
      for (let after: string | null = null, page = 0; page < 10; page++) {
        const found: string[] = await list({ after, limit: 10 })
        if (found.length === 0) break
        seen.push(...found)
        after = found.at(-1) as string
        await db.run(...db.statements.hot.insertTasks([newTask({ id: id(100 + page) })]))
      }
      expect(seen).toEqual(Array.from({ length: 25 }, (_, i) => id(24 - i)))
    })

    test('ids are ordered by their characters, whatever the language of the database', async () => {
      const odd = ['t_a', 't_B', 't_1', 't__', 't_Z', 't_z']
      await db.put(...odd.map((one) => newRow({ id: one })))
      expect(await list()).toEqual(odd.toSorted().reverse())
    })
  })

  describe('what a process has to look after', () => {
    test('nextDue is the earliest moment of all', async () => {
      const next = async () => (await db.run(db.statements.nextDue(['n_2'], 10_000)))[0]?.dueAt
      expect(await next()).toBeNull()
      await db.put({ ...newRow({ id: id(1) }), dueAt: 9_000 }, { ...newRow({ id: id(2) }), dueAt: 7_000 })
      expect(await next()).toBe(7_000)
      await db.put({ ...newRow({ id: id(3), nodeId: 'n_2' }), dueAt: 5_000 })
      // On PostgreSQL a peer watches its own, and only what comes soon is looked at.
      expect(await next()).toBe(kind === 'PostgreSQL' ? 7_000 : 5_000)
    })

    test('liveTasks, liveAttempts and stoppingTasks are those that hold a slot of this node', async () => {
      const stopping: Partial<TaskRow> = { status: 'timed_out', stopping: 1, timeoutKind: 'stuck' }
      const rows = [live(1, 'n_1'), live(2, 'n_2'), live(3, 'n_1', stopping), live(4, 'n_1', { live: 0 })]
      await db.put(...rows, live(5, 'n_1', { status: 'cancelled', settledAt: 9 }))
      expect(plain(await db.run(db.statements.liveTasks('n_1', 2)))).toEqual([rows[0], rows[2]])
      expect(ids(await db.run(db.statements.liveTasks('n_1', 9)))).toEqual([1, 3, 5].map(id))
      const attempts = plain(await db.run(db.statements.liveAttempts('n_1')))
      expect(ids(attempts).sort()).toEqual([1, 3, 5].map(id))
      expect(attempts.find((one) => one.id === id(1))).toEqual({
        id: id(1),
        token: 'a_1',
        kind: 'task',
        startedAt: 1_000,
      })
      expect(plain(await db.run(db.statements.stoppingTasks('n_1')))).toEqual([
        { id: id(3), token: 'a_3', status: 'timed_out', timeoutKind: 'stuck', graceMs: 5_000 },
      ])
    })

    test('liveTasks leaves out attempts in workers of other processes; whoever shows them may adopt them', async () => {
      const remote = live(2, 'n_1', { token: 'r_2' })
      await db.put(live(1, 'n_1'), remote, live(3, 'n_1', { token: 'rx3' }), live(4, 'n_1', { live: 0 }))
      expect(ids(await db.run(db.statements.liveTasks('n_1', 9)))).toEqual([1, 3].map(id))
      expect(ids(await db.run(db.statements.liveAttempts('n_1'))).sort()).toEqual([1, 2, 3].map(id))
      await db.run(db.statements.adoptAttempts([id(2)], 'n_9'))
      expect(await db.get(id(2))).toEqual({ ...remote, nodeId: 'n_9', version: remote.version + 1 })
    })

    test('rememberRequests answers those that are new; what was forgotten is new again', async () => {
      const remember = async (...requests: string[]) =>
        ids(await db.run(db.statements.rememberRequests(requests, 1_000))).sort()
      expect(await remember('signal a', 'signal b')).toEqual(['signal a', 'signal b'])
      expect(await remember('signal b', 'signal c')).toEqual(['signal c'])
      await db.run(db.statements.forgetRequests(['signal b']))
      expect(await remember('signal a', 'signal b')).toEqual(['signal b'])
      await db.run(db.statements.removeRequests(1_000))
      expect(await remember('signal a')).toEqual([])
      await db.run(db.statements.removeRequests(1_001))
      expect(await remember('signal a')).toEqual(['signal a'])
    })

    test('expiredTasks are those whose lease, their own grace included, is over', async () => {
      const graces: [number, number][] = [
        [1, 0],
        [2, 5_000],
        [3, 60_000],
      ]
      await db.put(
        ...graces.map(([n, grace]) => ({
          ...live(n, 'n_1'),
          ...newRow({ id: id(n), grace }),
          live: 1 as const,
        })),
        live(4, 'n_2'),
      )
      const expired = async (now: number) =>
        ids(await db.run(db.statements.expiredTasks('n_1', 1_000, now, 10_000, 9)))
      expect(await expired(11_000)).toEqual([])
      expect(await expired(11_001)).toEqual([id(1)])
      expect(await expired(16_001)).toEqual([id(1), id(2)])
      expect(await expired(1_800_000_000_000)).toEqual([1, 2, 3].map(id))
    })
  })

  describe('queues', () => {
    test('are added once, set at will, and read by name', async () => {
      await db.run(db.statements.addQueue('b'), db.statements.addQueue('a'))
      await db.run(
        db.statements.setQueue('b', 3),
        db.statements.addQueue('b'),
        db.statements.setQueue('c', 1),
      )
      expect(plain(await db.run(db.statements.queues()))).toEqual([
        { name: 'a', concurrency: null },
        { name: 'b', concurrency: 3 },
        { name: 'c', concurrency: 1 },
      ])
      await db.run(db.statements.setQueue('b', null))
      expect(plain(await db.run(db.statements.lockQueue('b')))).toEqual([{ name: 'b', concurrency: null }])
      expect(await db.run(db.statements.lockQueue('z'))).toEqual([])
    })

    test('slots are counted from what lives, over all processes', async () => {
      const nodes = new NodeStatements(db.store.dialect)
      for (const nodeId of ['n_1', 'n_2']) {
        await db.run(nodes.signIn({ id: nodeId, host: 'h', pid: 1, now: 0, leadUntil: 3_000 }))
      }
      await db.put(live(1, 'n_1'), live(2, 'n_2'), live(3, 'n_1', { live: 0 }), newRow({ id: id(4) }))
      await db.put({ ...live(5, 'n_1'), ...newRow({ id: id(5), queue: 'other' }), live: 1 })
      expect(plain(await db.run(db.statements.liveCount('default')))).toEqual([{ count: 2 }])
      expect(plain(await db.run(db.statements.liveCount('other')))).toEqual([{ count: 1 }])
      expect(plain(await db.run(db.statements.liveCount('none')))).toEqual([{ count: 0 }])
    })
  })

  describe('the sweep', () => {
    test('walks over all records in stretches', async () => {
      await db.put(...[1, 2, 3].map((n) => newRow({ id: id(n) })))
      const [first, second, ...others] = plain(await db.run(db.statements.sweepTasks('', 2)))
      const { status, ready, live, parked, nodeId, settledAt, dueAt, policy } = newRow()
      expect(first).toMatchObject({
        id: id(1),
        status,
        ready,
        live,
        parked,
        nodeId,
        settledAt,
        dueAt,
        policy,
      })
      expect([second?.id, others]).toEqual([id(2), []])
      expect(ids(await db.run(db.statements.sweepTasks(id(2), 2)))).toEqual([id(3)])
    })

    test('deletes what has settled and lives no more, with its attempts and events, and nothing else', async () => {
      const ended: Partial<TaskRow> = { status: 'completed', settledAt: 5, live: 0 }
      await db.put(
        live(1, 'n_1', ended),
        live(2, 'n_1', ended),
        live(3, 'n_1', { ...ended, live: 1 }),
        live(4, 'n_1', { ...ended, status: 'timed_out', settledAt: null }),
      )
      for (const n of [1, 2, 3, 4]) {
        await db.run(
          db.statements.insertAttempts([
            {
              ...{
                taskId: id(n),
                attempt: 1,
                status: 'lost',
                nodeId: 'n_1',
                startedAt: 1,
                startedSeq: 2,
                endedAt: 3,
              },
              ...{
                timeoutKind: null,
                kind: null,
                parentId: null,
                failure: null,
                receipt: null,
                grantedMs: 0,
                progress: null,
                details: null,
              },
            },
          ]),
          db.statements.insertEvents([{ rootId: id(n), seq: 3, at: 1, body: '[]' }]),
        )
      }
      expect(await db.run(...db.statements.deleteTasks([1, 3, 4].map(id)))).toEqual([{ id: id(1) }])
      const left = [2, 3, 4].map(id)
      expect(ids(await db.all())).toEqual(left)
      expect(await db.sql('select task_id as id from {s}attempts order by task_id')).toEqual(
        left.map((one) => ({ id: one })),
      )
      expect(await db.sql('select root_id as id from {s}events order by root_id')).toEqual(
        left.map((one) => ({ id: one })),
      )
    })
  })
})

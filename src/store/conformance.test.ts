// One suite for every store: the hot five, held to the pure functions, and the transactions they run in.
// The other statements are in record-conformance.test.ts.
import fc from 'fast-check'
import { afterAll, beforeAll, beforeEach, describe, expect, inject, test } from 'vitest'
import { createDatabase } from '../../scripts/postgres/database.ts'
import { CurfewError } from '../core/errors.ts'
import type { RowOptions } from '../engine/fixtures/task-rows.ts'
import { claimedRow, newRow, newTask } from '../engine/fixtures/task-rows.ts'
import { decideTask } from '../engine/task-decide.ts'
import type { TaskInput } from '../engine/task-input.ts'
import { STORE_KINDS, TestStore } from './fixtures/stores.ts'
import type { NewTask } from './hot-statements.ts'
import { CLAIMED_FIELDS } from './hot-statements.ts'
import { run, runAll } from './statement.ts'
import { StoreError } from './store-error.ts'
import type { TaskRow } from './task-row.ts'

const id = (n: number) => `t_${String(n).padStart(5, '0')}`

const limit = fc.option(fc.integer({ min: 1, max: 100_000 }), { nil: null })
const options: fc.Arbitrary<RowOptions> = fc.record({
  delayMs: fc.constantFrom(0, 0, 500),
  priority: fc.integer({ min: -5, max: 5 }),
  queue: fc.constantFrom('default', 'images'),
  name: fc.constantFrom('resize', 'größe 📧'),
  input: fc.string({ unit: 'grapheme' }).map((text) => JSON.stringify(text)),
  now: fc.constantFrom(1_000, 1_800_000_000_000),
  timeout: limit,
  attemptTimeout: limit,
  queueTimeout: limit,
  heartbeatTimeout: limit,
  stuckAfter: limit,
  grace: fc.constantFrom(0, 5_000),
})
/** Many at once: a round trip costs more than a row. */
const manyOptions = fc.array(options, { minLength: 1, maxLength: 40 })
const numbered = (list: RowOptions[]) => list.map((one, i) => ({ ...one, id: id(i) }))

describe.each(STORE_KINDS)('on %s', (kind) => {
  let db: TestStore
  beforeAll(async () => {
    db = await TestStore.open(kind, () => createDatabase(inject('postgresUrl')))
  })
  afterAll(() => db[Symbol.asyncDispose]())
  beforeEach(() => db.clear())

  const insert = (...tasks: NewTask[]) => db.run(...db.statements.hot.insertTasks(tasks))
  let claims = 0
  const claim = async (request: Partial<Parameters<typeof db.statements.hot.claimTasks>[0]> = {}) => {
    const whole = {
      now: 1_000,
      nodeId: 'n_9',
      token: `a_${++claims}`,
      queues: ['default'],
      names: ['resize'],
      limit: 500,
    }
    return await db.work(db.statements.hot.claimTasks({ ...whole, ...request }))
  }
  const claimedIds = async (request: Parameters<typeof claim>[0] = {}) =>
    (await claim(request)).map((task) => task.id).sort()

  describe('insertTasks', () => {
    test('writes what it is given, and the schema adds the rest', async () => {
      await fc.assert(
        fc.asyncProperty(manyOptions, async (list) => {
          await db.clear()
          await insert(...numbered(list).map((one) => newTask(one)))
          expect(await db.all()).toEqual(numbered(list).map((one) => newRow(one)))
        }),
        { numRuns: 15 },
      )
    })

    test('leaves out those whose key exists, and answers the ids of the others', async () => {
      await insert(newTask({ id: id(1), key: 'a' }), newTask({ id: id(2) }))
      const answered = await insert(
        newTask({ id: id(3), key: 'a', input: '"other"' }),
        newTask({ id: id(4), key: 'b' }),
        newTask({ id: id(5), key: 'b' }),
        newTask({ id: id(6), key: 'a', name: 'another' }),
        newTask({ id: id(7) }),
      )
      const others = [id(2), id(7)]
      expect(
        answered
          .map((row) => row.id)
          .filter((one) => !others.includes(one))
          .sort(),
      ).toEqual([id(4), id(6)])
      expect((await db.all()).map((row) => row.id)).toEqual([1, 2, 4, 6, 7].map(id))
      expect((await db.get(id(1))).input).toBe('null')
    })

    test('an id that exists is refused, and nothing of the batch stays', async () => {
      await insert(newTask({ id: id(1) }))
      await expect(insert(newTask({ id: id(2) }), newTask({ id: id(1) }))).rejects.toMatchObject({
        code: 'store_refused',
      })
      expect((await db.all()).map((row) => row.id)).toEqual([id(1)])
    })
  })

  describe('claimTasks', () => {
    test('sets what the engine expects a claim to set, and answers it', async () => {
      await fc.assert(
        fc.asyncProperty(manyOptions, fc.integer({ min: 0, max: 30 }), async (list, warned) => {
          await db.clear()
          const rows = numbered(list).map((one) => {
            const base = newRow({ ...one, now: 1_000 })
            return {
              ...base,
              warned,
              seq: 7,
              attempt: 2,
              receipt: 'aborted',
              timeoutKind: 'stuck',
              retryAt: 5,
            } as TaskRow
          })
          await db.put(...rows)
          const request = { now: 1_001, nodeId: 'n_9', token: 'a_9' }
          const names = ['resize', 'größe 📧']
          const claimed = await claim({ ...request, queues: ['default', 'images'], names })
          const expected = rows.map((row) =>
            row.ready === 1 && (row.deadlineAt ?? Infinity) > 1_001 ? claimedRow(row, request) : row,
          )
          expect(await db.all()).toEqual(expected)
          const handedOut = expected.filter(({ status }) => status === 'running')
          expect(claimed.map((task) => ({ ...task })).sort(byId)).toEqual(
            handedOut.map((row) => Object.fromEntries(CLAIMED_FIELDS.map((field) => [field, row[field]]))),
          )
        }),
        { numRuns: 15 },
      )
    })

    test('of one queue and name it answers the same as of many', async () => {
      const row = {
        ...newRow({ id: id(1), priority: 3, now: 1_000, timeout: 900 }),
        ...{ details: '{"at":1}', parentId: 'a_1', rootId: 'a_2', step: 4, attempt: 2, graceMs: 70 },
        ...{ attemptTimeoutMs: 50, firstDueMs: 40, startAt: 900, policy: '{"retries":1}', input: '[1]' },
      }
      const request = { now: 1_001, nodeId: 'n_9', token: 'a_9' }
      const of = { queues: ['default'], names: ['resize'] }
      for (const after of [null, { priority: 2, id: id(9) }]) {
        await db.clear()
        await db.put(row)
        const expected = claimedRow(row, request)
        const fields = Object.fromEntries(CLAIMED_FIELDS.map((field) => [field, expected[field]]))
        expect((await claim({ ...request, ...of, after })).map((task) => ({ ...task }))).toEqual([fields])
      }
    })

    test('behind a place: what comes next of that queue and name', async () => {
      const spots = [
        { id: id(5), priority: 1 },
        { id: id(2), priority: 3 },
        { id: id(1), priority: 5 },
        { id: id(4), priority: 5 },
      ]
      await db.put(...spots.map((spot) => newRow(spot)))
      const of = { queues: ['default'], names: ['resize'] }
      const ids = async (request: Parameters<typeof claim>[0]) =>
        (await claim({ ...of, ...request })).map((task) => task.id).sort()
      expect(await ids({ limit: 2 })).toEqual([id(2), id(5)])
      expect(await ids({ limit: 1, after: { priority: 3, id: id(2) } })).toEqual([id(1)])
      expect(await ids({ limit: 9, after: { priority: 5, id: id(1) } })).toEqual([id(4)])
    })

    test('by priority, then by age, over all queues and names, within its limit', async () => {
      const spots = [
        { id: id(1), priority: 5, queue: 'b', name: 'y' },
        { id: id(2), priority: 0, queue: 'a', name: 'y' },
        { id: id(3), priority: 0, queue: 'b', name: 'x' },
        { id: id(4), priority: -1, queue: 'a', name: 'x' },
        { id: id(5), priority: -1, queue: 'b', name: 'y' },
        { id: id(6), priority: -9, queue: 'c', name: 'x' },
        { id: id(7), priority: -9, queue: 'a', name: 'z' },
      ]
      await insert(...spots.map((spot) => newTask(spot)))
      const mine = { queues: ['a', 'b'], names: ['x', 'y'] }
      expect(await claimedIds({ ...mine, limit: 2 })).toEqual([id(4), id(5)])
      expect(await claimedIds({ ...mine, limit: 1 })).toEqual([id(2)])
      expect(await claimedIds({ ...mine, limit: 9 })).toEqual([id(1), id(3)])
      expect(await claimedIds({ ...mine, limit: 9 })).toEqual([])
    })

    test('the same from very many queues and names at once', async () => {
      const queues = Array.from({ length: 20 }, (_, i) => `q${i}`)
      const names = Array.from({ length: 30 }, (_, i) => `n${i}`)
      const pairs = queues.flatMap((queue) => names.map((name) => ({ queue, name })))
      await insert(...pairs.map((pair, i) => newTask({ ...pair, id: id(i), priority: 600 - i })))
      expect(await claimedIds({ queues, names, limit: 3 })).toEqual([597, 598, 599].map(id))
      expect(await claimedIds({ queues, names, limit: 1_000 })).toHaveLength(597)
    })

    test('only with time left: the total always, the queue before the first start', async () => {
      await db.put(
        newRow({ id: id(1), timeout: 1_000 }),
        newRow({ id: id(2), timeout: 1_001 }),
        newRow({ id: id(3), queueTimeout: 1_000 }),
        newRow({ id: id(4), queueTimeout: 1_001 }),
        { ...newRow({ id: id(5), queueTimeout: 1_000 }), attempt: 1 },
      )
      expect(await claimedIds({ now: 1_000 })).toEqual([2, 4, 5].map(id))
      expect(await db.get(id(1))).toEqual(newRow({ id: id(1), timeout: 1_000 }))
    })

    test('nothing that is not ready, and nothing when nothing is asked for', async () => {
      await db.put(newRow({ id: id(1), delayMs: 1 }), { ...newRow({ id: id(2) }), ready: 0, parked: 'x' })
      await db.put(newRow({ id: id(3) }))
      expect(await claimedIds({ queues: ['others'] })).toEqual([])
      expect(await claimedIds({ names: ['others'] })).toEqual([])
      expect(await claimedIds({ limit: 0 })).toEqual([])
      expect(await claimedIds({ now: 10 ** 12 })).toEqual([id(3)])
    })
  })

  /** Running, with this token, in many shapes. */
  const runningRows = (list: RowOptions[]) =>
    numbered(list).map((one) => {
      const claimed = claimedRow(newRow({ ...one, now: 1_000 }), { now: 1_500, nodeId: 'n_1', token: 'a_1' })
      return { ...claimed, losses: 2, warned: 5, progress: '{"fraction":0.1}', details: '"before"' }
    })

  describe('completeTasks', () => {
    test('writes the row that the pure function decides', async () => {
      await fc.assert(
        fc.asyncProperty(manyOptions, async (list) => {
          await db.clear()
          const rows = runningRows(list)
          await db.put(...rows)
          const reports = rows.map((row, i) => ({ id: row.id, token: 'a_1', output: `"größe ${i}"` }))
          expect(await db.run(db.statements.hot.completeTasks(2_000, reports))).toEqual([])
          const decided = rows.map((row, i) => {
            const input: TaskInput = { type: 'completed', token: 'a_1', output: `"größe ${i}"` }
            return decideTask(row, input, 2_000, 0.5).draft.row
          })
          expect(await db.all()).toEqual(decided)
        }),
        { numRuns: 10 },
      )
    })

    test('changes nothing of another attempt, of one that was stopped, or of one that ended', async () => {
      const running = runningRows([{}, {}, {}, {}])
      const rows = [
        running[0],
        { ...running[1], status: 'timed_out', stopping: 1 },
        { ...running[2], status: 'completed', live: 0, output: '"first"' },
        { ...running[3], status: 'pending', stopping: 1 },
      ] as TaskRow[]
      await db.put(...rows)
      const reports = [
        { id: id(0), token: 'a_0', output: '1' },
        ...[1, 2, 3].map((n) => ({ id: id(n), token: 'a_1', output: '1' })),
        { id: id(99), token: 'a_1', output: '1' },
      ]
      const missed = await db.run(db.statements.hot.completeTasks(2_000, reports))
      expect(missed.map((row) => row.id).sort()).toEqual([0, 1, 2, 3, 99].map(id))
      expect(await db.all()).toEqual(rows)
    })

    test('of a mixed batch answers only those it did not change', async () => {
      await db.put(...runningRows([{}, {}]))
      const reports = [
        { id: id(0), token: 'a_0', output: '1' },
        { id: id(1), token: 'a_1', output: '2' },
      ]
      const missed = await db.run(db.statements.hot.completeTasks(2_000, reports))
      expect(missed.map((row) => ({ ...row }))).toEqual([{ id: id(0) }])
      expect((await db.all()).map(({ status }) => status)).toEqual(['running', 'completed'])
    })
  })

  describe('beatTasks', () => {
    const beats = fc.record({
      progress: fc.option(fc.constant({ completed: 3 }), { nil: null }),
      details: fc.option(fc.constant('"after"'), { nil: null }),
      moved: fc.boolean(),
    })

    test('writes the row that the pure function decides, and leaves the indexed moment where it is', async () => {
      await fc.assert(
        fc.asyncProperty(manyOptions, beats, async (list, { progress, details, moved }) => {
          await db.clear()
          const rows = runningRows(list)
          await db.put(...rows)
          const text = progress && JSON.stringify(progress)
          const sent = rows.map((row) => ({
            ...{
              id: row.id,
              token: 'a_1',
              progress: text,
              details,
              moved: moved ? (1 as const) : (0 as const),
            },
          }))
          expect(await db.run(db.statements.hot.beatTasks(1_700, sent))).toEqual([])
          const input: TaskInput = { type: 'beat', token: 'a_1', progress, details, moved }
          const decided = rows.map((row) => ({
            ...decideTask(row, input, 1_700, 0.5).draft.row,
            dueAt: row.dueAt,
          }))
          expect(await db.all()).toEqual(decided)
        }),
        { numRuns: 10 },
      )
    })

    test('changes nothing of another attempt or of one that was stopped', async () => {
      const [one, two] = runningRows([{ heartbeatTimeout: 10 }, { heartbeatTimeout: 10 }]) as [
        TaskRow,
        TaskRow,
      ]
      const rows: TaskRow[] = [one, { ...two, status: 'cancelled', stopping: 1 }]
      await db.put(...rows)
      const beat = { progress: '{}', details: '1', moved: 1 as const }
      const sent = [
        { ...beat, id: id(0), token: 'a_0' },
        { ...beat, id: id(1), token: 'a_1' },
      ]
      const missed = await db.run(db.statements.hot.beatTasks(1_700, sent))
      expect(missed.map((row) => row.id)).toEqual(sent.map((one) => one.id))
      expect(await db.all()).toEqual(rows)
    })
  })

  describe('dueTasks', () => {
    const dueAt = (n: number, at: number | null, nodeId = 'n_1') => ({
      ...newRow({ id: id(n), nodeId }),
      dueAt: at,
    })
    const fire = async (now: number, peers: string[] = [], count = 500) =>
      (await db.run(db.statements.hot.dueTasks(now, peers, 3_000, count))).map((row) => row.id)

    test('the longest overdue first, whole rows, within its limit, and nothing early', async () => {
      await db.put(dueAt(1, 500), dueAt(2, 300), dueAt(3, null), dueAt(4, 400), dueAt(5, 501))
      expect(await fire(500)).toEqual([2, 4, 1].map(id))
      expect(await fire(500, [], 2)).toEqual([2, 4].map(id))
      expect(await fire(299)).toEqual([])
      const [row] = await db.run(db.statements.hot.dueTasks(300, [], 0, 1))
      expect({ ...row }).toEqual(dueAt(2, 300))
    })

    test("a living peer's are left alone until they are overdue", async () => {
      await db.put(dueAt(1, 1_000, 'n_1'), dueAt(2, 1_000, 'n_2'), dueAt(3, 900, 'n_3'))
      // Over a SQLite file there are no peers: the lock of the file is proof that no other process lives.
      const left = kind === 'PostgreSQL' ? [3, 1] : [3, 1, 2]
      expect((await fire(2_000, ['n_2'])).sort()).toEqual(left.map(id).sort())
      expect((await fire(3_999, ['n_2'])).includes(id(2))).toBe(kind !== 'PostgreSQL')
      expect(await fire(4_000, ['n_2'])).toContain(id(2))
    })
  })

  describe('a transaction', () => {
    test('leaves nothing behind when the work throws, and the caller meets that error', async () => {
      const failure = new CurfewError('key_conflict', 'another input')
      const work = db.store.write(null, function* () {
        yield* runAll(db.statements.hot.insertTasks([newTask({ id: id(1) })]))
        const seen = yield* run(db.statements.readTasks([id(1)]))
        expect(seen).toHaveLength(1)
        throw failure
      })
      await expect(work).rejects.toBe(failure)
      expect(await db.all()).toEqual([])
    })

    test('that the database refuses says so with a code, and the next one goes through', async () => {
      const refused = db.sql('insert into {s}no_such_table values (1)')
      await expect(refused).rejects.toBeInstanceOf(StoreError)
      await expect(refused).rejects.toMatchObject({ code: 'store_refused' })
      await expect(db.store.read(() => run({ sql: 'select nonsense', params: [] }))).rejects.toMatchObject({
        code: 'store_refused',
      })
      await insert(newTask({ id: id(1) }))
      expect(await db.all()).toHaveLength(1)
    })

    test('an error of a reader comes out as it is', async () => {
      const failure = new CurfewError('not_found', 'no such task')
      await expect(
        db.store.read(function* () {
          yield* run(db.statements.queues())
          throw failure
        }),
      ).rejects.toBe(failure)
    })

    test('answers with what the work returns', async () => {
      expect(await db.store.write(null, () => run(db.statements.queues()))).toEqual([])
      expect(await db.store.read(() => run(db.statements.addQueue('read may write')))).toEqual([])
    })

    test('the clock is in milliseconds and moves on', async () => {
      const [one, two] = [await db.store.readClock(), await db.store.readClock()]
      expect(Number.isInteger(one)).toBe(true)
      expect(two).toBeGreaterThanOrEqual(one)
      expect(Math.abs(one - Date.now())).toBeLessThan(60_000)
    })
  })
})

function byId(a: { id?: string }, b: { id?: string }): number {
  return (a.id ?? '') < (b.id ?? '') ? -1 : 1
}

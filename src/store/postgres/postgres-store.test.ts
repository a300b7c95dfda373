import type pg from 'pg'
import { afterAll, beforeAll, beforeEach, describe, expect, inject, test } from 'vitest'
import { createDatabase } from '../../../scripts/postgres/database.ts'
import { SystemClock } from '../../core/system-clock.ts'
import { claimedRow, newRow, newTask } from '../../engine/fixtures/task-rows.ts'
import { TaskBatch } from '../../engine/task-batch.ts'
import { heartbeatStatement } from '../../leadership/heartbeat.ts'
import { NodeStatements } from '../../leadership/node-statements.ts'
import { SharedDatabase } from '../fixtures/shared-database.ts'
import type { TestStore } from '../fixtures/stores.ts'
import { SILENT } from '../fixtures/stores.ts'
import type { ClaimRequest } from '../hot-statements.ts'
import type { Statement } from '../statement.ts'
import { run, runAll } from '../statement.ts'
import { postgresError } from './postgres-error.ts'
import { claimMany } from './postgres-hot.ts'
import type { LightStatements } from './postgres-light.ts'
import { makeReady } from './postgres-light.ts'
import { PostgresStore } from './postgres-store.ts'

const NODES = new NodeStatements('postgres')
const id = (n: number) => `t_${String(n).padStart(6, '0')}`

let shared: SharedDatabase
let db: TestStore
let other: pg.Client
beforeAll(async () => {
  shared = await SharedDatabase.open(() => createDatabase(inject('postgresUrl')))
  ;({ db, other } = shared)
})
afterAll(() => shared[Symbol.asyncDispose]())
beforeEach(() => db.clear())

const send = ({ sql, params }: Statement) => other.query(sql, params as unknown[])

async function signIn(nodeId = 'n_1'): Promise<{ nodeId: string; epoch: number }> {
  const [row] = await db.run(NODES.signIn({ id: nodeId, host: 'h', pid: 1, now: 1_000, leadUntil: 4_000 }))
  return { nodeId, epoch: row?.epoch ?? 0 }
}

describe('the fence', () => {
  const insert = () => runAll(db.statements.hot.insertTasks([newTask()]))

  test('lets through who holds the present epoch, and refuses everybody else', async () => {
    const fence = await signIn()
    await db.store.write(fence, insert)
    expect(await db.all()).toHaveLength(1)
    for (const wrong of [
      { ...fence, epoch: 2 },
      { ...fence, epoch: 0 },
      { nodeId: 'n_2', epoch: 1 },
    ]) {
      await expect(db.store.write(wrong, insert)).rejects.toMatchObject({ code: 'not_leading' })
    }
    expect(await db.all()).toHaveLength(1)
  })

  test('refuses a process whose epoch was raised, and one that was declared gone', async () => {
    const deposed = await signIn('n_1')
    const gone = await signIn('n_2')
    await send(NODES.depose({ id: 'n_1', epoch: 1, renewedAt: 1_000, leadUntil: 4_000, goneAt: null }))
    // By hand, without its epoch: either alone is enough.
    await other.query(`update curfew.nodes set gone_at = 5 where id = 'n_2'`)
    await expect(db.store.write(deposed, insert)).rejects.toMatchObject({ code: 'not_leading' })
    await expect(db.store.write(gone, insert)).rejects.toMatchObject({ code: 'not_leading' })
    expect(await db.all()).toEqual([])
    await db.store.write(await signIn('n_1'), insert)
    expect(await db.all()).toHaveLength(1)
  })

  test('raising an epoch waits for a transaction in flight, a renewal does not', async () => {
    const fence = await signIn()
    const finished: string[] = []
    // It stands still in the middle of its transaction until this lock is let go.
    await other.query('select pg_advisory_lock(1)')
    const inFlight = db.store
      .write(fence, function* () {
        yield* run({ sql: 'select pg_advisory_xact_lock(1)', params: [] })
        yield* insert()
      })
      .then(() => finished.push('transaction'))
    await shared.untilWaiting('advisory')
    const renewal = {
      nodeId: 'n_1',
      epoch: 1,
      lead: true,
      queues: [],
      names: [],
      agents: [],
      virtualNow: 7_000,
    }
    const renewed = await send(heartbeatStatement(renewal))
    expect(renewed.rows[0]).toMatchObject({ renewed: 1 })
    const raised = db.run(NODES.setGone('n_1', 9_000)).then(() => finished.push('epoch'))
    await shared.untilWaiting('transactionid')
    expect(finished).toEqual([])
    await other.query('select pg_advisory_unlock(1)')
    await Promise.all([inFlight, raised])
    // Over two connections: which is heard of first says nothing.
    expect(finished.toSorted()).toEqual(['epoch', 'transaction'])
    expect(await db.all()).toHaveLength(1)
    await expect(db.store.write(fence, insert)).rejects.toMatchObject({ code: 'not_leading' })
  })
})

describe('several processes at once', () => {
  let stores: PostgresStore[]
  beforeAll(async () => {
    stores = await Promise.all(
      Array.from({ length: 4 }, (_, i) =>
        PostgresStore.open(db.location, new SystemClock(), SILENT, `n_of_${i}`),
      ),
    )
  })
  afterAll(() => Promise.all(stores.map((store) => store.close())))

  test('never claim the same task twice, and leave none', async () => {
    const tasks = Array.from({ length: 400 }, (_, n) => newTask({ id: id(n), priority: n % 3 }))
    await db.run(...db.statements.hot.insertTasks(tasks))
    const claimers = [...stores, ...stores].map(async (store, i) => {
      const mine: string[] = []
      for (let round = 0, empty = 0; empty < 3; round++) {
        const request = {
          now: 1_000,
          nodeId: `n_${i}`,
          token: `a_${i}_${round}`,
          queues: ['default'],
          names: ['resize'],
        }
        const claimed = await store.write(null, () =>
          store.statements.hot.claimTasks({ ...request, limit: 7 }),
        )
        expect(claimed.length).toBeLessThanOrEqual(7)
        mine.push(...claimed.map((task) => task.id))
        empty = claimed.length === 0 ? empty + 1 : 0
      }
      return mine
    })
    const claimed = (await Promise.all(claimers)).flat()
    expect(claimed.toSorted()).toEqual(tasks.map((task) => task.id))
    expect((await db.all()).every(({ attempt, seq }) => attempt === 1 && seq === 2)).toBe(true)
  })

  test('keep the limit of a queue together', async () => {
    for (const i of [0, 1, 2, 3]) await signIn(`n_${i}`)
    await db.run(db.statements.setQueue('default', 5))
    await db.run(
      ...db.statements.hot.insertTasks(Array.from({ length: 50 }, (_, n) => newTask({ id: id(n) }))),
    )
    const batches = await Promise.all(
      stores.map((store, i) =>
        store.write(null, () => {
          const context = {
            statements: store.statements,
            nodeId: `n_${i}`,
            peers: () => [],
            endedClaims: [],
            overdueMs: 0,
            chance: () => 0,
            claimed: () => undefined,
            takenBack: () => undefined,
            recall: () => undefined,
          }
          const wish = {
            token: `a_${i}`,
            names: ['resize'],
            queues: [],
            limitedQueues: ['default'],
            slots: 3,
            after: null,
            floors: [],
            look: true,
            turns: null,
          }
          return new TaskBatch(context, 1_000, wish).apply([])
        }),
      ),
    )
    const claimed = batches.flatMap(({ committed }) => committed.claimed)
    expect(claimed).toHaveLength(5)
    expect(await db.sql(`select count(*) as count from curfew.tasks where live = 1`)).toEqual([{ count: 5 }])
  })

  test('fire each deadline once, however many of them look at once', async () => {
    await db.put(...Array.from({ length: 200 }, (_, n) => newRow({ id: id(n), timeout: 1_000 })))
    const batches = await Promise.all(
      stores.map((store) =>
        store.write(null, () => {
          const context = {
            statements: store.statements,
            nodeId: 'n_1',
            peers: () => [],
            endedClaims: [],
            overdueMs: 0,
            chance: () => 0,
            claimed: () => undefined,
            takenBack: () => undefined,
            recall: () => undefined,
          }
          return new TaskBatch(context, 2_000, null).apply([{ type: 'fire' }])
        }),
      ),
    )
    const fired = batches.flatMap(({ committed }) => committed.recorded.map(({ row }) => row.id))
    expect(fired.toSorted()).toEqual(Array.from({ length: 200 }, (_, n) => id(n)))
    expect((await db.all()).every(({ status, seq }) => status === 'timed_out' && seq === 2)).toBe(true)
  })

  test('a task that another one has locked is passed over, not waited for', async () => {
    await db.put(newRow({ id: id(1) }), newRow({ id: id(2) }), { ...newRow({ id: id(3) }), dueAt: 1 })
    await other.query('begin')
    try {
      await other.query('select 1 from curfew.tasks where id = any($1) for update', [[id(1), id(3)]])
      const request = {
        now: 1_000,
        nodeId: 'n_1',
        token: 'a_1',
        queues: ['default'],
        names: ['resize'],
        limit: 1,
      }
      const claimed = await db.work(db.statements.hot.claimTasks(request))
      expect(claimed.map((task) => task.id)).toEqual([id(2)])
      expect(await db.run(db.statements.hot.dueTasks(1_000, [], 0, 9))).toEqual([])
    } finally {
      await other.query('rollback')
    }
  })
})

describe('what is read', () => {
  const count: Statement = { sql: 'select count(*)::int4 as n from curfew.tasks', params: [] }
  /** Comes back when somebody else lets go of the lock. */
  const wait: Statement = {
    sql: 'select pg_advisory_lock_shared(42), pg_advisory_unlock_shared(42)',
    params: [],
  }

  const countsAround = async (taskId: string, options: { atOnce?: boolean }): Promise<unknown[]> => {
    await other.query('select pg_advisory_lock(42)')
    const reading = db.store.read(function* () {
      const before = yield* run(count)
      yield* run(wait)
      return [before, yield* run(count)]
    }, options)
    // It has counted once and waits.
    const waits = `select 1 from pg_locks where locktype = 'advisory' and not granted`
    while ((await other.query(waits)).rowCount === 0);
    for (const statement of db.statements.hot.insertTasks([newTask({ id: taskId })])) await send(statement)
    await other.query('select pg_advisory_unlock(42)')
    return (await reading).map((rows) => (rows as { n: number }[])[0]?.n)
  }

  test('at once is of one moment, whatever is written meanwhile', async () => {
    expect(await countsAround(id(1), { atOnce: true })).toEqual([0, 0])
    expect(await countsAround(id(2), {})).toEqual([1, 2])
  })

  test('at once leaves its connection as it was, also when it fails', async () => {
    const broken: Statement = { sql: 'select 1 / 0', params: [] }
    for (let i = 0; i < 20; i++)
      await expect(db.store.read(() => run(broken), { atOnce: true })).rejects.toThrow(/zero/)
    expect(await db.store.read(() => run(count), { atOnce: true })).toEqual([{ n: 0 }])
    const open = `select 1 from pg_stat_activity where state like 'idle in transaction%' and datname = current_database()`
    expect((await other.query(open)).rowCount).toBe(0)
  })
})

describe('plans', () => {
  const claim = {
    now: 1_000,
    nodeId: 'n_1',
    token: 'a_1',
    queues: ['default', 'q'],
    names: ['resize', 'x'],
    limit: 100,
  }
  const plan = async ({ sql, params }: Statement): Promise<string> =>
    JSON.stringify(await db.run({ sql: `explain (format json) ${sql}`, params } as Statement))

  /** What a claim asks: at first, or when that much waits. */
  const claimOf = (request: ClaimRequest, waiting?: { others: boolean; light: boolean }): Statement => {
    const work = db.statements.hot.claimTasks(request)
    const first = work.next().value
    return (waiting ? work.next([{ waiting }]).value : first) as Statement
  }

  /** The plans of everything that is asked all the time. */
  async function check(): Promise<void> {
    const claimPlan = await plan(claimMany({ ...claim, counted: true }))
    expect(claimPlan).toContain('"Index Name":"tasks_claim"')
    expect(claimPlan).not.toMatch(/Seq Scan|Hash Join|Merge Join|"tasks_pkey"/)
    const bothPlan = await plan(claimOf(claim))
    expect(bothPlan).toMatch(/"Index Name":"tasks_claim".*"Index Name":"light_ready_claim"/)
    expect(bothPlan).not.toMatch(/Seq Scan|Hash Join|Merge Join/)
    // It begins behind that place too, and where there is none at the front.
    expect(bothPlan).toMatch(
      /"light_ready_claim"[^}]*"Index Cond":"[^"]*ROW\(r?_?1?\.?priority[^"]*priority <[^"]*below/,
    )
    const after = { priority: 1, id: id(1) }
    const one = { ...claim, queues: ['default'], names: ['resize'], after }
    const nextPlan = await plan(claimOf(one, { others: true, light: false }))
    // It begins behind that place and sorts nothing.
    expect(nextPlan).toMatch(/"Index Name":"tasks_claim".*"Index Cond":"[^"]*ROW\(t?_?1?\.?priority/)
    expect(nextPlan).not.toMatch(/Seq Scan|"Sort"|"tasks_pkey"/)
    const lightPlan = await plan(claimOf(one))
    expect(lightPlan).toMatch(
      /"Index Name":"light_ready_claim".*"Index Cond":"[^"]*ROW\(r?_?1?\.?priority.*"Tid Scan"/,
    )
    expect(lightPlan).not.toMatch(/Seq Scan|"Sort"/)
    const duePlan = await plan(db.statements.hot.dueTasks(1_000, ['n_2'], 3_000, 500))
    expect(duePlan).toContain('"Index Name":"tasks_due"')
    expect(duePlan).not.toMatch(/Seq Scan|"Sort"/)
    const light = db.statements.light as LightStatements
    const many = Array.from({ length: 500 }, (_, n) => ({ id: id(n), token: 'a' }))
    const reports = [
      db.statements.hot.completeTasks(
        1,
        many.map((one) => ({ ...one, output: '1' })),
      ),
      db.statements.hot.beatTasks(
        1,
        many.map((one) => ({ ...one, progress: null, details: null, moved: 0 })),
      ),
      light.complete(
        1,
        'n_1',
        many.map((one) => ({ ...one, output: '1', startedAt: 1 })),
      ),
      light.writeOutClaimed(
        'n_1',
        many.map((one) => ({ ...one, startedAt: 1 })),
      ),
      ...light.writeOut(many.map((one) => one.id)),
      makeReady({ ...claim, queues: ['default'] }),
    ]
    for (const statement of reports) {
      // There are a few claims at a time.
      const reportPlan = (await plan(statement)).replace(/"Seq Scan"[^{}]*"light_claims"/, '')
      expect(reportPlan).toContain('"Index Name":"tasks_pkey"')
      expect(reportPlan).not.toMatch(/Seq Scan|Hash Join|Merge Join/)
    }
    expect(await plan(db.statements.liveTasks('n_1', 9))).toContain('"Index Name":"tasks_live"')
  }

  const fill = async (from: number, to: number) => {
    const columns = Object.keys(newTask()).map((field) =>
      field.replace(/[A-Z]/g, (c) => `_${c.toLowerCase()}`),
    )
    const values = columns.map((column) =>
      column === 'id' ? `'t_' || lpad(n::text, 6, '0')` : `m.${column}`,
    )
    await db.sql(`insert into {s}tasks (${columns.join(', ')})
      select ${values.join(', ')} from generate_series(${from}, ${to}) n, {s}tasks m where m.id = 'model'`)
  }

  test('with 100,000 waiting rows go by the index made for them, whatever the statistics say', async () => {
    await db.put({ ...newRow({ id: 'model', timeout: 900_000_000 }), dueAt: 900_000_000 })
    await fill(1, 1_000)
    // Few rows are read faster one after the other, and the statistics outlive that.
    await other.query('analyze curfew.tasks')
    await check()
    await fill(1_001, 100_000)
    await check()
    // Nothing runs: the planner now expects one running row.
    await other.query('analyze curfew.tasks')
    await check()
    await db.put(claimedRow(newRow({ id: 'running' }), { now: 1, nodeId: 'n_1', token: 'a' }))
    await other.query('analyze curfew.tasks')
    await check()
  })
})

describe('errors', () => {
  test.each([
    ['40001', 'store_conflict'],
    ['40P01', 'store_conflict'],
    ['53100', 'store_full'],
    ['53300', 'store_unavailable'],
    ['57P01', 'store_unavailable'],
    ['57P03', 'store_unavailable'],
    ['08006', 'store_unavailable'],
    ['25006', 'store_unavailable'],
    ['25P03', 'store_unavailable'],
    ['ECONNREFUSED', 'store_unavailable'],
    ['ECONNRESET', 'store_unavailable'],
    ['58030', 'store_failed'],
    ['XX001', 'store_failed'],
    ['23505', 'store_refused'],
    ['42601', 'store_refused'],
  ])('%s is %s', (code, expected) => {
    const cause = Object.assign(new Error('text that means nothing'), { code })
    expect(postgresError(cause)).toMatchObject({ code: expected, cause })
  })

  test('a server that is not there cannot be reached, and says so', async () => {
    const url = new URL(db.location)
    url.port = '1'
    await expect(PostgresStore.open(url.href, new SystemClock(), SILENT, 'n_1')).rejects.toMatchObject({
      code: 'store_unavailable',
    })
  })

  test('a server that takes no writes any more is not available: what refuses the first statement is told', async () => {
    const store = await PostgresStore.open(db.location, new SystemClock(), SILENT, 'n_of_standby')
    const setReadOnly = { sql: 'set session characteristics as transaction read only', params: [] }
    const codes: string[] = []
    // Whether two answers are read in one go is chance.
    for (let n = 0; n < 10; n++) {
      await store.write(null, () => run(setReadOnly))
      const work = store.write(null, () => runAll(store.statements.hot.insertTasks([newTask()])))
      await work.catch(({ code }) => codes.push(code))
    }
    await store.close()
    expect(codes).toEqual(Array(10).fill('store_unavailable'))
  })
})

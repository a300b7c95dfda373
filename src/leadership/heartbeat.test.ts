// The one statement a second, on a real PostgreSQL.
import { afterAll, beforeAll, beforeEach, describe, expect, inject, test } from 'vitest'
import { createDatabase } from '../../scripts/postgres/database.ts'
import { claimedRow, newRow } from '../engine/fixtures/task-rows.ts'
import { TestStore } from '../store/fixtures/stores.ts'
import { run } from '../store/statement.ts'
import type { TaskRow } from '../store/task-row.ts'
import type { HeartbeatRequest, HeartbeatRow } from './heartbeat.ts'
import { heartbeatStatement } from './heartbeat.ts'
import { LEADERSHIP_MS } from './lease-times.ts'
import { NodeStatements } from './node-statements.ts'

const NODES = new NodeStatements('postgres')
const NOW = 1_000_000

let db: TestStore
beforeAll(async () => {
  db = await TestStore.open('PostgreSQL', () => createDatabase(inject('postgresUrl')))
})
afterAll(() => db[Symbol.asyncDispose]())
beforeEach(async () => {
  await db.clear()
  await db.sql(`delete from curfew.meta where key = 'clock_correction'`)
  for (const id of ['n_1', 'n_2']) {
    await db.run(NODES.signIn({ id, host: 'h', pid: 1, now: NOW - 500, leadUntil: NOW }))
  }
})

const REQUEST: HeartbeatRequest = {
  ...{ nodeId: 'n_1', epoch: 1, lead: true, queues: [], names: [], agents: [], virtualNow: NOW },
}

async function beat(request: Partial<HeartbeatRequest> = {}): Promise<HeartbeatRow> {
  const [row] = await db.run(heartbeatStatement({ ...REQUEST, ...request }))
  if (!row) throw new Error('no answer')
  return row
}

const node = async (id: string) => (await db.run(NODES.list())).find((one) => one.id === id)

/** The same, of another process or due at another moment. */
const due = (id: string, nodeId: string, dueAt: number): TaskRow => ({ ...newRow({ id, nodeId }), dueAt })

describe('a renewal', () => {
  test('moves both leases, of this process alone', async () => {
    expect(await beat()).toMatchObject({ renewed: 1, raw: NOW, correction: 0 })
    expect(await node('n_1')).toMatchObject({ renewedAt: NOW, leadUntil: NOW + LEADERSHIP_MS, epoch: 1 })
    expect(await node('n_2')).toMatchObject({ renewedAt: NOW - 500, leadUntil: NOW })
  })

  test('leaves the leadership alone while the main loop does not tick', async () => {
    expect(await beat({ lead: false })).toMatchObject({ renewed: 1 })
    expect(await node('n_1')).toMatchObject({ renewedAt: NOW, leadUntil: NOW })
  })

  test('of a process whose epoch was raised, or that is gone, changes nothing and says so', async () => {
    expect(await beat({ epoch: 2 })).toMatchObject({ renewed: 0 })
    await db.run(NODES.setGone('n_1', NOW))
    expect(await beat({ epoch: 2 })).toMatchObject({ renewed: 0 })
    expect(await node('n_1')).toMatchObject({ renewedAt: NOW - 500, leadUntil: 0 })
  })

  test("goes by the database's clock and its correction when there is no other", async () => {
    const before = Date.now()
    await db.run(NODES.raiseMeta('clock_correction', 3_600_000))
    const { raw, correction } = await beat({ virtualNow: null })
    expect(correction).toBe(3_600_000)
    expect(Math.abs(raw - before)).toBeLessThan(60_000)
    expect((await node('n_1'))?.renewedAt).toBe(raw + correction)
  })

  test('tells the highest time that was ever written', async () => {
    await db.run(NODES.signIn({ id: 'n_3', host: 'h', pid: 1, now: NOW + 9_000, leadUntil: NOW }))
    expect(await beat()).toMatchObject({ mark: NOW + 9_000 })
  })
})

/** How many rows of tasks it looked at, as the thread sends it: outside of a transaction. */
async function looksAt(request: Partial<HeartbeatRequest>): Promise<number> {
  const { sql, params } = heartbeatStatement({ ...REQUEST, ...request })
  const [answer] = await db.store.read(() =>
    run<{ 'QUERY PLAN': [{ Plan: PlanNode }] }>({ sql: `explain (analyze, format json) ${sql}`, params }),
  )
  const rowsOf = (node: PlanNode): number => {
    const own = node['Relation Name'] === 'tasks' || node['Index Name']?.startsWith('tasks_')
    const passed = node['Actual Rows'] + (node['Rows Removed by Filter'] ?? 0)
    const below = (node.Plans ?? []).reduce((sum, one) => sum + rowsOf(one), 0)
    return below + (own ? passed * node['Actual Loops'] : 0)
  }
  return rowsOf((answer as { 'QUERY PLAN': [{ Plan: PlanNode }] })['QUERY PLAN'][0].Plan)
}

interface PlanNode {
  'Relation Name'?: string
  'Index Name'?: string
  'Actual Rows': number
  'Actual Loops': number
  'Rows Removed by Filter'?: number
  Plans?: PlanNode[]
}

describe('what it costs', () => {
  test('does not grow with what waits, whoever could do it', async () => {
    const row = newRow()
    const many = Array.from({ length: 5_000 }, (_, i) => i)
    await db.put(...many.map((i): TaskRow => ({ ...row, id: `t_${i}`, name: `work${i % 5}` })))
    const woken = { kind: 'agent', ready: 0, wokenAt: NOW } as const
    await db.put(...many.map((i): TaskRow => ({ ...row, ...woken, id: `g_${i}`, name: `agent${i % 5}` })))
    await db.sql('analyze curfew.tasks')
    const queues = ['default', 'images']
    for (const names of [['work1', 'mail'], ['mail']])
      expect(await looksAt({ queues, names })).toBeLessThan(50)
    // Without a free slot.
    expect(await looksAt({})).toBe(0)
    for (const named of [['agent1', 'research'], ['research']])
      expect(await looksAt({ agents: named })).toBeLessThan(50)
  })
})

describe('what it brings back', () => {
  test('is the next deadline that is ours, long overdue, or nobody’s', async () => {
    expect((await beat()).nextDue).toBeNull()
    await db.put(
      due('t_1', 'n_1', NOW + 2_000),
      due('t_2', 'n_2', NOW + 100),
      due('t_3', 'n_1', NOW + 60_000),
    )
    expect((await beat()).nextDue).toBe(NOW + 2_000)
    await db.put(due('t_4', 'n_9', NOW + 1_000))
    expect((await beat()).nextDue).toBe(NOW + 1_000)
    await db.put(due('t_5', 'n_2', NOW - LEADERSHIP_MS))
    expect((await beat()).nextDue).toBe(NOW - LEADERSHIP_MS)
  })

  test('includes the deadlines of a peer that is gone', async () => {
    await db.put(due('t_1', 'n_2', NOW + 100))
    expect((await beat()).nextDue).toBeNull()
    await db.run(NODES.setGone('n_2', NOW))
    expect((await beat()).nextDue).toBe(NOW + 100)
  })

  test('is whether work waits that this process can do', async () => {
    await db.put(newRow({ queue: 'images' }), newRow({ id: 't_2', delayMs: 5 }))
    expect(await beat({ queues: ['images'], names: ['resize'] })).toMatchObject({ ready: true })
    expect(await beat({ queues: ['default'], names: ['resize'] })).toMatchObject({ ready: false })
    expect(await beat({ queues: ['images'], names: ['mail'] })).toMatchObject({ ready: false })
    expect(await beat()).toMatchObject({ ready: false })
  })

  test('is whether an agent was woken whose turn this process could run', async () => {
    const agent = (id: string, more: Partial<TaskRow>): TaskRow => ({
      ...newRow({ id, name: 'research' }),
      kind: 'agent',
      ready: 0,
      ...more,
    })
    await db.put(agent('g_1', {}), agent('g_2', { wokenAt: NOW, parked: 'a reason' }))
    const agents = ['other', 'research']
    expect(await beat({ agents })).toMatchObject({ ready: false })
    await db.put(agent('g_3', { wokenAt: NOW - 1 }))
    expect(await beat({ agents })).toMatchObject({ ready: true })
    expect(await beat({ agents: ['other'] })).toMatchObject({ ready: false })
    expect(await beat({ queues: ['default', ''], names: agents })).toMatchObject({ ready: false })
    expect(await beat()).toMatchObject({ ready: false })
  })

  test('are the peers, the queues, and the attempts of this process that are to stop', async () => {
    const running = claimedRow(newRow({ grace: 7_000 }), { now: NOW, nodeId: 'n_1', token: 'a_1' })
    const stopping: TaskRow = { ...running, status: 'timed_out', timeoutKind: 'stuck', stopping: 1 }
    await db.put(stopping, { ...running, id: 't_2' }, { ...stopping, id: 't_3', nodeId: 'n_2' })
    await db.put({ ...stopping, id: 't_4', live: 0 })
    await db.run(db.statements.setQueue('images', 3))
    expect(await beat()).toMatchObject({
      peers: [{ id: 'n_2', epoch: 1, renewedAt: NOW - 500, leadUntil: NOW, goneAt: null }],
      stops: [{ taskId: 't_1', token: 'a_1', status: 'timed_out', timeoutKind: 'stuck', graceMs: 7_000 }],
      queueList: [{ name: 'images', concurrency: 3 }],
    })
    expect((await beat()).stops).toHaveLength(1)
  })
})

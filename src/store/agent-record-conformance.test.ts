// The conformance suite, fourth part: how the records of agents are found, locked and removed; the same on every store.
import pg from 'pg'
import { afterAll, beforeAll, beforeEach, describe, expect, inject, test } from 'vitest'
import { createDatabase } from '../../scripts/postgres/database.ts'
import { newRow } from '../engine/fixtures/task-rows.ts'
import { heartbeatStatement } from '../leadership/heartbeat.ts'
import { STORE_KINDS, TestStore } from './fixtures/stores.ts'
import type { Statement } from './statement.ts'
import { run } from './statement.ts'
import type { TaskRow } from './task-row.ts'
import { agentRow as asTaskRow, column } from './task-row.ts'

const ids = (rows: { id: string }[]) => rows.map((row) => row.id)
const SETTLED: Partial<TaskRow> = { status: 'completed', settledAt: 5, endedAt: 5 }

function agentRow(id: string, more: Partial<TaskRow> = {}): TaskRow {
  return { ...newRow({ id, name: 'research' }), kind: 'agent', ready: 0, ...more }
}

function below(parentId: string, rootId: string, step: number): Partial<TaskRow> {
  return { parentId, rootId, step }
}

describe.each(STORE_KINDS)('on %s', (kind) => {
  let db: TestStore
  beforeAll(async () => {
    db = await TestStore.open(kind, () => createDatabase(inject('postgresUrl')))
  })
  afterAll(() => db[Symbol.asyncDispose]())
  beforeEach(() => db.clear())

  const put = async (...rows: TaskRow[]) => {
    await db.put(...rows)
    const agents = rows.filter((row) => row.kind === 'agent')
    if (agents.length) await db.run(db.statements.agents.updateAgents(agents, true))
  }

  describe('deleteTasks', () => {
    /** Something of everything that belongs to it. */
    const addRecords = async (...owners: string[]) => {
      for (const agentId of owners) {
        await db.run(db.statements.agents.insertJournal([{ agentId, part: 0, no: 0, body: '[]' }]))
        await db.run(db.statements.agents.insertJournal([{ agentId, part: 1, no: 1, body: '[]' }]))
        await db.run(db.statements.agents.insertSignals([{ agentId, no: 3, name: 'go', value: '1' }]))
        await db.run(db.statements.insertEvents([{ rootId: agentId, seq: 2, at: 1, body: '[]' }]))
      }
    }
    const addEvents = (...owners: string[]) =>
      db.run(db.statements.insertEvents(owners.map((rootId) => ({ rootId, seq: 2, at: 1, body: '[]' }))))
    const remove = (...wanted: string[]) =>
      db.run(...(db.statements.deleteTasks(wanted) as Statement<never>[]))
    const owners = async (table: string, column: string) =>
      (
        await db.sql<{ id: string }>(`select distinct ${column} as id from {s}${table} order by ${column}`)
      ).map(({ id }) => id)

    /** An agent with a task, a child agent that has one of its own, and what it detached. */
    const family = (more: Record<string, Partial<TaskRow>> = {}): TaskRow[] => {
      const row = (made: TaskRow): TaskRow => ({ ...made, ...SETTLED, ...more[made.id] })
      return [
        row(agentRow('g_1')),
        row({ ...newRow({ id: 't_1' }), ...below('g_1', 'g_1', 0), resultSeq: 1 }),
        row({ ...agentRow('g_2'), ...below('g_1', 'g_1', 1), resultSeq: 2 }),
        row({ ...newRow({ id: 't_2' }), ...below('g_2', 'g_1', 0), resultSeq: 1 }),
        row({ ...newRow({ id: 't_3' }), ...below('g_1', 'g_1', 2), resultSeq: 3, detached: 1 }),
        row({ ...agentRow('g_3'), ...below('g_2', 'g_1', 1), resultSeq: 4, detached: 1 }),
        row({ ...newRow({ id: 't_4' }), ...below('g_3', 'g_1', 0), resultSeq: 1 }),
      ]
    }

    test('takes the queue of a map-reduce with its run, and no other', async () => {
      const queues = ['default', 'mapreduce:w_1', 'mapreduce:w_2', 'mapreduce:w_3']
      for (const name of queues) await db.run(db.statements.addQueue(name))
      await put(agentRow('w_1', SETTLED), agentRow('w_2', SETTLED), agentRow('w_3'), agentRow('g_1', SETTLED))
      await remove('w_1', 'w_3', 'g_1')
      expect(await owners('queues', 'name')).toEqual(['default', 'mapreduce:w_2', 'mapreduce:w_3'])
    })

    test('takes an agent with everything below it, journals, signals and events too, and nothing else', async () => {
      const stranger = [agentRow('g_9', SETTLED), { ...newRow({ id: 't_9' }), ...below('g_9', 'g_9', 0) }]
      await put(...family(), ...stranger)
      await addRecords('g_1', 'g_2', 'g_9')
      await addEvents('t_1', 't_2', 't_9')
      await remove('g_1')
      // What was detached has a retention of its own.
      expect(ids(await db.all())).toEqual(['g_3', 'g_9', 't_3', 't_4', 't_9'])
      expect(await owners('journal', 'agent_id')).toEqual(['g_9'])
      expect(await owners('signals', 'agent_id')).toEqual(['g_9'])
      expect(await owners('events', 'root_id')).toEqual(['g_9', 't_9'])
    })

    test('what was detached goes when its own retention is over, with everything below it', async () => {
      await put(...family())
      await addRecords('g_3')
      await addEvents('t_3', 't_4')
      await remove('t_3', 'g_3')
      expect(ids(await db.all())).toEqual(['g_1', 'g_2', 't_1', 't_2'])
      expect(await owners('journal', 'agent_id')).toEqual([])
      expect(await owners('events', 'root_id')).toEqual([])
    })

    test('and it goes when the agent that detached it is long gone', async () => {
      await put(...family())
      await remove('g_1')
      await remove('t_3', 'g_3')
      expect(await db.all()).toEqual([])
    })

    test('what was detached stays while its agent may have to be replayed', async () => {
      const running: Partial<TaskRow> = { status: 'running', settledAt: null, endedAt: null }
      await put(...family({ g_1: running, g_2: { ...running, resultSeq: null } }))
      await remove('t_3', 'g_3')
      expect(ids(await db.all())).toEqual(['g_1', 'g_2', 'g_3', 't_1', 't_2', 't_3', 't_4'])
    })

    test('one that has not settled stays with all that is below it', async () => {
      await put(...family({ g_1: { settledAt: null } }))
      await addRecords('g_1', 'g_2')
      await remove('g_1')
      expect(await db.all()).toHaveLength(7)
      expect(await owners('journal', 'agent_id')).toEqual(['g_1', 'g_2'])
      expect(await owners('events', 'root_id')).toEqual(['g_1', 'g_2'])
    })
  })

  describe('a long input', () => {
    const long = JSON.stringify({ text: 'x'.repeat(2_000) })
    const inRow = async (id: string) => (await db.get(id)).input
    const whole = async (id: string) =>
      (await db.run(db.statements.agents.input(id))).map(({ input }) => input)

    test('of an agent stands beside its row, which every step writes; that of a task, or a short one, in it', async () => {
      const short = JSON.stringify({ text: 'x' })
      await put(agentRow('g_1', { input: long }), agentRow('g_2', { input: short }))
      await put({ ...newRow({ id: 't_1', input: long }), ...below('g_1', 'g_1', 0) })
      expect([await inRow('g_1'), await inRow('g_2'), await inRow('t_1')]).toEqual(['', short, long])
      expect([await whole('g_1'), await whole('g_2')]).toEqual([[long], [short]])
    })

    test('comes with the turn that is claimed', async () => {
      await put(agentRow('g_1', { input: long, wokenAt: 5 }))
      const claim = { now: 10, nodeId: 'n_1', token: 'a_1', names: ['research'], limit: 5 }
      const claimed = await db.run(db.statements.agents.claimTurns({ ...claim, peers: [], patience: 0 }))
      expect(claimed.map(({ id, input, attempt }) => ({ id, input, attempt }))).toEqual([
        { id: 'g_1', input: long, attempt: 1 },
      ])
    })

    test('of a child comes with the journal of its parent, whether or not it has ended', async () => {
      const other = JSON.stringify({ text: 'y'.repeat(2_000) })
      await put(agentRow('g_1'), agentRow('g_2', { ...below('g_1', 'g_1', 0), input: long }))
      await put(agentRow('g_3', { ...below('g_1', 'g_1', 1), ...SETTLED, resultSeq: 1, input: other }))
      const { agents } = db.statements
      expect((await db.run(agents.unendedChildren('g_1', -1, 10))).map(({ input }) => input)).toEqual([long])
      expect((await db.run(agents.endedChildren('g_1', 0, 10))).map(({ input }) => input)).toEqual([other])
    })

    test('is compared with that of the same key; what the key keeps out leaves nothing behind', async () => {
      await put(agentRow('g_1', { input: long, key: 'k' }))
      const again = agentRow('g_2', { input: JSON.stringify({ text: 'z'.repeat(2_000) }), key: 'k' })
      expect(await db.run(...db.statements.hot.insertTasks([again]))).toEqual([])
      const found = await db.run(db.statements.tasksByKey('research', ['k']))
      expect(found.map(({ id, input }) => ({ id, input }))).toEqual([{ id: 'g_1', input: long }])
      expect(await db.sql('select agent_id from {s}journal')).toHaveLength(1)
    })
  })

  describe('leavesBelow', () => {
    const settled = (row: TaskRow): TaskRow => ({ ...row, ...SETTLED })
    const tree = [
      settled(agentRow('g_1')),
      settled({ ...newRow({ id: 't_1' }), ...below('g_1', 'g_1', 0) }),
      settled({ ...newRow({ id: 't_2' }), ...below('g_1', 'g_1', 1), detached: 1 }),
      settled({ ...agentRow('g_2'), ...below('g_1', 'g_1', 2) }),
      settled({ ...newRow({ id: 't_3' }), ...below('g_2', 'g_1', 0) }),
      // What it detached does not keep it.
      settled({ ...agentRow('g_3'), ...below('g_1', 'g_1', 3) }),
      settled({ ...newRow({ id: 't_4' }), ...below('g_3', 'g_1', 0), detached: 1 }),
      settled(agentRow('g_9')),
      settled({ ...newRow({ id: 't_9' }), ...below('g_9', 'g_9', 0) }),
    ]
    const leaves = async (agentIds: string[], limit = 9) =>
      ids(await db.run(db.statements.agents.leavesBelow(agentIds, limit))).sort()

    test('are what is over and has nothing below it, at any depth; an agent follows its own', async () => {
      await put(...tree)
      expect(await leaves(['g_1'])).toEqual(['g_3', 't_1', 't_3'])
      expect(await leaves(['g_1', 'g_9'])).toEqual(['g_3', 't_1', 't_3', 't_9'])
      expect(await leaves(['g_1'], 2)).toHaveLength(2)
      await db.run(...(db.statements.deleteTasks(['g_3', 't_1', 't_3']) as Statement<never>[]))
      expect(await leaves(['g_1'])).toEqual(['g_2'])
    })

    test('what has not settled, or still holds a slot, is none', async () => {
      const [, first, , , third] = tree as [TaskRow, TaskRow, TaskRow, TaskRow, TaskRow]
      await put(...tree.filter((row) => row !== first && row !== third))
      await put({ ...first, settledAt: null, status: 'running' }, { ...third, live: 1 })
      expect(await leaves(['g_1'])).toEqual(['g_3'])
    })
  })

  test('lockAgents reads all that a decision about an agent goes by, in the order of their ids', async () => {
    const one = agentRow('g_1', {
      queue: '',
      ...{ status: 'timed_out', live: 1, stopping: 1, attempt: 3, token: 'a_7', nodeId: 'n_7', losses: 1 },
      ...{ startedAt: 1, endedAt: 2, settledAt: 3, deadlineAt: 4, stopBoundAt: 5, dueAt: 6, wokenAt: 7 },
      ...{ seq: 9, startedSeq: 8, endedSeq: 9, results: 7, seen: 6, steps: 5, open: 4, waits: '{"since":1}' },
      ...{ parked: 'why', output: '"größe"', failure: '{}', timeoutKind: 'agent', receipt: 'aborted' },
      ...{ warned: 1, extendedMs: 3, ...below('g_8', 'g_9', 3), resultSeq: 2, detached: 1 },
    })
    const two = agentRow('g_2', { queue: '', input: '"not read"' })
    await put(two, one)
    const rows = await db.run(db.statements.agents.lockAgents(['g_2', 'g_7', 'g_1']))
    // What never belongs to an agent has the value it always has; its input is read apart.
    expect(rows.map((row) => asTaskRow(row))).toEqual([
      { ...one, input: '', graceMs: 0 },
      { ...two, input: '', graceMs: 0 },
    ])
    expect(await db.run(db.statements.agents.input('g_2'))).toMatchObject([{ input: '"not read"' }])
  })

  describe('plans', () => {
    const explain = kind === 'PostgreSQL' ? 'explain (format json)' : 'explain query plan'
    const explained = ({ sql, params }: Statement) => run({ sql: `${explain} ${sql}`, params })
    /** Of a transaction that decides. */
    const plan = async (statement: Statement) =>
      JSON.stringify(await db.store.write(null, () => explained(statement)))
    /** Of a reader, which on PostgreSQL goes by the statistics. */
    const readPlan = async (statement: Statement) =>
      JSON.stringify(await db.store.read(() => explained(statement)))
    const scans = /Seq Scan|Hash Join|Merge Join|SCAN (tasks|t|c|p|j|g)\b/
    /** The children of everybody, and not those of somebody. */
    const allChildren = /"Index Name":"tasks_children"(?![^{}]*"Index Cond")/

    const claim = {
      now: 10_000,
      nodeId: 'n_1',
      token: 'a_1',
      names: ['research', 'other'],
      limit: 50,
      peers: ['n_2'],
      patience: 9_000,
    }

    async function check(): Promise<void> {
      const { agents, hot } = db.statements
      expect(await plan(agents.claimTurns(claim))).toContain('tasks_woken')
      expect(await plan(agents.claimTurns(claim))).not.toMatch(scans)
      const children = [
        agents.openChildren('g_1'),
        agents.titledChildren('g_1', ['a', 'b']),
        agents.unseenChildren(['g_1', 'g_2']),
        agents.leavesBelow(['g_1', 'g_2'], 500),
        ...db.statements.deleteTasks(['g_1', 'g_2']),
      ]
      for (const statement of children) {
        expect(await plan(statement)).toContain('tasks_children')
        expect(await plan(statement)).not.toMatch(scans)
        expect(await plan(statement)).not.toMatch(allChildren)
      }
      const pages = [
        agents.endedChildren('g_1', 5, 1_000),
        agents.unendedChildren('g_1', 5, 1_000),
        agents.waitedFor('g_1', 100),
      ]
      for (const statement of pages) {
        expect(await readPlan(statement)).toContain('tasks_children')
        expect(await readPlan(statement)).not.toMatch(scans)
      }
      expect(await readPlan(agents.cancelledBelow('g_1', '', 100))).toContain('tasks_children')
      // On PostgreSQL it may well read a small table whole.
      if (kind !== 'PostgreSQL')
        expect(await readPlan(agents.cancelledBelow('g_1', '', 100))).not.toMatch(scans)
      const ends = Array.from({ length: 100 }, (_, i) => ({
        id: `t_${i}`,
        token: 'a',
        output: '1',
        resultSeq: i,
      }))
      if (kind === 'PostgreSQL') {
        expect(await plan(hot.completeBelow(1, ends))).toContain('tasks_pkey')
        expect(await plan(hot.completeBelow(1, ends))).not.toMatch(scans)
        const update = agents.updateAgents([agentRow('g_1'), agentRow('g_2')], true)
        expect(await plan(update)).toContain('tasks_pkey')
        expect(await plan(update)).not.toMatch(scans)
        const beat = { nodeId: 'n_1', epoch: 1, lead: true, queues: [], names: [], virtualNow: null }
        const heartbeat = await plan(heartbeatStatement({ ...beat, agents: ['research'] }))
        expect(heartbeat).toContain('tasks_woken')
      }
    }

    /** Many of these, as they are. */
    const multiply = async (model: TaskRow, from: number, to: number, more: Record<string, string>) => {
      await put(model)
      const columns = Object.keys(model).map(column)
      const values = columns.map((name) => more[name] ?? `m.${name}`)
      await db.sql(`insert into {s}tasks (${columns.join(', ')})
        select ${values.join(', ')} from generate_series(${from}, ${to}) n, {s}tasks m where m.id = '${model.id}'`)
    }

    test('go by the indexes made for them, whatever the statistics say', { timeout: 60_000 }, async () => {
      if (kind !== 'PostgreSQL') return check()
      // Agents that wait, each with ten children that ended, among many tasks that stand alone.
      await multiply(agentRow('g_model', { status: 'running' }), 1, 2_000, { id: `'g_' || n` })
      const child = {
        ...newRow({ id: 't_child' }),
        ...below('g_1', 'g_1', 1),
        ...SETTLED,
        ready: 0,
        resultSeq: 1,
      }
      const place = { parent_id: `'g_' || n / 10`, root_id: `'g_' || n / 10`, result_seq: 'n % 10 + 1' }
      await multiply(child as TaskRow, 1, 20_000, { ...place, id: `'t_c' || n` })
      await multiply({ ...newRow({ id: 't_alone' }), ...SETTLED, ready: 0 }, 1, 20_000, { id: `'t_' || n` })
      // Nothing is woken at most moments: the planner then expects no such row.
      await db.sql('analyze curfew.tasks')
      await check()
      await multiply(agentRow('g_woken', { wokenAt: 1_000 }), 1, 5_000, { id: `'g_w' || n` })
      await check()
      await db.sql('analyze curfew.tasks')
      await check()
    })

    test.runIf(kind === 'PostgreSQL')(
      'removing something does not look at what others scheduled',
      async () => {
        const child = { ...newRow({ id: 't_child' }), ...below('g_1', 'g_1', 1), ...SETTLED, ready: 0 }
        await multiply({ ...child, resultSeq: 1 } as TaskRow, 1, 5_000, { id: `'t_c' || n` })
        await multiply({ ...newRow({ id: 't_alone' }), ...SETTLED, ready: 0 }, 1, 20_000, { id: `'t_' || n` })
        await db.sql('analyze curfew.tasks')
        for (const statement of db.statements.deleteTasks(['t_1', 't_2']))
          expect(await plan(statement)).not.toMatch(allChildren)
      },
    )
  })

  test.runIf(kind === 'PostgreSQL')('what somebody else has locked is passed by', async () => {
    await put(agentRow('g_1', { wokenAt: 1_000 }), agentRow('g_2', { wokenAt: 2_000 }), {
      ...newRow({ id: 't_1' }),
      ...below('g_1', 'g_1', 0),
    })
    const other = new pg.Client({ connectionString: db.location })
    await other.connect()
    try {
      await other.query('begin')
      await other.query(`select 1 from curfew.tasks where id = 'g_1' for update`)
      const { agents } = db.statements
      expect(ids(await db.run(agents.tryLockTasks(['g_2', 'g_1', 't_1'])))).toEqual(['g_2', 't_1'])
      const claim = {
        now: 9_000,
        nodeId: 'n_9',
        token: 'a_9',
        names: ['research'],
        peers: [],
        patience: 8_000,
      }
      expect(ids(await db.run(agents.claimTurns({ ...claim, limit: 1 })))).toEqual(['g_2'])
    } finally {
      await other.query('rollback')
      await other.end()
    }
  })
})

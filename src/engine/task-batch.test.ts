// One transaction's worth of commands against a real store: their order, and what each is answered.
import { afterAll, beforeAll, beforeEach, describe, expect, inject, test, vi } from 'vitest'
import { createDatabase } from '../../scripts/postgres/database.ts'
import { DEFAULT_POLICY } from '../definitions/task-policy.ts'
import { TestStore } from '../store/fixtures/stores.ts'
import type { TaskRow } from '../store/task-row.ts'
import { AgentMemory } from './agent-memory.ts'
import type { ClaimWish, Command } from './command.ts'
import { commitBatch } from './commit-batch.ts'
import { newAgentRow, startedTurn, turnOf } from './fixtures/agent-rows.ts'
import { claimedRow, newRow, newTask } from './fixtures/task-rows.ts'
import type { TaskInput } from './task-input.ts'

const NOW = 10_000

describe.each(['SQLite in memory', 'PostgreSQL'] as const)('on %s', (kind) => {
  let db: TestStore
  beforeAll(async () => {
    db = await TestStore.open(kind, () => createDatabase(inject('postgresUrl')))
  })
  afterAll(() => db[Symbol.asyncDispose]())
  let memory = new AgentMemory()
  beforeEach(async () => {
    memory = new AgentMemory()
    await db.clear()
  })
  const apply = (commands: Command[], wish: ClaimWish | null = null) => {
    const context = {
      ...{ nodeId: 'n_1', peers: () => [], endedClaims: [], overdueMs: 3_000, chance: () => 0.5 },
      claimed: () => undefined,
      takenBack: () => undefined,
    }
    const pace = { late: 0 }
    return commitBatch(db.store, commands, { fence: null, context, memory, wish, pace, now: () => NOW })
  }
  const to = (taskId: string, input: TaskInput): Command => ({ type: 'input', taskId, input, scope: null })
  const running = (id = 't_1', more: Partial<TaskRow> = {}): TaskRow => ({
    ...claimedRow(newRow({ id }), { now: 1_000, nodeId: 'n_1', token: 'a_2' }),
    attempt: 2,
    ...more,
  })
  const beat = (token: string, completed: number): TaskInput => {
    return { type: 'beat', token, progress: { completed }, details: null, moved: true }
  }
  const completed = (token: string, output: string): TaskInput => ({ type: 'completed', token, output })

  test('progress and the result that follows it are both kept', async () => {
    await db.put(running())
    const { answers } = await apply([to('t_1', beat('a_2', 9)), to('t_1', completed('a_2', '"done"'))])
    expect(answers).toEqual([{ type: 'accepted' }, { type: 'accepted' }])
    expect(await db.get('t_1')).toMatchObject({
      status: 'completed',
      output: '"done"',
      progress: '{"completed":9}',
    })
  })

  test.each([
    ['before', ['a_1', 'a_2']],
    ['after', ['a_2', 'a_1']],
  ])(
    'an attempt of before that reports just %s the present one gets neither its place nor its answer',
    async (_, tokens) => {
      await db.put(running('t_1'), running('t_2'))
      const { answers, committed } = await apply(
        tokens.flatMap((token) => [to('t_1', completed(token, `"${token}"`)), to('t_2', beat(token, 1))]),
      )
      const byToken = Object.fromEntries(tokens.map((token, i) => [token, answers.slice(2 * i, 2 * i + 2)]))
      expect(byToken.a_2).toEqual([{ type: 'accepted' }, { type: 'accepted' }])
      expect(byToken.a_1).toMatchObject([{ type: 'stale' }, { type: 'stale' }])
      expect(await db.get('t_1')).toMatchObject({ status: 'completed', output: '"a_2"' })
      expect(JSON.stringify(committed.completed)).not.toContain('"a_1"')
    },
  )

  test('the same report twice in one batch is taken once', async () => {
    await db.put(running())
    const { answers } = await apply([to('t_1', completed('a_2', '1')), to('t_1', completed('a_2', '1'))])
    expect(answers.map(({ type }) => type)).toEqual(['accepted', 'stale'])
    expect(await db.get('t_1')).toMatchObject({ status: 'completed', seq: 3 })
  })

  test('a report comes before the deadline that is due with it, and before a cancel', async () => {
    const overdue = { deadlineAt: NOW - 1, dueAt: NOW - 1 }
    await db.put(running('t_1', overdue), running('t_2', overdue), running('t_3'))
    const { answers } = await apply([
      to('t_3', { type: 'cancel' }),
      { type: 'fire' },
      to('t_1', completed('a_2', '1')),
      to('t_3', { type: 'failed', token: 'a_2', failure: { code: 'x', message: 'x', retryable: false } }),
    ])
    expect(answers).toMatchObject([
      { type: 'cancel', answer: 'already_completed' },
      { type: 'fired', count: 1 },
      { type: 'accepted' },
      { type: 'accepted' },
    ])
    expect((await db.all()).map(({ status }) => status)).toEqual(['completed', 'timed_out', 'failed'])
  })

  test('a record that cannot be read is parked, and the others go on', async () => {
    const due = { deadlineAt: NOW - 1, dueAt: NOW - 1 }
    await db.put(running('t_1', due), running('t_2', due))
    await db.sql(`update {s}tasks set policy = 'rubbish' where id = 't_1'`)
    await apply([{ type: 'fire' }])
    const [broken, fine] = await db.all()
    expect(broken).toMatchObject({
      status: 'running',
      parked: expect.stringMatching(/cannot be read/),
      dueAt: null,
    })
    expect(fine?.status).toBe('timed_out')
  })

  test('nobody is told about a task that is not there', async () => {
    const { answers } = await apply([to('t_9', { type: 'cancel' }), to('t_9', completed('a_1', '1'))])
    expect(answers).toEqual([{ type: 'not_found' }, { type: 'not_found' }])
  })

  test('events are numbered without gaps over several commands and batches', async () => {
    await db.put(running('t_1', { policy: newRow({ timeout: 60_000 }).policy, deadlineAt: 60_000 }))
    await apply([to('t_1', { type: 'extend_by', byMs: 5 }), to('t_1', { type: 'extend_by', byMs: 6 })])
    await apply([to('t_1', { type: 'cancel' })])
    const rows = await db.run(db.statements.events(['t_1']))
    const types = rows.flatMap(({ seq, body }) =>
      (JSON.parse(body) as { type: string }[]).map(({ type }, i) => `${seq + i} ${type}`),
    )
    expect(types).toEqual(['3 deadlines_extended', '4 deadlines_extended', '5 task_cancelled'])
  })

  describe('keys', () => {
    const schedule = (...tasks: { id: string; key: string | null; input: string }[]): Command => ({
      type: 'schedule',
      name: 'resize',
      count: tasks.length,
      tasks: (now) => tasks.map((task) => newTask({ ...task, now })),
    })

    test('of a task that exists answer that one, also within a batch', async () => {
      await apply([schedule({ id: 't_1', key: 'k', input: '{"a":1,"b":2}' })])
      const { answers } = await apply([
        schedule({ id: 't_2', key: 'k', input: '{"b":2,"a":1}' }, { id: 't_3', key: 'new', input: '1' }),
        schedule({ id: 't_4', key: 'new', input: '1' }),
      ])
      expect(answers).toEqual([
        {
          type: 'scheduled',
          tasks: [
            { id: 't_1', existing: true },
            { id: 't_3', existing: false },
          ],
        },
        { type: 'scheduled', tasks: [{ id: 't_3', existing: true }] },
      ])
    })

    test('with another input are a conflict, and nothing of that transaction stays', async () => {
      await apply([schedule({ id: 't_1', key: 'k', input: '1' })])
      const conflict = apply([
        schedule({ id: 't_2', key: null, input: '1' }, { id: 't_3', key: 'k', input: '2' }),
      ])
      await expect(conflict).rejects.toMatchObject({
        code: 'key_conflict',
        fields: { key: 'k', taskId: 't_1' },
      })
      expect((await db.all()).map(({ id }) => id)).toEqual(['t_1'])
    })
  })

  describe('an agent this process remembers', () => {
    const agent = { type: 'agent', agentId: 'g_1', rootId: 'g_1' } as const
    const signal = (value: string): Command => ({ ...agent, input: { type: 'signal', name: 'go', value } })
    const reads = async (commands: Command[]) => {
      const { statements } = db.store
      const lock = vi.spyOn(statements.agents, 'lockAgents')
      await apply(commands)
      const count = lock.mock.calls.length
      lock.mockRestore()
      return count
    }
    const queued = async () => JSON.parse((await db.get('g_1')).waits ?? '{}').queued.go as number

    beforeEach(async () => {
      const row = startedTurn({ ...newAgentRow(), id: 'g_1' }, { now: 1_000, nodeId: 'n_1', token: 'a_1' })
      await db.put(row)
      await db.run(db.statements.agents.updateAgents([row], true))
    })

    test('is read once and written many times', async () => {
      expect([await reads([signal('1')]), await reads([signal('2')]), await reads([signal('3')])]).toEqual([
        1, 0, 0,
      ])
      expect(await queued()).toBe(3)
      expect((await db.get('g_1')).version).toBe(4)
    })

    test('is read again when somebody else has written it, and nothing of either is lost', async () => {
      await apply([signal('1')])
      const before = await db.get('g_1')
      const waits = JSON.stringify({ ...JSON.parse(before.waits ?? '{}'), queued: { go: 7 } })
      await db.run(
        db.statements.agents.updateAgents([{ ...before, waits, version: before.version + 1 }], true),
      )
      expect(await reads([signal('2')])).toBe(1)
      expect(await queued()).toBe(8)
    })

    test('that is gone is not found, whatever is remembered', async () => {
      await apply([signal('1')])
      await db.run({ sql: `delete from ${db.store.dialect === 'sqlite' ? '' : 'curfew.'}tasks`, params: [] })
      expect((await apply([signal('2')])).answers).toEqual([{ type: 'not_found' }])
    })
  })

  test.each(['before', 'after'])(
    'a signal just %s the turn that asks for it, in one batch, is taken by it',
    async (when) => {
      const row = startedTurn(newAgentRow(), { now: 1_000, nodeId: 'n_1', token: 'a_1' })
      await db.put(row)
      await db.run(db.statements.agents.updateAgents([row], true))
      const input = turnOf(row, 'a_1', {
        steps: [{ no: 0, kind: 'signal', name: 'go', ms: null }],
        state: { type: 'suspended', waits: [] },
      })
      const agent = { type: 'agent', agentId: row.id, rootId: row.id } as const
      const turn: Command = { ...agent, input }
      const signals = ['1', '2'].map(
        (value): Command => ({ ...agent, input: { type: 'signal', name: 'go', value } }),
      )
      await apply(when === 'before' ? [...signals, turn] : [turn, ...signals])
      const [journal] = await db.run(db.statements.agents.journal(row.id, 1, 0, 9))
      expect(JSON.parse(journal?.body ?? '[]')).toEqual([{ seq: 1, type: 'signal', step: 0, value: '1' }])
      expect((await db.run(db.statements.agents.signals(row.id, 'go', 9))).map(({ value }) => value)).toEqual(
        ['2'],
      )
      expect(JSON.parse((await db.get(row.id)).waits ?? '{}')).toMatchObject({ queued: { go: 1 } })
    },
  )

  test('an agent that inherits no time, and is given some in the same batch, starts', async () => {
    const row = startedTurn(newAgentRow({ timeout: '10s' }), { now: 1_000, nodeId: 'n_1', token: 'a_1' })
    await db.put(row)
    await db.run(db.statements.agents.updateAgents([row], true))
    const work = { kind: 'agent', name: 'inner', input: 'null', policy: DEFAULT_POLICY } as const
    const input = turnOf(row, 'a_1', {
      steps: [{ no: 0, id: 'g_2', ...work, start: { delayMs: 0 }, detached: false, reserveMs: 0 }],
    })
    await apply([
      { type: 'agent', agentId: row.id, rootId: row.id, input },
      to(row.id, { type: 'extend_by', byMs: 60_000 }),
    ])
    expect(await db.get('g_2')).toMatchObject({ status: 'pending', deadlineAt: 70_000, wokenAt: NOW })
  })

  describe('what a batch schedules it may start as well', () => {
    const wish = {
      token: 'a_1',
      names: ['resize'],
      queues: ['default'],
      limitedQueues: [],
      slots: 2,
      after: null,
      floors: [],
      turns: null,
    }
    const schedule = (...tasks: ReturnType<typeof newTask>[]): Command[] => [
      { type: 'schedule', name: 'resize', count: tasks.length, tasks: () => tasks },
    ]

    test('at once where nothing older waits, and the row is the same as that of a claim', async () => {
      const limits = { attemptTimeoutMs: 50, heartbeatTimeoutMs: 40, stuckAfterMs: 70, firstDueMs: 40 }
      const tasks = ['t_1', 't_2', 't_3'].map((id) => ({
        ...newTask({ id, now: NOW, timeout: 900 }),
        ...limits,
      }))
      const direct = await apply(schedule(...tasks), { ...wish, look: false })
      expect(direct.committed.claimed.map(({ id }) => id).sort()).toEqual(['t_1', 't_2'])
      const claimed = await apply([], { ...wish, look: true })
      expect(claimed.committed.claimed).toEqual([{ ...direct.committed.claimed[0], id: 't_3' }])
      expect(await db.get('t_1')).toEqual({ ...(await db.get('t_3')), id: 't_1' })
      expect(await db.all()).toHaveLength(3)
    })

    test('after what is older where something may be', async () => {
      await db.put(newRow({ id: 't_0' }))
      const { committed } = await apply(schedule(newTask({ id: 't_1' }), newTask({ id: 't_2' })), {
        ...wish,
        look: true,
      })
      expect(committed.claimed.map(({ id }) => id).sort()).toEqual(['t_0', 't_1'])
    })

    test.each([
      ['delayed', { ready: 0 as const }],
      ['out of time', { deadlineAt: 1 }],
      ['out of time to be queued', { queueDeadlineAt: 1 }],
      ['of another name', { name: 'other' }],
      ['of another queue', { queue: 'other' }],
      ['with a key', { key: 'k' }],
    ])('not one that is %s', async (_, fields) => {
      const { committed } = await apply(schedule({ ...newTask({ id: 't_1' }), ...fields }), {
        ...wish,
        look: false,
      })
      expect(committed.claimed).toEqual([])
      expect(await db.get('t_1')).toMatchObject({ status: 'pending', live: 0 })
    })
  })
})

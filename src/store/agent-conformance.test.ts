// The conformance suite, third part: agents, what they scheduled, their journals and signals; the same on every store.
import fc from 'fast-check'
import { afterAll, beforeAll, beforeEach, describe, expect, inject, test } from 'vitest'
import { createDatabase } from '../../scripts/postgres/database.ts'
import { claimedRow, newRow, newTask } from '../engine/fixtures/task-rows.ts'
import { decideTask } from '../engine/task-decide.ts'
import type { TurnClaim } from './agent-statements.ts'
import { STORE_KINDS, TestStore } from './fixtures/stores.ts'
import type { NewBelow } from './hot-statements.ts'
import type { Statement } from './statement.ts'
import type { TaskRow } from './task-row.ts'
import { AGENT_FIELDS, TURN_FIELDS } from './task-row.ts'

const id = (n: number) => `t_${String(n).padStart(5, '0')}`
const agentId = (n: number) => `g_${String(n).padStart(5, '0')}`
const plain = <T extends object>(rows: T[]): T[] => rows.map((row) => ({ ...row }))
const ids = (rows: { id: string }[]) => rows.map((row) => row.id)
const range = (count: number) => Array.from({ length: count }, (_, i) => i)

/** A row of an agent that was woken and that nobody runs. */
function agentRow(n: number, more: Partial<TaskRow> = {}): TaskRow {
  return {
    ...newRow({ id: agentId(n), name: 'research', grace: 0 }),
    kind: 'agent',
    ready: 0,
    wokenAt: 500,
    ...more,
  }
}

/** A task below that agent. */
function childRow(n: number, parent: number, step: number, more: Partial<TaskRow> = {}): TaskRow {
  return {
    ...newRow({ id: id(n) }),
    parentId: agentId(parent),
    rootId: agentId(parent),
    step,
    ...more,
  }
}

/** What a claim makes of an agent. */
function claimedTurn(row: TaskRow, { now, nodeId, token }: TurnClaim): TaskRow {
  const first = row.startedSeq === null
  return {
    ...row,
    live: 1,
    wokenAt: null,
    attempt: row.attempt + 1,
    version: row.version + 1,
    nodeId,
    token,
    startedAt: row.startedAt ?? now,
    status: row.status === 'pending' ? 'running' : row.status,
    ...(first && { seq: row.seq + 1, startedSeq: row.seq + 1 }),
  }
}

const CLAIM: TurnClaim = {
  now: 10_000,
  nodeId: 'n_9',
  token: 'a_9',
  names: ['research'],
  limit: 100,
  peers: [],
  patience: 9_000,
}
const SETTLED: Partial<TaskRow> = { status: 'completed', settledAt: 5, endedAt: 5, wokenAt: null }

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
  const claim = (request: Partial<TurnClaim> = {}) =>
    db.run(db.statements.agents.claimTurns({ ...CLAIM, ...request }))
  const claimedIds = async (request: Partial<TurnClaim> = {}) => ids(await claim(request)).sort()

  describe('insertTasks', () => {
    const places = fc.record({
      what: fc.constantFrom('task', 'child', 'agent'),
      step: fc.integer({ min: 0, max: 50_000 }),
      detached: fc.constantFrom(0, 1),
      delayMs: fc.constantFrom(0, 700),
      timeout: fc.option(fc.integer({ min: 1, max: 100_000 }), { nil: null }),
      input: fc.string({ unit: 'grapheme' }).map((text) => JSON.stringify(text)),
      below: fc.boolean(),
    })

    test('writes tasks, children and agents of one call, each at its place', async () => {
      await fc.assert(
        fc.asyncProperty(fc.array(places, { minLength: 1, maxLength: 30 }), async (list) => {
          await db.clear()
          const given = list.map(({ what, step, detached, below, ...options }, n) => {
            const task = newTask({ id: id(n), now: 1_800_000_000_000, ...options })
            if (what === 'task') return task
            const isAgent = what === 'agent'
            const alone = isAgent && !below
            return {
              ...task,
              kind: what === 'agent' ? 'agent' : 'task',
              ...(isAgent && { ready: 0 }),
              parentId: alone ? null : agentId(1),
              rootId: alone ? null : agentId(0),
              step: alone ? null : step,
              detached: alone ? 0 : detached,
              title: n % 2 ? null : `node "${n}"`,
              wokenAt: isAgent ? 1_800_000_000_000 : null,
            } as NewBelow
          })
          await db.run(...db.statements.hot.insertTasks(given))
          expect(await db.all()).toEqual(given.map((row) => ({ ...newRow(), ...row })))
        }),
        { numRuns: 15 },
      )
    })

    test('a key stands for one agent of a name', async () => {
      const keyed = (n: number, key: string | null, name = 'research') => ({ ...agentRow(n, { key, name }) })
      await db.run(...db.statements.hot.insertTasks([keyed(1, 'a'), keyed(2, null)]))
      const answered = await db.run(
        ...db.statements.hot.insertTasks([keyed(3, 'a'), keyed(4, 'a', 'other'), keyed(5, 'b')]),
      )
      expect(ids(answered).sort()).toEqual([agentId(4), agentId(5)])
      expect(ids(await db.all())).toEqual([1, 2, 4, 5].map(agentId))
    })
  })

  describe('completeBelow', () => {
    const running = (n: number, more: Partial<TaskRow> = {}): TaskRow => ({
      ...claimedRow(childRow(n, 1, n), { now: 1_500, nodeId: 'n_1', token: 'a_1' }),
      losses: 2,
      ...more,
    })

    test('writes the row that the pure function decides, and its place among the results', async () => {
      const rows = range(5).map((n) => running(n, { dueAt: n % 2 ? 9_000 : null }))
      await put(agentRow(1), ...rows)
      const ends = rows.map(({ id: task }, i) => ({
        id: task,
        token: 'a_1',
        output: `"größe ${i}"`,
        resultSeq: 10 - i,
      }))
      expect(await db.run(db.statements.hot.completeBelow(2_000, ends))).toEqual([])
      const decided = rows.map((row, i) => ({
        ...decideTask(row, { type: 'completed', token: 'a_1', output: `"größe ${i}"` }, 2_000, 0.5).draft.row,
        resultSeq: 10 - i,
      }))
      expect(await db.all()).toEqual([agentRow(1), ...decided])
    })

    test('changes nothing of another attempt, of one that was stopped, or of one that ended', async () => {
      const rows = [
        running(0),
        running(1, { status: 'cancelled', stopping: 1 }),
        running(2, { status: 'completed', live: 0, output: '"first"', resultSeq: 1 }),
        running(3),
      ]
      await put(...rows)
      const ends = [
        { id: id(0), token: 'a_0', output: '1', resultSeq: 7 },
        ...[1, 2, 99].map((n) => ({ id: id(n), token: 'a_1', output: '1', resultSeq: 8 })),
        { id: id(3), token: 'a_1', output: '"mine"', resultSeq: 9 },
      ]
      const missed = ids(await db.run(db.statements.hot.completeBelow(2_000, ends)))
      expect(missed.sort()).toEqual([0, 1, 2, 99].map((n) => id(n)).sort())
      expect((await db.all()).slice(0, 3)).toEqual(rows.slice(0, 3))
      expect(await db.get(id(3))).toMatchObject({ status: 'completed', output: '"mine"', resultSeq: 9 })
    })
  })

  describe('claimTurns', () => {
    test('sets what the engine expects the start of a turn to set, and answers whole rows', async () => {
      const rows = [
        agentRow(1),
        agentRow(2, { status: 'running', attempt: 3, startedAt: 700, seq: 9, startedSeq: 4, token: 'a_2' }),
        agentRow(3, { status: 'cancelling', attempt: 1, startedAt: 700, seq: 5, startedSeq: 2, stopping: 1 }),
        agentRow(4, { status: 'timed_out', attempt: 1, startedAt: 700, seq: 5, startedSeq: 2, stopping: 1 }),
        agentRow(5, { results: 7, seen: 5, steps: 9, open: 2, waits: '{"since":3}', dueAt: 20_000 }),
      ]
      await put(...rows)
      const claimed = plain(await claim())
      const expected = rows.map((row) => claimedTurn(row, CLAIM))
      expect(claimed.sort((a, b) => (a.id < b.id ? -1 : 1))).toEqual(expected)
      expect(await db.all()).toEqual(expected)
      expect(await claim({ token: 'a_10' })).toEqual([])
    })

    test('only of agents that were woken, that nobody runs, that are not parked, and whose code is here', async () => {
      const others = [
        agentRow(1, { wokenAt: null }),
        agentRow(2, { live: 1 }),
        agentRow(3, { parked: 'a reason' }),
        agentRow(4, { name: 'another' }),
        { ...newRow({ id: id(1), name: 'research' }) },
      ]
      await put(...others, agentRow(5))
      expect(await claimedIds({ names: [] })).toEqual([])
      expect(await claimedIds({ limit: 0 })).toEqual([])
      expect(await claimedIds({ names: ['none', 'research'] })).toEqual([agentId(5)])
      for (const row of others) expect(await db.get(row.id)).toEqual(row)
    })

    test('those that wait longest first, over all names, never more than were asked for', async () => {
      const rows = range(60).map((n) =>
        agentRow(n, { wokenAt: 1_000 + ((n * 37) % 60), name: n % 3 ? 'research' : 'another' }),
      )
      await put(...rows)
      // Statistics of a moment at which it was empty must not lead to another plan.
      if (kind === 'PostgreSQL') await db.sql('analyze curfew.tasks')
      const inOrder = ids(rows.toSorted((a, b) => (a.wokenAt ?? 0) - (b.wokenAt ?? 0)))
      const names = ['another', 'research']
      expect(await claimedIds({ names, limit: 7 })).toEqual(inOrder.slice(0, 7).sort())
      expect(await claimedIds({ names, limit: 1 })).toEqual(inOrder.slice(7, 8))
      expect(await claimedIds({ names, limit: 500 })).toEqual(inOrder.slice(8).sort())
    })

    test('what a living peer has in memory is left to it for a while', async () => {
      const here = { attempt: 1, token: 'a_1' }
      await put(
        agentRow(1, { ...here, nodeId: 'n_9', wokenAt: 9_999 }),
        agentRow(2, { ...here, nodeId: 'n_2', wokenAt: 9_001 }),
        agentRow(3, { ...here, nodeId: 'n_2', wokenAt: 9_000 }),
        agentRow(4, { ...here, nodeId: 'n_gone', wokenAt: 9_999 }),
        // It has never run, or whoever ran it has let go of it.
        agentRow(5, { nodeId: 'n_2', wokenAt: 9_999 }),
      )
      // Over a SQLite file there are no peers.
      const left = kind === 'PostgreSQL' ? [1, 3, 4, 5] : [1, 2, 3, 4, 5]
      expect(await claimedIds({ peers: ['n_2', 'n_3'] })).toEqual(left.map(agentId))
      expect(await claimedIds({ peers: ['n_2'], patience: 9_001 })).toEqual(
        kind === 'PostgreSQL' ? [agentId(2)] : [],
      )
    })
  })

  describe('updateAgents', () => {
    const everything: Partial<TaskRow> = {
      status: 'timed_out',
      live: 1,
      attempt: 3,
      token: 'a_7',
      nodeId: 'n_7',
      startedAt: 1_800_000_000_001,
      dueAt: 1_800_000_000_012,
      seq: 2_000_000,
      startedSeq: 1_999_998,
      wokenAt: 1_800_000_000_013,
      results: 7,
      seen: 6,
      steps: 9,
      open: 2,
      waits: '{"signals":[[1,"größe 📧"]]}',
      version: 12,
      stopping: 1,
      parked: 'a reason',
      output: '"größe 📧"',
      failure: '{"code":"x"}',
      timeoutKind: 'agent',
      receipt: 'aborted',
      losses: 1,
      endedAt: 1_800_000_000_002,
      settledAt: 1_800_000_000_003,
      deadlineAt: 1_800_000_000_004,
      stopBoundAt: 1_800_000_000_010,
      warned: 1,
      extendedMs: 34_560_000_000,
      endedSeq: 1_999_999,
      resultSeq: 12,
    }

    test('knows every field that can change', () => {
      expect(Object.keys(everything).sort()).toEqual([...AGENT_FIELDS].sort())
    })

    test('writes what a turn changes, or all of it, of many rows at once, and of no other', async () => {
      const rows = [agentRow(1), agentRow(2), agentRow(3)] as [TaskRow, TaskRow, TaskRow]
      await put(...rows)
      const changed = { ...rows[0], ...everything, input: '"never"', priority: 9 }
      await db.run(db.statements.agents.updateAgents([changed, { ...rows[1], seen: 3 }], false))
      const ofTurn = Object.fromEntries(TURN_FIELDS.map((field) => [field, everything[field]]))
      expect(await db.all()).toEqual([{ ...rows[0], ...ofTurn }, { ...rows[1], seen: 3 }, rows[2]])
      await db.run(db.statements.agents.updateAgents([changed], true))
      expect(await db.get(agentId(1))).toEqual({ ...rows[0], ...everything })
      await db.run(db.statements.agents.updateAgents(rows, true))
      expect(await db.all()).toEqual(rows)
    })
  })

  describe('children', () => {
    const family = () => [
      agentRow(1, { seen: 2, results: 4, wokenAt: null }),
      agentRow(2, { parentId: agentId(1), rootId: agentId(1), step: 7 }),
      childRow(1, 1, 0, { ...SETTLED, output: '1', resultSeq: 3 }),
      childRow(2, 1, 1, { ...SETTLED, output: '2', resultSeq: 1 }),
      childRow(3, 1, 2),
      childRow(4, 1, 3, { detached: 1 }),
      childRow(5, 1, 5, { status: 'running', live: 1 }),
      childRow(6, 1, 6, { status: 'failed', settledAt: 6, resultSeq: 4 }),
      childRow(7, 2, 0, { rootId: agentId(1), attempt: 1, status: 'cancelled', settledAt: 6, resultSeq: 1 }),
      childRow(8, 1, 8, { attempt: 2, status: 'cancelled', settledAt: 6, resultSeq: 5 }),
      childRow(9, 3, 0),
    ]

    test('openChildren are those that have not settled, detached ones aside; some of them inherit', async () => {
      const rows = family().map((row, i) => (i < 5 ? { ...row, policy: '{"keptBackMs":0}' } : row))
      await put(...rows)
      const open = plain(await db.run(db.statements.agents.openChildren(agentId(1))))
      expect(open).toEqual([rows[1], rows[4], rows[6]])
      const inheriting = plain(await db.run(db.statements.agents.inheritingChildren(agentId(1))))
      expect(inheriting).toEqual([rows[1], rows[4]])
      expect(await db.run(db.statements.agents.openChildren(agentId(9)))).toEqual([])
    })

    test('unseenChildren are those whose end the code has not been given', async () => {
      await put(...family())
      const unseen = async (...of: string[]) =>
        ids(await db.run(db.statements.agents.unseenChildren(of))).sort()
      expect(await unseen(agentId(1))).toEqual([1, 6, 8].map(id))
      expect(await unseen(agentId(1), agentId(2), agentId(9))).toEqual([1, 6, 7, 8].map(id))
      const [whole] = plain(await db.run(db.statements.agents.unseenChildren([agentId(2)])))
      expect(whole).toEqual(family()[8])
    })

    test('the journal is read in pages: what ended by result, what has not by step', async () => {
      await put(...family())
      const { endedChildren, unendedChildren } = bound(db)
      expect(ids(await db.run(endedChildren(agentId(1), 0, 2)))).toEqual([2, 1].map(id))
      expect(ids(await db.run(endedChildren(agentId(1), 3, 2)))).toEqual([6, 8].map(id))
      expect(ids(await db.run(endedChildren(agentId(1), 5, 2)))).toEqual([])
      expect(ids(await db.run(unendedChildren(agentId(1), -1, 2)))).toEqual([3, 4].map(id))
      expect(ids(await db.run(unendedChildren(agentId(1), 3, 9)))).toEqual([id(5), agentId(2)])
      const [open] = plain(await db.run(unendedChildren(agentId(1), 2, 1)))
      expect(open).toEqual({
        id: id(4),
        kind: 'task',
        name: 'resize',
        input: 'null',
        step: 3,
        resultSeq: null,
        status: 'pending',
        output: null,
      })
    })

    test('waitedFor explains, cancelledBelow lists at any depth what was begun', async () => {
      await put(...family(), childRow(10, 1, 9, { status: 'cancelled', settledAt: 6, resultSeq: 6 }))
      const waited = plain(await db.run(db.statements.agents.waitedFor(agentId(1), 3)))
      expect(ids(waited)).toEqual([3, 4, 5].map(id))
      expect(waited[2]).toMatchObject({ kind: 'task', name: 'resize', status: 'running', createdAt: 0 })
      const cancelled = async (after: string, limit: number) =>
        ids(await db.run(db.statements.agents.cancelledBelow(agentId(1), after, limit)))
      expect(await cancelled('', 9)).toEqual([7, 8].map(id))
      expect(await cancelled('', 1)).toEqual([id(7)])
      expect(await cancelled(id(7), 9)).toEqual([id(8)])
    })

    test('titledChildren are those of one agent that have these titles', async () => {
      const titled = (n: number, above: number, title: string) => childRow(n, above, n, { title })
      await put(agentRow(1), agentRow(2), titled(3, 1, 'a'), titled(4, 1, 'b'), titled(5, 1, "it's"))
      await put(titled(6, 2, 'a'), childRow(7, 1, 7))
      const found = plain(await db.run(db.statements.agents.titledChildren(agentId(1), ['a', "it's", 'x'])))
      expect(found.sort((a, b) => (a.id < b.id ? -1 : 1))).toEqual([
        { id: id(3), title: 'a', status: 'pending' },
        { id: id(5), title: "it's", status: 'pending' },
      ])
    })

    test('places tell whose rows come first', async () => {
      await put(...family())
      const places = plain(await db.run(db.statements.agents.places([id(7), agentId(1), id(99)])))
      expect(places.sort((a, b) => (a.id < b.id ? -1 : 1))).toEqual([
        { id: agentId(1), parentId: null, rootId: null, kind: 'agent' },
        { id: id(7), parentId: agentId(2), rootId: agentId(1), kind: 'task' },
      ])
      const locked = plain(await db.run(db.statements.agents.tryLockTasks([id(7), agentId(1), id(99)])))
      expect(locked).toEqual([family()[0], family()[8]])
    })
  })

  describe('journals and signals', () => {
    test('a journal comes back in its order, by part, in pages; a number is given out once', async () => {
      await put(agentRow(1, { seen: 4 }), agentRow(2))
      const row = (n: number, part: 0 | 1, no: number) => ({
        agentId: agentId(n),
        part,
        no,
        body: `[{"größe":${no}}]`,
      })
      const { insertJournal, journal, unseenResults } = bound(db)
      await db.run(insertJournal([row(1, 1, 5), row(1, 0, 3), row(1, 0, 0), row(1, 1, 2), row(2, 0, 0)]))
      await db.run(insertJournal([row(1, 0, 9)]))
      expect(plain(await db.run(journal(agentId(1), 0, -1, 2)))).toEqual([row(1, 0, 0), row(1, 0, 3)])
      expect(plain(await db.run(journal(agentId(1), 0, 3, 2)))).toEqual([row(1, 0, 9)])
      expect(plain(await db.run(journal(agentId(1), 1, 0, 9)))).toEqual([row(1, 1, 2), row(1, 1, 5)])
      expect(plain(await db.run(unseenResults([agentId(1), agentId(2)])))).toEqual([row(1, 1, 5)])
      await expect(db.run(insertJournal([row(1, 0, 3)]))).rejects.toMatchObject({ code: 'store_refused' })
      await expect(db.run(insertJournal([row(7, 0, 3)]))).rejects.toMatchObject({ code: 'store_refused' })
    })

    test('signals are taken in the order of their arrival, each once', async () => {
      await put(agentRow(1), agentRow(2))
      const signal = (n: number, no: number, name: string) => ({
        agentId: agentId(n),
        no,
        name,
        value: `"größe ${no}"`,
      })
      const { insertSignals, signals, deleteSignal } = bound(db)
      await db.run(insertSignals([signal(1, 9, 'go'), signal(1, 2, 'go'), signal(1, 3, 'stop')]))
      await db.run(insertSignals([signal(2, 2, 'go'), signal(1, 11, 'go')]))
      const waiting = async (name: string, limit = 9) =>
        plain(await db.run(signals(agentId(1), name, limit))).map(({ no }) => no)
      expect(await waiting('go')).toEqual([2, 9, 11])
      expect(await waiting('go', 2)).toEqual([2, 9])
      expect(plain(await db.run(signals(agentId(1), 'stop', 9)))).toEqual([signal(1, 3, 'stop')])
      await db.run(deleteSignal(signal(1, 2, 'go')))
      expect(await waiting('go')).toEqual([9, 11])
      expect(await waiting('none')).toEqual([])
      expect(await db.run(signals(agentId(2), 'go', 9))).toHaveLength(1)
    })
  })
})

/** The statements as functions of their own. */
function bound({ statements: { agents } }: TestStore) {
  type Of<A extends unknown[], R> = (...args: A) => Statement<R>
  const bind = <A extends unknown[], R>(statement: Of<A, R>): Of<A, R> => statement.bind(agents)
  return {
    endedChildren: bind(agents.endedChildren),
    unendedChildren: bind(agents.unendedChildren),
    unseenResults: bind(agents.unseenResults),
    insertJournal: bind(agents.insertJournal),
    journal: bind(agents.journal),
    insertSignals: bind(agents.insertSignals),
    signals: bind(agents.signals),
    deleteSignal: bind(agents.deleteSignal),
  }
}

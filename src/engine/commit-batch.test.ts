// What a batch starts has its whole time: one that waited for long is decided again, by the time after its wait.
import pg from 'pg'
import { afterAll, beforeAll, beforeEach, describe, expect, inject, test, vi } from 'vitest'
import { createDatabase } from '../../scripts/postgres/database.ts'
import { TestStore } from '../store/fixtures/stores.ts'
import { AgentMemory } from './agent-memory.ts'
import type { ClaimWish, Command } from './command.ts'
import { commitBatch } from './commit-batch.ts'
import { newRow, newTask } from './fixtures/task-rows.ts'

const NOW = 10_000

const WISH: ClaimWish = {
  ...{ token: 'a_1', names: ['resize'], queues: ['default'], limitedQueues: [], slots: 2 },
  ...{ after: null, floors: [], turns: null, look: true },
}

describe.each(['SQLite in memory', 'PostgreSQL'] as const)('on %s', (kind) => {
  let db: TestStore
  let pace = { isSlow: false }
  const takenBack = vi.fn()
  beforeAll(async () => {
    db = await TestStore.open(kind, () => createDatabase(inject('postgresUrl')))
  })
  afterAll(() => db[Symbol.asyncDispose]())
  beforeEach(async () => {
    pace = { isSlow: false }
    takenBack.mockReset()
    await db.clear()
  })
  const commit = (commands: Command[], wish: ClaimWish | null, now: () => number) => {
    const context = {
      ...{ nodeId: 'n_1', peers: () => [], endedClaims: [], overdueMs: 3_000, chance: () => 0.5 },
      ...{ claimed: () => undefined, takenBack },
    }
    const memory = new AgentMemory()
    return commitBatch(db.store, commands, { fence: null, context, memory, wish, pace, now })
  }
  const schedule = (...tasks: ReturnType<typeof newTask>[]): Command[] => [
    { type: 'schedule', name: 'resize', count: tasks.length, tasks: () => tasks },
  ]
  /** The clock as it is read, time after time. */
  const clockOf = (times: readonly number[]) => {
    const left = times.map((time) => NOW + time)
    return () => left.shift() ?? NaN
  }
  const startOf = async (id: string) => ((await db.get(id))?.startedAt ?? NaN) - NOW

  test.each([
    ['by the time after a long wait', [0, 501, 600, 700], 600],
    ['by the time before a short one', [0, 500], 0],
    ['though every wait is long', [0, 501, 600, 1_200], 600],
  ])('%s', async (_, times, startedAt) => {
    await db.put(newRow({ id: 't_1' }))
    const { committed } = await commit([], WISH, clockOf(times))
    expect(committed.claimed.map(({ id }) => id)).toEqual(['t_1'])
    expect(await db.get('t_1')).toMatchObject({ status: 'running', attempt: 1 })
    expect(await startOf('t_1')).toBe(startedAt)
    expect(takenBack.mock.calls).toEqual(startedAt > 0 ? [[WISH]] : [])
  })

  test('where all are slow they are not done twice, until one is quick again', async () => {
    await commit(schedule(...['t_1', 't_2', 't_3'].map((id) => newTask({ id }))), null, () => NOW)
    const starts: number[] = []
    const runs = [
      [0, 501, 600, 1_200],
      [2_000, 2_600],
      [3_000, 3_500],
    ]
    for (const [i, times] of runs.entries()) {
      await commit([], { ...WISH, token: `a_${i}`, slots: 1 }, clockOf(times))
      starts.push(await startOf(`t_${i + 1}`))
    }
    expect(starts).toEqual([600, 2_000, 3_000])
    expect(takenBack).toHaveBeenCalledTimes(1)
    await db.put(newRow({ id: 't_4' }))
    await commit([], WISH, clockOf([4_000, 4_501, 4_600, 4_700]))
    expect(await startOf('t_4')).toBe(4_600)
  })

  test('one that starts nothing is not decided again, however long it waited', async () => {
    await commit(schedule(newTask({ id: 't_1' })), null, clockOf([0, 9_000]))
    expect(takenBack).not.toHaveBeenCalled()
    expect(await db.get('t_1')).toMatchObject({ status: 'pending' })
  })

  if (kind === 'PostgreSQL')
    test('also of what is sent and not waited for', async () => {
      const other = new pg.Client({ connectionString: db.location })
      await other.connect()
      try {
        await other.query('begin; lock table curfew.tasks in exclusive mode')
        let now = NOW
        const wish = { ...WISH, look: false }
        const stored = commit(schedule(newTask({ id: 't_1', attemptTimeout: '2s' })), wish, () => now)
        const waits = `select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`
        while ((await other.query(waits)).rows.length === 0);
        now += 2_500
        await other.query('rollback')
        await stored
      } finally {
        await other.end()
      }
      expect(await db.get('t_1')).toMatchObject({ status: 'running' })
      expect(await startOf('t_1')).toBe(2_500)
    })
})

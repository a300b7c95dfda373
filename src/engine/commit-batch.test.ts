// What a batch starts has its whole time: one that waited for long starts nothing.
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
  let pace = { late: 0 }
  const takenBack = vi.fn()
  beforeAll(async () => {
    db = await TestStore.open(kind, () => createDatabase(inject('postgresUrl')))
  })
  afterAll(() => db[Symbol.asyncDispose]())
  beforeEach(async () => {
    pace = { late: 0 }
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

  test('after a long wait nothing starts: the next transaction starts it, by its own time', async () => {
    await db.put(newRow({ id: 't_1' }))
    const { committed } = await commit([], WISH, clockOf([0, 501]))
    expect(committed).toMatchObject({ claimed: [], wish: null })
    expect(await db.get('t_1')).toMatchObject({ status: 'pending', attempt: 0 })
    expect(takenBack.mock.calls).toEqual([[WISH]])
    await commit([], WISH, clockOf([600, 1_100]))
    expect(await db.get('t_1')).toMatchObject({ status: 'running', attempt: 1 })
    expect(await startOf('t_1')).toBe(600)
    expect(takenBack).toHaveBeenCalledTimes(1)
  })

  test('and nothing is over that was not before the wait', async () => {
    await db.put(newRow({ id: 't_1' }))
    await db.put(newRow({ id: 't_2', name: 'other', now: NOW, timeout: 300 }))
    await commit([{ type: 'fire' }], WISH, clockOf([0, 501]))
    expect(await db.get('t_2')).toMatchObject({ status: 'pending' })
    await commit([{ type: 'fire' }], WISH, clockOf([600, 700]))
    expect(await db.get('t_2')).toMatchObject({ status: 'timed_out' })
  })

  test('where all are slow things start all the same, until one is quick again', async () => {
    await commit(schedule(...[1, 2, 3, 4].map((n) => newTask({ id: `t_${n}` }))), null, () => NOW)
    const next = async (...times: number[]) => {
      const { committed } = await commit([], { ...WISH, token: `a_${times}`, slots: 1 }, clockOf(times))
      const [task] = committed.claimed
      return task ? [task.id, await startOf(task.id)] : null
    }
    expect(await next(0, 501)).toBe(null)
    expect(await next(600, 1_101)).toBe(null)
    expect(await next(2_000, 2_600)).toEqual(['t_1', 2_000])
    expect(await next(3_000, 3_600)).toEqual(['t_2', 3_000])
    expect(await next(4_000, 4_500)).toEqual(['t_3', 4_000])
    expect(await next(5_000, 5_501)).toBe(null)
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
      expect(await db.get('t_1')).toMatchObject({ status: 'pending', attempt: 0 })
    })
})

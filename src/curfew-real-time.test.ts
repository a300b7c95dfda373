// Promises about real clocks and a real server: what the virtual clock cannot show.

import { setTimeout as pause } from 'node:timers/promises'
import pg from 'pg'
import { afterEach, describe, expect, inject, test, vi } from 'vitest'
import { errorOf, metric } from '../scripts/acceptance/world.ts'
import { createDatabase } from '../scripts/postgres/database.ts'
import type { PostgresServer } from '../scripts/postgres/postgres.ts'
import { startPostgres } from '../scripts/postgres/postgres.ts'
import { SystemClock } from './core/system-clock.ts'
import type { OpenOptions } from './curfew.ts'
import { Curfew, TaskTimedOut, task } from './curfew.ts'

const opened: Curfew[] = []
const messages: string[] = []

async function open(options: OpenOptions): Promise<Curfew> {
  const note = (_fields: object, message: string) => void messages.push(message)
  const logger = { debug: note, info: note, warn: note, error: note }
  const curfew = await Curfew.open({ logger, ...options })
  opened.push(curfew)
  return curfew
}

afterEach(async () => {
  await Promise.all(opened.splice(0).map((curfew) => curfew.close()))
  messages.length = 0
})

/** A machine whose clock somebody has set wrong. */
class WrongClock extends SystemClock {
  readonly #offMs: number

  constructor(offMs: number) {
    super()
    this.#offMs = offMs
  }

  override wall(): number {
    return super.wall() + this.#offMs
  }
}

async function databaseNow(url: string): Promise<number> {
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  const { rows } = await client.query('select extract(epoch from clock_timestamp()) * 1000 as now')
  await client.end()
  return Number(rows[0].now)
}

const hang = task({
  name: 'hang',
  grace: '1s',
  run: (_, { signal }) =>
    new Promise((_resolve, reject) => signal.addEventListener('abort', () => reject(signal.reason))),
})
const elsewhere = task({ name: 'elsewhere', run: (_input: unknown) => 1 })

describe('real time', () => {
  test('row 55: with clocks five minutes off either way, everything goes by the clock of the database', async () => {
    const store = await createDatabase(inject('postgresUrl'))
    const ahead = await open({ store, clock: new WrongClock(300_000) })
    const behind = await open({ store, clock: new WrongClock(-300_000), tasks: [hang] })
    for (const curfew of [ahead, behind]) {
      const before = await databaseNow(store)
      const running = await curfew.schedule(hang, null, { timeout: '700ms' })
      const pending = await curfew.schedule(elsewhere, null, { timeout: '700ms' })
      const after = await databaseNow(store)
      for (const handle of [running, pending]) {
        expect(await errorOf(handle.result(), TaskTimedOut)).toMatchObject({ kind: 'total' })
        const told = await databaseNow(store)
        const { deadlineAt, endedAt, createdAt } = await handle.view()
        // The estimate of the database's clock is a lower bound: late by as long as its answer took to come.
        expect(createdAt).toBeGreaterThan(before - 5_000)
        expect(createdAt).toBeLessThanOrEqual(after)
        expect(deadlineAt).toBe(createdAt + 700)
        expect(endedAt).toBeGreaterThanOrEqual(deadlineAt as number)
        expect(told).toBeGreaterThanOrEqual(deadlineAt as number)
        expect(endedAt).toBeLessThanOrEqual(told)
      }
    }
  })

  test('a handler that blocks the process for longer than the leases loses nothing of its neighbours', async () => {
    const store = await createDatabase(inject('postgresUrl'))
    let neighbourStopped = false
    let finish: () => void = () => undefined
    const neighbour = task({
      name: 'neighbour',
      run: (_, { signal }) =>
        new Promise<string>((resolve) => {
          signal.addEventListener('abort', () => {
            neighbourStopped = true
          })
          finish = () => resolve('unharmed')
        }),
    })
    const blocker = task({
      name: 'blocker',
      run: () => void Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 5_800),
    })
    const curfew = await open({ store, tasks: [neighbour, blocker] })
    const handle = await curfew.schedule(neighbour, null)
    await vi.waitFor(async () => expect(await handle.status()).toBe('running'), { timeout: 10_000 })
    await (await curfew.schedule(blocker, null)).result()
    // The orphan's look comes four times a second: by now it has been.
    await pause(700)
    expect(neighbourStopped).toBe(false)
    finish()
    expect(await handle.result()).toBe('unharmed')
    expect((await handle.view()).attempts).toBe(1)
    expect(messages).not.toContain('the leases could not be renewed in time; attempts are stopped')
  })

  test('a blocked process over SQLite fires its deadlines as soon as it is let go', async () => {
    const blocker = task({
      name: 'blocker',
      run: async () => {
        const { id } = await curfew.schedule(elsewhere, null, { timeout: '100ms' })
        Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 500)
        return id
      },
    })
    const curfew = await open({ store: ':memory:', tasks: [blocker] })
    const handle = curfew.task(await (await curfew.schedule(blocker, null)).result())
    await errorOf(handle.result(), TaskTimedOut)
    const [event] = (await handle.events()).filter(({ type }) => type === 'task_timed_out')
    expect(event?.lateMs).toBeGreaterThanOrEqual(300)
    expect(
      await metric(curfew, 'curfew_deadline_lateness_seconds', { kind: 'total' }, 'sum'),
    ).toBeGreaterThan(0.3)
  })
})

describe('a store that goes away', () => {
  let server: PostgresServer | null = null
  afterEach(async () => {
    await server?.remove()
    server = null
  })

  test('row 34: is waited for; what fell due meanwhile fires when it is back, and work goes on', {
    timeout: 90_000,
  }, async () => {
    server = await startPostgres()
    const store = await server.createDatabase()
    const quick = task({ name: 'quick', run: (n: number) => n + 1 })
    const curfew = await open({ store, tasks: [quick, hang] })
    expect(await (await curfew.schedule(quick, 1)).result()).toBe(2)
    const due = await curfew.scheduleMany(elsewhere, [1, 2, 3], { timeout: '1500ms' })
    await server.stop('fast')
    // Long enough for the deadlines, several sweeps and renewals.
    await pause(3_500)
    const during = curfew.schedule(quick, 10)
    await server.start()
    expect(await (await during).result()).toBe(11)
    for (const handle of due) {
      expect(await errorOf(handle.result(), TaskTimedOut)).toMatchObject({ kind: 'total' })
      const { endedAt, deadlineAt } = await handle.view()
      expect(endedAt).toBeGreaterThan((deadlineAt as number) + 500)
      expect((await handle.events()).filter(({ type }) => type === 'task_timed_out')).toHaveLength(1)
    }
    const complaints = messages.filter((message) => /not available|failed|lost/.test(message))
    expect(complaints).not.toEqual([])
    // And the next deadline is as punctual as ever.
    const next = await curfew.schedule(elsewhere, 4, { timeout: '500ms' })
    await errorOf(next.result(), TaskTimedOut)
    const { endedAt, deadlineAt } = await next.view()
    expect((endedAt as number) - (deadlineAt as number)).toBeLessThan(3_000)
  })

  test('a close is not held up for ever by a store that does not come back', {
    timeout: 90_000,
  }, async () => {
    server = await startPostgres()
    const store = await server.createDatabase()
    const curfew = await open({ store, tasks: [hang] })
    const handle = await curfew.schedule(hang, null)
    await vi.waitFor(async () => expect(await handle.status()).toBe('running'), { timeout: 10_000 })
    await server.stop('immediate')
    const waiting = errorOf(curfew.schedule(elsewhere, null), Error)
    await curfew.close()
    expect(await waiting).toMatchObject({ code: expect.stringMatching(/closed|store_unavailable/) })
  })
})

// Who may take dead letters, and when: on real stores, at given times.
import pg from 'pg'
import { afterAll, beforeAll, beforeEach, describe, expect, inject, test, vi } from 'vitest'
import { createDatabase } from '../../scripts/postgres/database.ts'
import type { CurfewError } from '../core/errors.ts'
import { newRow } from '../engine/fixtures/task-rows.ts'
import { TestStore } from '../store/fixtures/stores.ts'
import type { LetterRow } from '../store/letter-row.ts'
import type { DeadLetterChoice } from '../wire/dead-letter-view.ts'
import { claimLetters, discardLetters, listLetters, readLetter } from './dead-letters.ts'

const letter = (itemId: string, more: Partial<LetterRow> = {}): LetterRow => ({
  ...{ jobId: 'w_1', itemId, state: 'open', errorType: 'timeout', message: 'late', name: itemId },
  ...{ body: '{"item":1}', attempts: 1, createdAt: 1, updatedAt: 1, retryId: null, retriedAt: null },
  ...more,
})
const all: DeadLetterChoice = { jobId: 'w_1', itemIds: null, errorType: null }

describe.each(['SQLite in memory', 'PostgreSQL'] as const)('on %s', (kind) => {
  let db: TestStore
  beforeAll(async () => {
    db = await TestStore.open(kind, () => createDatabase(inject('postgresUrl')))
  })
  afterAll(() => db[Symbol.asyncDispose]())
  beforeEach(() => db.clear())

  const put = (...rows: LetterRow[]) => db.run(db.statements.letters.put(rows))
  const claim = (retryId: string, now = 1_000, choice = all) =>
    db.store.write(null, () => claimLetters(db.statements, choice, { retryId, now }))
  const discard = (choice = all) => db.store.write(null, () => discardLetters(db.statements, choice, 9))
  const states = async () => {
    const request = { jobId: 'w_1', state: null, errorType: null, retryId: null, cursor: null }
    const page = { bodies: false, limit: 100 }
    const { letters } = await db.store.read(() => listLetters(db.statements, { ...request, ...page }))
    return letters.map(({ itemId, state, retryId }) => [itemId, state, retryId])
  }

  test('H3: claimed by two at once, one is refused', async () => {
    await put(letter('item-0'), letter('item-1'))
    const results = await Promise.allSettled(['w_7', 'w_8'].map((retryId) => claim(retryId)))
    expect(results.map(({ status }) => status).toSorted()).toEqual(['fulfilled', 'rejected'])
    const refused = results.find((one) => one.status === 'rejected')
    const winner = results[0]?.status === 'fulfilled' ? 'w_7' : 'w_8'
    expect(refused?.reason).toMatchObject({
      code: 'being_retried',
      message: expect.stringContaining(`item-0 of w_1 is being retried by ${winner}`),
    })
    expect(await states()).toEqual([
      ['item-0', 'open', winner],
      ['item-1', 'open', winner],
    ])
  })

  test.runIf(kind === 'PostgreSQL')(
    'H3: a claim waits for one that is under way elsewhere, and sees what it did',
    async () => {
      await put(letter('item-0'))
      const other = new pg.Client({ connectionString: db.location })
      await other.connect()
      try {
        await other.query('begin')
        await other.query(`update curfew.dead_letters set retry_id = 'w_7', retried_at = 1000`)
        const claimed = claim('w_8').then(String, (error: CurfewError) => error.code)
        await vi.waitFor(async () => {
          const waiting = await db.sql(`select 1 from pg_stat_activity where wait_event_type = 'Lock'
            and datname = current_database()`)
          expect(waiting).toHaveLength(1)
        })
        await other.query('commit')
        expect(await claimed).toBe('being_retried')
      } finally {
        await other.end()
      }
    },
  )

  test('H3: while the run that has taken one works, the others of the choice stay free as well', async () => {
    await put(letter('item-0', { retryId: 't_7', retriedAt: 1 }), letter('item-1'))
    await db.put(newRow({ id: 't_7' }))
    await expect(claim('w_8', 1_000_000)).rejects.toMatchObject({ code: 'being_retried' })
    await expect(discard()).rejects.toMatchObject({ code: 'being_retried' })
    expect(await claim('w_8', 1_000_000, { ...all, itemIds: ['item-1'] })).toBe(1)
  })

  test('H3: once that run has ended, they may be claimed again', async () => {
    await put(letter('item-0', { retryId: 't_7', retriedAt: 999 }))
    await db.put({ ...newRow({ id: 't_7' }), status: 'failed', settledAt: 5 })
    expect(await claim('w_8')).toBe(1)
    expect(await states()).toEqual([['item-0', 'open', 'w_8']])
  })

  test('a run that has taken some and is not there has a minute to begin; it may ask again', async () => {
    await put(letter('item-0'))
    expect(await claim('w_7', 1_000)).toBe(1)
    expect(await claim('w_7', 2_000)).toBe(1)
    await expect(claim('w_8', 61_999)).rejects.toMatchObject({ code: 'being_retried' })
    expect(await claim('w_8', 62_000)).toBe(1)
  })

  test('claimed is what is open, of this kind, and nothing when one that is named cannot be', async () => {
    await put(
      letter('item-0'),
      letter('item-1', { errorType: 'failure' }),
      letter('item-2', { state: 'resolved' }),
      letter('item-0', { jobId: 'w_2' }),
    )
    expect(await claim('w_7', 1, { ...all, errorType: 'timeout' })).toBe(1)
    expect(await claim('w_7', 1)).toBe(2)
    for (const [itemIds, code] of [
      [['item-1', 'item-2'], 'refused'],
      [['item-1', 'item-9'], 'not_found'],
    ] as const)
      await expect(claim('w_7', 1, { ...all, itemIds: [...itemIds] })).rejects.toMatchObject({ code })
    for (const none of [
      { ...all, jobId: 'w_9' },
      { ...all, errorType: 'lost' as const },
    ])
      await expect(claim('w_7', 1, none)).rejects.toMatchObject({ code: 'not_found' })
    expect(await states()).toEqual([
      ['item-0', 'open', 'w_7'],
      ['item-1', 'open', 'w_7'],
      ['item-2', 'resolved', null],
    ])
  })

  test('discarding what is discarded changes nothing, and what is not there is told', async () => {
    await put(letter('item-0'), letter('item-1', { state: 'resolved' }))
    expect([await discard(), await discard()]).toEqual([1, 0])
    expect(await states()).toEqual([
      ['item-0', 'discarded', null],
      ['item-1', 'resolved', null],
    ])
    await expect(discard({ ...all, itemIds: ['item-0', 'item-9'] })).rejects.toMatchObject({
      code: 'not_found',
      message: expect.stringContaining('no dead letter item-9'),
    })
    await expect(claim('w_7')).rejects.toMatchObject({
      message: expect.stringContaining('no open dead letter'),
    })
  })

  test('one is read with its body, and one that is not there is told', async () => {
    await put(letter('item-0'))
    const read = (itemId: string) => db.store.read(() => readLetter(db.statements, 'w_1', itemId))
    expect(await read('item-0')).toMatchObject({ itemId: 'item-0', body: { item: 1 } })
    await expect(read('item-1')).rejects.toMatchObject({ code: 'not_found' })
  })

  test('with bodies a page is short, and a cursor of somebody else is refused', async () => {
    await put(...Array.from({ length: 60 }, (_, i) => letter(`item-${i}`)))
    const request = { jobId: null, state: null, errorType: null, retryId: null, bodies: true, limit: 1_000 }
    const list = (cursor: string | null) =>
      db.store.read(() => listLetters(db.statements, { ...request, cursor }))
    const first = await list(null)
    expect([first.letters.length, first.cursor]).toEqual([50, 'w_1 item-49'])
    expect((await list(first.cursor)).letters.map(({ itemId }) => itemId)).toHaveLength(10)
    for (const cursor of ['', 'w_1', ' item-1', 'w_1 item-1 x'])
      await expect(list(cursor)).rejects.toMatchObject({ code: 'invalid_request' })
  })
})

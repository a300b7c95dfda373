// The conformance suite, the part about dead letters: the same on every store.
import { afterAll, beforeAll, beforeEach, describe, expect, inject, test } from 'vitest'
import { createDatabase } from '../../scripts/postgres/database.ts'
import { newRow } from '../engine/fixtures/task-rows.ts'
import { STORE_KINDS, TestStore } from './fixtures/stores.ts'
import type { LetterRow } from './letter-row.ts'
import type { LetterFilter } from './letter-statements.ts'

const ANY: LetterFilter = { jobId: null, itemIds: null, state: null, errorType: null, retryId: null }

const letter = (jobId: string, itemId: string, more: Partial<LetterRow> = {}): LetterRow => ({
  ...{ jobId, itemId, state: 'open', errorType: 'timeout', message: 'größe 📧', name: 'a.md' },
  ...{ body: '{"nul":"\\u0000","item":{"a":1}}', attempts: 2, createdAt: 1_800_000_000_000 },
  ...{ updatedAt: 1_800_000_000_001, retryId: null, retriedAt: null },
  ...more,
})

describe.each(STORE_KINDS)('on %s', (kind) => {
  let db: TestStore
  beforeAll(async () => {
    db = await TestStore.open(kind, () => createDatabase(inject('postgresUrl')))
  })
  afterAll(() => db[Symbol.asyncDispose]())
  beforeEach(() => db.clear())

  const { put, list } = {
    put: (...rows: LetterRow[]) => db.run(db.statements.letters.put(rows)),
    list: async (
      filter: Partial<LetterFilter> = {},
      page: { after?: [string, string]; limit?: number } = {},
    ) => {
      const [jobId, itemId] = page.after ?? []
      const after = jobId === undefined || itemId === undefined ? null : { jobId, itemId }
      const options = { after, limit: page.limit ?? 100, bodies: true }
      const rows = await db.run(db.statements.letters.list({ ...ANY, ...filter }, options))
      return rows.map((row) => ({ ...row })) as LetterRow[]
    },
  }
  const items = async (...args: Parameters<typeof list>) => (await list(...args)).map(({ itemId }) => itemId)

  test('what is put is read back as it was; without its body only when that is not wanted', async () => {
    const rows = [letter('j_1', 'item-0', { retryId: 'w_1', retriedAt: 5 }), letter('j_1', 'item-1')]
    await put(...rows)
    expect(await list()).toEqual(rows)
    const options = { after: null, limit: 9, bodies: false }
    const [head] = await db.run(db.statements.letters.list(ANY, options))
    expect(Object.keys(head ?? {})).toHaveLength(11)
    expect(head).not.toHaveProperty('body')
  })

  test('a new one of the same item takes the place of the old, whose time it keeps', async () => {
    await put(letter('j_1', 'item-0', { state: 'discarded', retryId: 'w_1', retriedAt: 5 }))
    const again = letter('j_1', 'item-0', { errorType: 'failure', body: '{}', attempts: 3, updatedAt: 9 })
    await put({ ...again, createdAt: 9 }, letter('j_1', 'item-1'))
    expect((await list({ itemIds: ['item-0'] }))[0]).toEqual({ ...again, retriedAt: 5 })
  })

  test('they are listed by job, the newest first, then by the number of the item, in pages', async () => {
    await put(
      ...['item-10', 'item-2', 'item-1'].map((itemId) => letter('j_1', itemId)),
      ...['item-3', 'item-11'].map((itemId) => letter('j_2', itemId)),
    )
    const all = ['item-3', 'item-11', 'item-1', 'item-2', 'item-10']
    expect(await items()).toEqual(all)
    expect(await items({}, { limit: 2 })).toEqual(all.slice(0, 2))
    for (const [i, jobId] of ['j_2', 'j_2', 'j_1', 'j_1', 'j_1'].entries())
      expect(await items({}, { after: [jobId, all[i] as string] })).toEqual(all.slice(i + 1))
  })

  test('H2: they are found by job, item, state, kind of error and by who retries them', async () => {
    await put(
      letter('j_1', 'item-0'),
      letter('j_1', 'item-1', { errorType: 'failure' }),
      letter('j_1', 'item-2', { state: 'resolved' }),
      letter('j_2', 'item-3', { retryId: 'w_9' }),
    )
    expect(await items({ jobId: 'j_1' })).toEqual(['item-0', 'item-1', 'item-2'])
    expect(await items({ jobId: 'j_1', state: 'open', errorType: 'timeout' })).toEqual(['item-0'])
    expect(await items({ itemIds: ['item-3', 'item-9', 'item-1'] })).toEqual(['item-3', 'item-1'])
    expect(await items({ retryId: 'w_9' })).toEqual(['item-3'])
    const locked = await db.run(db.statements.letters.lock({ ...ANY, jobId: 'j_2' }))
    expect(locked.map((row) => ({ ...row }))).toEqual([
      { itemId: 'item-3', state: 'open', retryId: 'w_9', retriedAt: null },
    ])
  })

  test('claim and discard change those that are named, of this job alone', async () => {
    await put(letter('j_1', 'item-0'), letter('j_1', 'item-1'), letter('j_2', 'item-0'))
    await db.run(db.statements.letters.claim('j_1', ['item-0'], 'w_1', 7))
    await db.run(db.statements.letters.discard('j_1', ['item-1'], 8))
    expect(await list()).toEqual([
      letter('j_2', 'item-0'),
      letter('j_1', 'item-0', { retryId: 'w_1', retriedAt: 7 }),
      letter('j_1', 'item-1', { state: 'discarded', updatedAt: 8 }),
    ])
  })

  test('one that is retried is written by who retries it, and by nobody else', async () => {
    await put(letter('j_1', 'item-0', { retryId: 'w_1', retriedAt: 7 }), letter('j_1', 'item-1'))
    const again = letter('j_1', 'item-0', { errorType: 'failure', attempts: 3, updatedAt: 9, body: '[]' })
    await db.run(db.statements.letters.putRetried(again, ['t_1', 'w_2']))
    await db.run(db.statements.letters.resolve(again, 9, ['w_2']))
    await db.run(db.statements.letters.resolve({ jobId: 'j_1', itemId: 'item-1' }, 9, ['w_2']))
    expect((await list()).map(({ state, attempts }) => [state, attempts])).toEqual([
      ['open', 2],
      ['open', 2],
    ])
    await db.run(db.statements.letters.putRetried(again, ['t_1', 'w_1']))
    expect((await list())[0]).toEqual({ ...again, retriedAt: 7 })
    await db.run(db.statements.letters.claim('j_1', ['item-0'], 'w_1', 10))
    await db.run(db.statements.letters.resolve(again, 11, ['w_1']))
    expect((await list())[0]).toMatchObject({ state: 'resolved', retryId: null, updatedAt: 11 })
  })

  test('which runs there are, and which have come to their end', async () => {
    await db.put(newRow({ id: 't_1' }), { ...newRow({ id: 't_2' }), status: 'failed', settledAt: 5 })
    const runs = await db.run(db.statements.letters.runs(['t_1', 't_2', 't_3']))
    expect(Object.fromEntries(runs.map(({ id, isOver }) => [id, isOver]))).toEqual({ t_1: 0, t_2: 1 })
  })

  test('open ones stay; of the others those that have not been open for long go, some at a time', async () => {
    await put(
      letter('j_1', 'item-0', { updatedAt: 1 }),
      letter('j_1', 'item-1', { state: 'resolved', updatedAt: 1 }),
      letter('j_1', 'item-2', { state: 'discarded', updatedAt: 1 }),
      letter('j_1', 'item-3', { state: 'discarded', updatedAt: 50 }),
    )
    await db.run(db.statements.letters.removeOver(50, 1))
    expect(await items()).toHaveLength(3)
    await db.run(db.statements.letters.removeOver(50, 9))
    expect(await items()).toEqual(['item-0', 'item-3'])
  })
})

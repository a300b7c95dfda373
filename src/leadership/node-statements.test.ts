// The rows of processes, the same on every store.
import fc from 'fast-check'
import { afterAll, beforeAll, beforeEach, describe, expect, inject, test } from 'vitest'
import { createDatabase } from '../../scripts/postgres/database.ts'
import { claimedRow, newRow } from '../engine/fixtures/task-rows.ts'
import { STORE_KINDS, TestStore } from '../store/fixtures/stores.ts'
import { NodeStatements } from './node-statements.ts'

const plain = <T extends object>(rows: T[]): T[] => rows.map((row) => ({ ...row }))
const ids = (rows: { id: string }[]) => rows.map((row) => row.id)

describe.each(STORE_KINDS)('on %s', (kind) => {
  let db: TestStore
  beforeAll(async () => {
    db = await TestStore.open(kind, () => createDatabase(inject('postgresUrl')))
  })
  afterAll(() => db[Symbol.asyncDispose]())
  beforeEach(() => db.clear())

  describe('rows of processes', () => {
    const nodes = () => new NodeStatements(db.store.dialect)
    const signIn = async (nodeId: string, now = 1_000) =>
      (await db.run(nodes().signIn({ id: nodeId, host: 'h', pid: 1, now, leadUntil: now + 3_000 })))[0]?.epoch
    const node = async (nodeId: string) => {
      const row = (await db.run(nodes().list())).find((one) => one.id === nodeId)
      return row && { ...row }
    }

    test('a process that comes back has a higher epoch', async () => {
      expect(await signIn('n_1')).toBe(1)
      expect(await node('n_1')).toEqual({
        id: 'n_1',
        epoch: 1,
        renewedAt: 1_000,
        leadUntil: 4_000,
        goneAt: null,
      })
      await db.run(nodes().setGone('n_1', 2_000))
      expect(await node('n_1')).toEqual({
        id: 'n_1',
        epoch: 2,
        renewedAt: 1_000,
        leadUntil: 0,
        goneAt: 2_000,
      })
      expect(await signIn('n_1', 5_000)).toBe(3)
      expect(await node('n_1')).toEqual({
        id: 'n_1',
        epoch: 3,
        renewedAt: 5_000,
        leadUntil: 8_000,
        goneAt: null,
      })
    })

    test('only one that has not renewed since is deposed, once', async () => {
      await signIn('n_1')
      const seen = await node('n_1')
      if (!seen) throw new Error('it has signed in')
      expect(await db.run(nodes().depose({ ...seen, renewedAt: 999 }))).toEqual([])
      expect(await db.run(nodes().depose({ ...seen, epoch: 9 }))).toEqual([])
      expect(plain(await db.run(nodes().depose(seen)))).toEqual([{ id: 'n_1' }])
      expect(await db.run(nodes().depose(seen))).toEqual([])
      expect(await node('n_1')).toMatchObject({ epoch: 2, leadUntil: 0, goneAt: null })
    })

    test('one that is gone is gone since the first time it was said', async () => {
      await signIn('n_1')
      await db.run(nodes().setGone('n_1', 2_000))
      await db.run(nodes().setGone('n_1', 9_000))
      expect(await node('n_1')).toMatchObject({ epoch: 2, goneAt: 2_000 })
      expect(plain(await db.run(db.statements.lockGone('n_1', null)))).toEqual([{ id: 'n_1' }])
    })

    test('lockGone holds only those that are gone, or silent since', async () => {
      await signIn('n_1')
      expect(await db.run(db.statements.lockGone('n_1', null))).toEqual([])
      expect(await db.run(db.statements.lockGone('n_1', 1_000))).toEqual([])
      await db.run(nodes().depose({ id: 'n_1', epoch: 1, renewedAt: 1_000, leadUntil: 4_000, goneAt: null }))
      expect(plain(await db.run(db.statements.lockGone('n_1', 1_000)))).toEqual([{ id: 'n_1' }])
      expect(await db.run(db.statements.lockGone('n_1', 999))).toEqual([])
    })

    test('those long gone are forgotten, unless they left something', async () => {
      for (const nodeId of ['n_1', 'n_2', 'n_3', 'n_4']) await signIn(nodeId)
      for (const [nodeId, at] of [
        ['n_1', 2_000],
        ['n_2', 2_000],
        ['n_3', 9_000],
      ] as const) {
        await db.run(nodes().setGone(nodeId, at))
      }
      await db.put(claimedRow(newRow(), { now: 1_000, nodeId: 'n_2', token: 'a_1' }))
      await db.run(nodes().removeGone(5_000))
      expect(ids(await db.run(nodes().list()))).toEqual(['n_2', 'n_3', 'n_4'])
    })

    test('nextMeta counts up, from one', async () => {
      const values = []
      for (let i = 0; i < 11; i++) values.push((await db.run(nodes().nextMeta('fence')))[0]?.value)
      expect(values.map(Number)).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11])
    })

    test('a number in meta only ever rises', async () => {
      const value = async () => Number((await db.run(nodes().readMeta('mark')))[0]?.value)
      await fc.assert(
        fc.asyncProperty(fc.array(fc.nat(2_000_000_000), { minLength: 1, maxLength: 5 }), async (numbers) => {
          await db.sql(`delete from {s}meta where key = 'mark'`)
          for (const one of numbers) await db.run(nodes().raiseMeta('mark', one))
          expect(await value()).toBe(Math.max(...numbers))
        }),
        { numRuns: 10, examples: [[[9, 10]]] },
      )
    })
  })
})

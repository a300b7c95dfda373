// Dead letters in the transaction of the note that tells of them, on real stores.
import { afterAll, beforeAll, beforeEach, describe, expect, inject, test } from 'vitest'
import { createDatabase } from '../../scripts/postgres/database.ts'
import type { DeadLetterBody, DeadLetterNote } from '../core/note.ts'
import { TestStore } from '../store/fixtures/stores.ts'
import type { LetterRow } from '../store/letter-row.ts'
import type { TaskRow } from '../store/task-row.ts'
import { AgentMemory } from './agent-memory.ts'
import type { Command } from './command.ts'
import { commitBatch } from './commit-batch.ts'
import { newAgentRow } from './fixtures/agent-rows.ts'
import { claimedRow, newRow } from './fixtures/task-rows.ts'

const NOW = 10_000
const ANY = { jobId: null, itemIds: null, state: null, errorType: null, retryId: null }
const ALL = { after: null, limit: 100, bodies: true }

const timedOut = (more: Partial<DeadLetterBody> = {}): DeadLetterBody => ({
  ...{ errorType: 'timeout', message: 'Agent item-0 timed out', name: 'a.md', item: { path: 'a.md' } },
  ...{ timeout: { kind: 'agent', limitMs: 2_000 }, history: [{ attempt: 1 }, { attempt: 2 }] },
  ...more,
})
const of = (jobId: string, itemId: string, letter: DeadLetterBody | null): DeadLetterNote => ({
  ...{ jobId, itemId, letter },
})

describe.each(['SQLite in memory', 'PostgreSQL'] as const)('on %s', (kind) => {
  let db: TestStore
  beforeAll(async () => {
    db = await TestStore.open(kind, () => createDatabase(inject('postgresUrl')))
  })
  afterAll(() => db[Symbol.asyncDispose]())
  beforeEach(async () => {
    await db.clear()
    // The task of an item, below its run.
    await db.put({ ...newAgentRow(), id: 'w_1' }, { ...newAgentRow(), id: 'w_2' })
    await db.put(item('t_1', 'w_1'), item('t_2', 'w_2'))
  })
  const item = (id: string, runId: string): TaskRow => ({
    ...claimedRow(newRow({ id }), { now: 1_000, nodeId: 'n_1', token: 'a_2' }),
    ...{ attempt: 2, parentId: runId, rootId: runId },
  })
  const note = (taskId: string, letters: DeadLetterNote[], token = 'a_2'): Command => {
    return {
      type: 'input',
      taskId,
      input: { type: 'note', token, events: [], letters },
    }
  }
  const apply = async (...commands: Command[]) => {
    const context = {
      ...{ nodeId: 'n_1', peers: () => [], endedClaims: [], overdueMs: 3_000, chance: () => 0.5 },
      claimed: () => undefined,
      takenBack: () => undefined,
    }
    const request = {
      fence: null,
      context,
      memory: new AgentMemory(),
      wish: null,
      pace: { late: 0 },
      now: () => NOW,
    }
    return (await commitBatch(db.store, commands, request)).answers.map(({ type }) => type)
  }
  const stored = async () =>
    (await db.run(db.statements.letters.list(ANY, ALL))).map((row) => ({ ...row })) as LetterRow[]

  test('D1: the item that was given up is stored with the note', async () => {
    const letter = timedOut({ message: 'it said \0 and stopped' })
    expect(await apply(note('t_1', [of('w_1', 'item-0', letter)]))).toEqual(['accepted'])
    expect(await stored()).toEqual([
      {
        ...{ jobId: 'w_1', itemId: 'item-0', state: 'open', errorType: 'timeout', name: 'a.md' },
        ...{ message: 'it said  and stopped', body: JSON.stringify(letter), attempts: 2 },
        ...{ createdAt: NOW, updatedAt: NOW, retryId: null, retriedAt: null },
      },
    ])
  })

  test('a note of a stale attempt stores nothing', async () => {
    const commands = [note('t_1', [of('w_1', 'item-0', timedOut())], 'a_1')]
    expect(await apply(...commands)).toEqual(['stale'])
    expect(await stored()).toEqual([])
  })

  test('an attempt that was cancelled while its item ended tells of it until it has stopped', async () => {
    await apply({ type: 'input', taskId: 't_1', input: { type: 'cancel' }, scope: null })
    expect(await apply(note('t_1', [of('w_1', 'item-0', timedOut())]))).toEqual(['stale'])
    expect((await stored()).map(({ itemId }) => itemId)).toEqual(['item-0'])
  })

  test('of several about one item in a batch the last counts', async () => {
    await apply(
      note('t_1', [of('w_1', 'item-0', timedOut()), of('w_1', 'item-1', timedOut())]),
      note('t_1', [of('w_1', 'item-0', timedOut({ errorType: 'failure' })), of('w_1', 'item-1', null)]),
    )
    expect((await stored()).map(({ itemId, errorType }) => [itemId, errorType])).toEqual([
      ['item-0', 'failure'],
    ])
  })

  test('H2: a run that works on it again resolves it, or opens it again with the longer history', async () => {
    await apply(note('t_1', [of('w_1', 'item-0', timedOut()), of('w_1', 'item-1', timedOut())]))
    await db.run(db.statements.letters.claim('w_1', ['item-0', 'item-1'], 'w_2', 5))
    const again = timedOut({ errorType: 'failure', history: [1, 2, 3] })
    await apply(note('t_2', [of('w_1', 'item-0', null), of('w_1', 'item-1', again)]))
    expect(await stored()).toMatchObject([
      { itemId: 'item-0', state: 'resolved', retryId: null, attempts: 2 },
      { itemId: 'item-1', state: 'open', retryId: null, errorType: 'failure', attempts: 3 },
    ])
  })

  test('a run says nothing of the letters of another that it does not work on', async () => {
    await apply(note('t_1', [of('w_1', 'item-0', timedOut())]))
    const before = await stored()
    await apply(note('t_2', [of('w_1', 'item-0', null), of('w_1', 'item-5', timedOut())]))
    await apply(note('t_2', [of('w_1', 'item-0', timedOut({ errorType: 'lost' }))]))
    expect(await stored()).toEqual(before)
  })
})

import { execFile } from 'node:child_process'
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { promisify } from 'node:util'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { MAPREDUCE_FORMAT } from '../definitions/mapreduce-model.ts'
import type { RunRecord } from './run-folder.ts'
import { RunFolder } from './run-folder.ts'

const JOB = 'w_1'
const RECORD = { format: MAPREDUCE_FORMAT, jobId: JOB, memberOf: null, endedAt: null } as RunRecord
const CONTENDER = path.join(import.meta.dirname, 'fixtures/contending-process.ts')

let state: string
let runs: string
beforeEach(() => {
  state = mkdtempSync(path.join(tmpdir(), 'curfew-state-'))
  runs = path.join(state, 'runs')
})
afterEach(() => rmSync(state, { recursive: true }))

const inUse = expect.objectContaining({ code: 'in_use', fields: { jobId: JOB, pid: process.pid } })

test('one at a time has a run; a look at it needs nobody to let go', () => {
  const folder = RunFolder.create(runs, RECORD)
  expect(RunFolder.isHeld(runs, JOB)).toBe(true)
  expect(() => RunFolder.open(runs, JOB)).toThrow(inUse)
  expect(RunFolder.look(runs, JOB).record).toEqual(RECORD)
  folder.unlock()
  expect(RunFolder.isHeld(runs, JOB)).toBe(false)
  const next = RunFolder.open(runs, JOB)
  // It was this one's: the first has nothing to let go of any more.
  folder.unlock()
  expect(() => RunFolder.open(runs, JOB)).toThrow(inUse)
  next.unlock()
})

test('of three that find a run whose process died, one has it', async () => {
  RunFolder.create(runs, RECORD).unlock()
  const contend = () => promisify(execFile)(process.execPath, [CONTENDER, runs, JOB, '100'])
  const told = await Promise.all([contend(), contend(), contend()])
  expect(told.map(({ stdout }) => stdout)).toEqual(['0\n', '0\n', '0\n'])
})

test('what is done while a run is free is not done while somebody has it, and nobody can have it meanwhile', async () => {
  const folder = RunFolder.create(runs, RECORD)
  let done = 0
  const work = async () => {
    expect(() => RunFolder.open(runs, JOB)).toThrow(inUse)
    return ++done
  }
  expect(await RunFolder.whileFree(runs, JOB, work)).toBeNull()
  folder.unlock()
  expect(await RunFolder.whileFree(runs, JOB, work)).toBe(1)
  const failing = RunFolder.whileFree(runs, JOB, () => Promise.reject(new Error('it failed')))
  await expect(failing).rejects.toThrow('it failed')
  RunFolder.open(runs, JOB).unlock()
  // By a process that is gone.
  writeFileSync(path.join(runs, JOB, 'runner.lock'), JSON.stringify({ pid: process.pid, startTime: -1 }))
  expect(await RunFolder.whileFree(runs, JOB, work)).toBe(2)
  expect(RunFolder.isHeld(runs, JOB)).toBe(false)
})

test('a run without a folder is free: git may still know of its worktrees', async () => {
  mkdirSync(runs)
  expect(await RunFolder.whileFree(runs, 'w_gone', async () => 'done')).toBe('done')
  expect(existsSync(path.join(runs, 'w_gone'))).toBe(false)
})

test('a list is one JSON file however it is written, and none of it is left of the one before', () => {
  const folder = RunFolder.create(runs, RECORD)
  const long = 'ä€😀'.repeat(20_000)
  for (const list of [[], [{ n: 1 }], [long, null, { long }, [1, '"\n']], ['short']]) {
    const file = folder.listFile('results', list.values())
    expect(JSON.parse(readFileSync(file, 'utf8'))).toEqual(list)
  }
  folder.unlock()
})

test('after its end a run is kept for what is still needed of it', () => {
  const folder = RunFolder.create(runs, RECORD)
  folder.setCaptures({ before: 'it' })
  folder.setItems([{ id: 'item-0', name: 'item-0', item: 1 }])
  folder.end(7, { hasLetters: true })
  const kept = RunFolder.look(runs, JOB)
  expect([kept.record.endedAt, kept.captures(), kept.items()]).toEqual([7, { before: 'it' }, null])
  RunFolder.open(runs, JOB).end(8, { hasLetters: false })
  expect(existsSync(path.join(runs, JOB))).toBe(false)
})

test('items are read one at a time, in their order, by this process and by the next', () => {
  const folder = RunFolder.create(runs, RECORD)
  // Longer than what is read and written at once; of two and three bytes a character, so that one is cut.
  const items = ['', 'ä€', 'ä€'.repeat(50_000), 'ä€'.repeat(200), 'last'].map((item, i) => ({
    ...{ id: `item-${9 - i}`, name: `the ${i}.`, item },
  }))
  folder.setItems([{ id: 'item-0', name: 'before', item: null }])
  expect(folder.items()?.size).toBe(1)
  folder.setItems(items)
  for (const one of [folder, RunFolder.look(runs, JOB)]) {
    const list = one.items()
    expect([...(list?.ids() ?? [])]).toEqual(items.map(({ id }) => id))
    expect([...(list?.values() ?? [])]).toEqual(items)
    expect(list?.get('item-7')).toEqual(items[2])
    expect([list?.has('item-5'), list?.has('item-0'), list?.get('item-0')]).toEqual([true, false, null])
    one.unlock()
  }
})

test('results of items that are not of this run do not count, and the others keep the order they came in', () => {
  const folder = RunFolder.create(runs, RECORD)
  folder.setItems(['item-0', 'item-1', 'item-2'].map((id) => ({ id, name: id, item: id })))
  const result = { name: '', status: 'successful', tookMs: 1, attempts: [], captures: {} } as const
  for (const id of ['item-2', 'item-7', 'item-0']) folder.setResult({ ...result, id, attempts: [] })
  for (const one of [folder, RunFolder.look(runs, JOB)]) {
    expect([...one.results()].map(({ id }) => id)).toEqual(['item-2', 'item-0'])
    expect(one.result('item-1')).toBeNull()
    one.unlock()
  }
})

test('a list of items that somebody else wrote into is told', () => {
  const folder = RunFolder.create(runs, RECORD)
  writeFileSync(path.join(folder.path, 'items.jsonl'), '{"id":"item-0"}\nrubbish\n')
  expect(() => folder.items()).toThrow(expect.objectContaining({ code: 'broken_run' }))
  folder.unlock()
})

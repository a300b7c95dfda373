import { appendFileSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { ResultLog } from './result-log.ts'
import type { ItemResult } from './run-folder.ts'

let folder: string
let file: string
const logs: ResultLog[] = []

beforeEach(() => {
  folder = mkdtempSync(path.join(os.tmpdir(), 'curfew-results-'))
  file = path.join(folder, 'results.jsonl')
})

afterEach(() => {
  for (const log of logs.splice(0)) log.close()
  rmSync(folder, { recursive: true })
})

function open(): ResultLog {
  const log = new ResultLog(file)
  logs.push(log)
  return log
}

const result = (id: string, name = id): ItemResult => ({
  ...{ id, name, status: 'successful', tookMs: 1, attempts: [], captures: {} },
})

test('what was written is read again, by this process and by the next', () => {
  const log = open()
  log.add(result('item-0', 'ä€😀'))
  log.add(result('item-1'))
  log.add(result('item-0', 'later'))
  for (const one of [log, open()]) {
    expect([...one.ids()]).toEqual(['item-0', 'item-1'])
    expect([one.get('item-0')?.name, one.get('item-1')?.name, one.get('item-2')]).toEqual([
      'later',
      'item-1',
      null,
    ])
  }
})

test('a line that a crash cut off counts for nothing, and the next one is whole', () => {
  open().add(result('item-0'))
  appendFileSync(file, '{"id":"item-1","na')
  const log = open()
  expect([...log.ids()]).toEqual(['item-0'])
  log.add(result('item-2'))
  expect(open().get('item-2')).toEqual(result('item-2'))
  expect(readFileSync(file, 'utf8').trimEnd().split('\n')).toHaveLength(2)
})

test('lines that are no results are passed over', () => {
  open().add(result('item-0'))
  appendFileSync(file, 'rubbish\n{"id":7}\n[]\n')
  expect([...open().ids()]).toEqual(['item-0'])
})

test('a line that could not be written whole goes before the next one is', () => {
  const log = open()
  log.add(result('item-0'))
  // As much of it as there was space for.
  appendFileSync(file, '{"id":"item-1","na')
  log.add(result('item-2'))
  log.add(result('item-3'))
  for (const one of [log, open()]) {
    expect([...one.ids()]).toEqual(['item-0', 'item-2', 'item-3'])
    for (const id of one.ids()) expect(one.get(id)).toEqual(result(id))
  }
})

test('results larger than what is read at once are found, each where it is', () => {
  const log = open()
  // Of two and three bytes a character, so that one is cut wherever a piece ends.
  const long = (times: number) => 'ä€'.repeat(times)
  const names = [long(10), long(700_000), 'short', long(210_000), '', long(90_000)]
  for (const [n, name] of names.entries()) log.add(result(`item-${n}`, name))
  appendFileSync(file, `{"id":"item-0","name":"${long(500_000)}`)
  const again = open()
  expect([...again.ids()]).toHaveLength(names.length)
  for (const [n, name] of names.entries()) expect(again.get(`item-${n}`)?.name === name).toBe(true)
  again.add(result('item-0', 'later'))
  expect([...open().ids()].map((id) => open().get(id)?.name.length)).toEqual([
    'later'.length,
    ...names.slice(1).map(({ length }) => length),
  ])
})

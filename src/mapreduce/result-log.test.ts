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

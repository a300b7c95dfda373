import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import type { Note } from '../core/note.ts'
import { SystemClock } from '../core/system-clock.ts'
import { loadMapreduce } from '../definitions/mapreduce.ts'
import { MAPREDUCE_FORMAT } from '../definitions/mapreduce-model.ts'
import { SILENT } from '../store/fixtures/stores.ts'
import { workOnItem } from './item-work.ts'
import type { Attempt } from './mapreduce-run.ts'
import { MapreduceRun } from './mapreduce-run.ts'
import type { ItemStatus } from './run-folder.ts'
import { RunFolder } from './run-folder.ts'

const { model } = loadMapreduce(`name: drinks
mode: mapreduce
map:
  input: { items: [tea, milk] }
  agent_template: [{ shell: 'true' }]
`)

let state: string
let folder: RunFolder
beforeEach(() => {
  state = mkdtempSync(path.join(tmpdir(), 'curfew-state-'))
  folder = RunFolder.create(path.join(state, 'runs'), {
    ...{ format: MAPREDUCE_FORMAT, jobId: 'w_1', file: null, place: null, isStarted: true, cwd: state },
    ...{
      useGit: false,
      base: null,
      model,
      params: {},
      args: '',
      overrides: [],
      retryOf: null,
      memberOf: null,
      endedAt: null,
    },
    retrying: ['item-0'],
  })
  folder.setItems([{ id: 'item-0', name: 'tea', item: 'tea' }])
})
afterEach(() => {
  folder.unlock()
  rmSync(state, { recursive: true })
})

const made = (attempt: number, status: ItemStatus) => ({
  ...{ attempt, status, startedAt: 0, tookMs: 1, steps: [], timeout: null, failure: null, kept: null },
})

/** As the next process finds it. */
function goOn() {
  const clock = new SystemClock()
  return new MapreduceRun({
    ...{ folder, env: {}, clock, chance: () => 0, logger: SILENT, changed: () => {} },
    ...{ note: () => {}, print: () => {} },
  })
}

test('I2: one that was retried, and whose process died before it said so, is not worked on again', async () => {
  const attempts = [made(1, 'timed_out'), made(2, 'successful')]
  folder.setResult({ id: 'item-0', name: 'tea', status: 'successful', tookMs: 2, attempts, captures: {} })
  const noted: Note[] = []
  const run = goOn()
  const commands = {
    note: async (note: Note) => {
      noted.push(note)
      return null
    },
    run: () => expect.fail('a command was started'),
  }
  const context = { attempt: 2, signal: new AbortController().signal }
  const output = await workOnItem(run, 'item-0', { context, commands } as unknown as Attempt)
  expect(output).toMatchObject({ id: 'item-0', status: 'successful', attempts: 2 })
  // It was in the dead letters from before.
  expect(noted).toEqual([{ events: [], letters: [{ jobId: 'w_1', itemId: 'item-0', letter: null }] }])
  expect(run.takeTimedOut()).toEqual([])
  expect(RunFolder.look(path.join(state, 'runs'), 'w_1').record.retrying).toEqual([])
})

test('I2: what is to be retried is so until it was, whoever goes on', () => {
  const attempts = [made(1, 'timed_out')]
  folder.setResult({ id: 'item-0', name: 'tea', status: 'timed_out', tookMs: 1, attempts, captures: {} })
  expect(goOn().takeTimedOut()).toEqual(['item-0'])
  const run = goOn()
  expect([run.live.counts().timedOut, run.takeTimedOut(), run.live.counts().timedOut]).toEqual([
    1,
    ['item-0'],
    0,
  ])
  run.retried('item-0')
  expect(goOn().takeTimedOut()).toEqual([])
})

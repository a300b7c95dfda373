// What the tally makes of items that have nothing to say of themselves.
import { mkdtempSync, rmSync } from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import type { Note } from '../core/note.ts'
import { SystemClock } from '../core/system-clock.ts'
import { loadMapreduce } from '../definitions/mapreduce.ts'
import { MAPREDUCE_FORMAT } from '../definitions/mapreduce-model.ts'
import type { Attempt } from './mapreduce-run.ts'
import { MapreduceRun } from './mapreduce-run.ts'
import { tally } from './phase-work.ts'
import type { ItemAttempt } from './run-folder.ts'
import { RunFolder } from './run-folder.ts'

const clock = new SystemClock()
const silent = () => {}
const logger = { debug: silent, info: silent, warn: silent, error: silent }
let state: string
let runs: string
let notes: Note[]

beforeEach(() => {
  state = mkdtempSync(path.join(os.tmpdir(), 'curfew-tally-'))
  runs = path.join(state, 'runs')
  notes = []
})

afterEach(() => rmSync(state, { recursive: true, force: true }))

function started(action: string): MapreduceRun {
  const { model } = loadMapreduce(`
name: each
mode: mapreduce
map:
  input: { items: [1] }
  timeout_config: { timeout_action: ${action} }
  agent_template:
    - shell: "true"
`)
  const folder = RunFolder.create(runs, {
    ...{ format: MAPREDUCE_FORMAT, jobId: 'w_1', file: null, place: null, isStarted: true, cwd: runs },
    ...{ useGit: false, base: null, model, params: {}, args: null, overrides: [], retrying: [] },
    ...{ retryOf: null, memberOf: null, endedAt: null },
  })
  folder.setItems([{ id: 'item-0', name: 'tea', item: { n: 1 } }])
  const told = { changed: silent, note: silent, print: silent }
  return new MapreduceRun({ folder, env: {}, clock, chance: () => 0, logger, ...told })
}

/** Its command could not be killed: the store waits for it no longer. */
const abandoned: ItemAttempt = {
  ...{
    attempt: 1,
    startedAt: 1_000,
    tookMs: 2_500,
    status: 'successful',
    failure: null,
    steps: [],
    kept: null,
  },
  timeout: {
    ...{ type: 'agent', command: 0, commandType: 'shell', text: 'true', limitMs: 2_000, elapsedMs: 2_400 },
    ...{ source: 'agent_timeout_secs', resolution: 'ForceTermination', stdout: 'partial', stderr: '' },
    message: 'Agent item-0 timed out after 2s',
  },
}

function counted(run: MapreduceRun) {
  const commands = {
    note: async (note: Note) => {
      notes.push(note)
      return null
    },
  }
  return tally(run, { commands, context: {} } as unknown as Attempt)
}

const letters = () => notes.flatMap((note) => note.letters.map(({ letter }) => letter))

test('K2: one that could not be killed is told as timed out, with its limit', async () => {
  const run = started('dlq')
  run.itemStopped('item-0', Promise.resolve(abandoned))
  expect((await counted(run)).counts).toMatchObject({ total: 1, timedOut: 1, failed: 0 })
  expect(letters()).toMatchObject([
    { errorType: 'timeout', timeout: { kind: 'agent', limitMs: 2_000, elapsedMs: 2_400 } },
  ])
  expect(letters()[0]).toMatchObject({ output: { stdout: 'partial' } })
})

test('K2: and its action holds', async () => {
  const skip = started('skip')
  skip.itemStopped('item-0', Promise.resolve(abandoned))
  expect((await counted(skip)).counts).toMatchObject({ skipped: 1, timedOut: 0 })
  expect(letters()).toEqual([])
  skip.folder.discard()

  const fail = started('fail')
  fail.itemStopped('item-0', Promise.resolve(abandoned))
  await expect(counted(fail)).rejects.toThrow('item item-0 (tea) timed out and timeout_action is fail')
})

test('one of which nothing is known is lost', async () => {
  expect((await counted(started('dlq'))).counts).toMatchObject({ total: 1, failed: 1 })
  expect(letters()).toMatchObject([{ errorType: 'lost' }])
})

import { mkdirSync } from 'node:fs'
import path from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { SystemClock } from '../core/system-clock.ts'
import { loadMapreduce } from '../definitions/mapreduce.ts'
import { MAPREDUCE_FORMAT } from '../definitions/mapreduce-model.ts'
import { SILENT } from '../store/fixtures/stores.ts'
import { TemporaryRepository } from './fixtures/temporary-repository.ts'
import { listKeptRefs } from './kept-refs.ts'
import { MapreduceRun } from './mapreduce-run.ts'
import { RunFolder } from './run-folder.ts'

const { model } = loadMapreduce(`name: drinks
mode: mapreduce
map:
  input: { items: [tea] }
  agent_template: [{ shell: 'true' }]
`)

let repository: TemporaryRepository
beforeEach(() => {
  repository = TemporaryRepository.begin()
})
afterEach(() => repository.remove())

function begun(): MapreduceRun {
  const folder = RunFolder.create(repository.runs, {
    ...{ format: MAPREDUCE_FORMAT, jobId: 'w_1', file: null, place: null, isStarted: true },
    ...{ cwd: repository.top, useGit: true, base: null, model, params: {}, args: '', overrides: [] },
    ...{ retryOf: null, memberOf: null, endedAt: null, retrying: [] },
  })
  folder.setItems([{ id: 'item-0', name: 'tea', item: 'tea' }])
  return new MapreduceRun({
    ...{ folder, env: repository.env, clock: new SystemClock(), chance: () => 0, logger: SILENT },
    ...{ changed: () => {}, note: () => {}, print: () => {} },
  })
}

test('what commands did in a worktree beside that of their item is kept at the end of the run', async () => {
  const run = begun()
  const folders = await run.folders()
  const { path: folder } = await folders.create('item-0')
  repository.gitIn(folder, 'worktree', 'add', '--quiet', '-b', 'side', '../side')
  repository.write('a.txt', 'not committed', path.join(run.folder.worktrees, 'side'))
  mkdirSync(path.join(run.folder.worktrees, 'scratch'))
  await folders.remove('item-0', { keep: true })

  const [note, ...more] = await run.end()
  expect([note, more]).toEqual([expect.stringContaining('refs/curfew/w_1/side'), []])
  expect(repository.git('show', 'refs/curfew/w_1/side:a.txt')).toBe('not committed')
  expect(repository.worktrees()).toEqual([]) // or nobody could check out its branch
  expect((await listKeptRefs(repository.top, repository)).refs).toMatchObject([
    { jobId: 'w_1', itemId: 'side' },
  ])
  expect(RunFolder.exists(repository.runs, 'w_1')).toBe(false)
})

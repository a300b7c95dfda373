import { chmodSync, existsSync, mkdirSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { MAPREDUCE_FORMAT } from '../definitions/mapreduce-model.ts'
import { TemporaryRepository } from '../mapreduce/fixtures/temporary-repository.ts'
import { startTimeOf } from '../worker/process-table.ts'
import { curfew } from './fixtures/test-io.ts'

let repository: TemporaryRepository
beforeEach(() => {
  repository = TemporaryRepository.begin()
})
afterEach(() => repository.remove())

/** A folder with changes that a run left. */
async function leave(jobId: string): Promise<string> {
  const { path: folder } = await (await repository.open({ jobId })).create('item-0')
  repository.write('draft.txt', 'draft', folder)
  writeFileSync(
    path.join(repository.runs, jobId, 'run.json'),
    JSON.stringify({ format: MAPREDUCE_FORMAT, jobId }),
  )
  return folder
}

const lockOf = (jobId: string) => path.join(repository.runs, jobId, 'runner.lock')
const OURS = JSON.stringify({ pid: process.pid, startTime: startTimeOf(process.pid) })

async function clean(...args: string[]) {
  const env = { ...(repository.env as Record<string, string>), CURFEW_STATE_DIR: repository.home }
  const io = await curfew(['worktrees', 'clean', '--json', ...args], { cwd: repository.top, env })
  expect(io.code, io.err).toBe(0)
  return (io.json() as { cleaned: { jobId: string; kept: string | null }[] }).cleaned
}

test('what nobody works on goes, what was made in it is kept, and what somebody works on stays', async () => {
  const left = await leave('w_1')
  const used = await leave('w_2')
  writeFileSync(lockOf('w_2'), OURS)
  expect(await clean('--dry-run')).toMatchObject([{ jobId: 'w_1', kept: null }])
  expect([existsSync(left), existsSync(used)]).toEqual([true, true])
  expect(await clean()).toMatchObject([{ jobId: 'w_1', kept: 'refs/curfew/w_1/item-0' }])
  expect([existsSync(left), existsSync(used)]).toEqual([false, true])
  expect(repository.git('show', 'refs/curfew/w_1/item-0:draft.txt')).toBe('draft')
  expect(repository.worktrees()).toEqual([used])
  expect(readdirSync(path.join(repository.runs, 'w_1'))).not.toContain('runner.lock')
})

test('a run that somebody goes on with meanwhile is left alone', async () => {
  await leave('w_1')
  const used = await leave('w_2')
  // While the work of the first is kept, the second is taken.
  const bin = path.join(repository.home, 'bin')
  mkdirSync(bin)
  const git = `#!/bin/sh\ncase " $* " in *" commit-tree "*) printf '%s' '${OURS}' > '${lockOf('w_2')}';; esac\n`
  writeFileSync(path.join(bin, 'git'), `${git}PATH=\${PATH#*:} exec git "$@"\n`)
  chmodSync(path.join(bin, 'git'), 0o755)
  repository.env.PATH = `${bin}:${repository.env.PATH}`
  expect(await clean()).toMatchObject([{ jobId: 'w_1' }])
  expect([existsSync(used), repository.worktrees()]).toEqual([true, [used]])
  expect(repository.refs()).toEqual(['refs/curfew/w_1/item-0'])
})

test('a worktree whose run has no folder any more is taken off the list of git', async () => {
  const left = await leave('w_1')
  rmSync(path.join(repository.runs, 'w_1'), { recursive: true })
  expect(repository.worktrees()).toEqual([left])
  expect(await clean()).toMatchObject([{ jobId: 'w_1' }])
  expect(repository.worktrees()).toEqual([])
})

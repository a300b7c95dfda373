// Where a command is started may lack what others take for granted.

import { execFile } from 'node:child_process'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { CliProcess } from './fixtures/cli-process.ts'

const MAIN = path.join(import.meta.dirname, 'main.ts')

let cwd: string

beforeEach(async () => {
  cwd = await mkdtemp(path.join(tmpdir(), 'curfew-cli-'))
})

afterEach(async () => {
  await rm(cwd, { recursive: true, force: true })
})

/** As for a user that the machine does not know, in a container for example. */
const HOMELESS = `data:text/javascript,import os from 'node:os'; os.homedir = () => { throw new Error('no entry') }`

function homeless(...args: string[]): CliProcess {
  const none = { HOME: '', XDG_CACHE_HOME: '', XDG_STATE_HOME: '', CURFEW_STATE_DIR: '' }
  const NODE_OPTIONS = `--import=${HOMELESS.replaceAll(' ', '%20')}`
  return new CliProcess(args, { cwd, env: { ...none, NODE_OPTIONS } })
}

test('without a home commands work', async () => {
  const version = homeless('--version')
  expect([await version.exited, version.stderr]).toEqual([0, ''])
  const list = homeless('worktrees', 'list', '--json')
  expect([await list.exited, list.stderr]).toEqual([0, ''])
})

test('in a folder that is gone a command says so', async () => {
  const script = `mkdir gone; cd gone; rmdir ../gone; exec "${process.execPath}" "${MAIN}" list --json`
  const { code, stderr } = await new Promise<{ code: unknown; stderr: string }>((resolve) => {
    execFile('sh', ['-c', script], { cwd, timeout: 40_000 }, (error, _, stderr) =>
      resolve({ code: error?.code, stderr }),
    )
  })
  expect(code).toBe(1)
  expect(JSON.parse(stderr)).toMatchObject({ error: { code: 'no_such_folder', hint: expect.any(String) } })
})

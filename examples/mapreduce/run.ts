// The main example: `npm start`.
// It runs pipeline.yml in a temporary git repository. Some items succeed, one fails, one hangs and is stopped, and one
// ignores SIGTERM and is killed. With --keep the repository stays, to look around in.

import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'

const isKept = process.argv.includes('--keep')
const here = import.meta.dirname
const cli = path.join(here, '../../src/cli/main.ts')
const folder = mkdtempSync(path.join(tmpdir(), 'curfew-mapreduce-'))
const repository = path.join(folder, 'drinks')
const env = {
  ...process.env,
  // The script that stands in for claude comes first.
  PATH: `${path.join(here, 'bin')}${path.delimiter}${process.env.PATH}`,
  // Runs and their worktrees are kept here, not in the home folder.
  CURFEW_STATE_DIR: path.join(folder, 'state'),
}

function git(...args: string[]): string {
  return execFileSync('git', args, { cwd: repository, env, encoding: 'utf8' })
}

/** In this terminal. Answers its exit code. */
async function curfew(...args: string[]): Promise<number> {
  const child = spawn(process.execPath, [cli, ...args], { cwd: repository, env, stdio: 'inherit' })
  // Ctrl-C reaches it too: it stops what runs, and this waits for that.
  const pass = (signal: NodeJS.Signals) => void (signal === 'SIGTERM' && child.kill(signal))
  process.on('SIGINT', pass).on('SIGTERM', pass)
  const [code] = (await once(child, 'exit')) as [number | null]
  process.off('SIGINT', pass).off('SIGTERM', pass)
  return code ?? 1
}

mkdirSync(repository)
try {
  git('init', '--quiet')
  for (const [key, value] of Object.entries({ name: 'Ada', email: 'ada@example.org' }))
    git('config', `user.${key}`, value)
  git('config', 'commit.gpgSign', 'false')
  for (const file of ['pipeline.yml', 'items.json'])
    copyFileSync(path.join(here, file), path.join(repository, file))
  git('add', '.')
  git('commit', '--quiet', '--message', 'What to ask')

  console.log('$ curfew run pipeline.yml')
  const code = await curfew('run', 'pipeline.yml')
  // 1: it ran to its end, and items are in the dead letters. Three of these have to be.
  if (code === 1) await lookAround()
  else process.exitCode = code
  if (code === 130 && !isKept) console.log('(Not this one: its repository is removed now. --keep leaves it.)')
} finally {
  if (!isKept) rmSync(folder, { recursive: true, force: true })
}

async function lookAround(): Promise<void> {
  console.log('\n$ cat answers.md')
  console.log(readFileSync(path.join(repository, 'answers.md'), 'utf8').trimEnd())
  console.log('\n$ git log --format=%s --no-merges')
  console.log(git('log', '--format=%s', '--no-merges').trimEnd())
  console.log('\n$ curfew dlq list')
  await curfew('dlq', 'list')
  console.log(`
curfew run exited with 1, for there are items in the dead letters: here that is what was to be shown.
Where to look next:
  examples/mapreduce/pipeline.yml   what ran
  docs/mapreduce.md                 every key, and what to do about timeouts
  npm start -- --keep               leaves the repository, for curfew dlq show, dlq retry and events`)
  if (!isKept) return
  console.log(`
It is in ${repository}. In there:
  export CURFEW_STATE_DIR=${env.CURFEW_STATE_DIR} PATH=${path.join(here, 'bin')}:$PATH
  ${process.execPath} ${cli} dlq list`)
}

import { chmodSync, existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import type { Clock } from '../core/clock.ts'
import { SystemClock } from '../core/system-clock.ts'
import { isAlive, startTimeOf } from '../worker/process-table.ts'
import { TemporaryRepository } from './fixtures/temporary-repository.ts'
import { Git } from './git.ts'
import { checkVersion } from './repository.ts'

let repository: TemporaryRepository
beforeEach(() => {
  repository = TemporaryRepository.begin()
})
afterEach(() => repository.remove())

/** Timers of this length come at once, after `before`; all others as they should. */
function hurried(
  isHurried: (delayMs: number) => boolean,
  before: (delayMs: number) => void = () => {},
): Clock {
  const clock = new SystemClock()
  return {
    wall: () => clock.wall(),
    monotonic: () => clock.monotonic(),
    endOfTurn: (callback) => clock.endOfTurn(callback),
    setTimer: (delayMs, callback) => {
      if (!isHurried(delayMs)) return clock.setTimer(delayMs, callback)
      before(delayMs)
      return clock.setTimer(0, callback)
    },
  }
}

const gitWith = (clock: Clock) => new Git({ clock, env: repository.env })

test('a lock of another git is waited for', async () => {
  const lock = path.join(repository.top, '.git/index.lock')
  const waits: number[] = []
  const clock = hurried(
    (delayMs) => delayMs < 1_500,
    (delayMs) => {
      waits.push(delayMs)
      if (waits.length === 3) rmSync(lock)
    },
  )
  writeFileSync(lock, '')
  repository.write('a.txt', 'a')
  await gitWith(clock).run({ cwd: repository.top }, ['add', '--', 'a.txt'])
  expect(waits).toEqual([50, 100, 200])
  expect(repository.git('status', '--porcelain')).toBe('A  a.txt')
})

test('a lock that stays is told after a bounded wait', async () => {
  writeFileSync(path.join(repository.top, '.git/index.lock'), '')
  let waitedMs = 0
  const clock = hurried(
    (delayMs) => delayMs < 1_500,
    (delayMs) => {
      waitedMs += delayMs
    },
  )
  const adding = gitWith(clock).run({ cwd: repository.top }, ['add', '--all'])
  await expect(adding).rejects.toMatchObject({
    code: 'git_failed',
    message: expect.stringContaining('index.lock'),
  })
  expect(waitedMs).toBe(50 + 100 + 200 + 400 + 800 + 6 * 1_000)
})

const DEAF = `trap "" TERM; echo $$ > pid; exec sleep 60`

test.each([
  ['what it started', () => repository.git('config', 'alias.hang', `!sh -c '${DEAF}'`)],
  [
    'it',
    () => {
      repository.write('bin/git', `#!/bin/sh\n${DEAF}\n`, repository.home)
      chmodSync(path.join(repository.home, 'bin/git'), 0o755)
      repository.env.PATH = `${repository.home}/bin:${repository.env.PATH}`
    },
  ],
])('a git that takes too long is ended where %s is deaf to SIGTERM', async (who, prepare) => {
  prepare()
  const file = path.join(repository.top, 'pid')
  const clock = new SystemClock()
  const limits: { delayMs: number; callback: () => void }[] = []
  const hanging = gitWith({
    wall: () => clock.wall(),
    monotonic: () => clock.monotonic(),
    endOfTurn: (callback) => clock.endOfTurn(callback),
    setTimer: (delayMs, callback) => {
      limits.push({ delayMs, callback })
      return { cancel: () => {} }
    },
  }).run({ cwd: repository.top }, ['hang'])
  await expect.poll(() => existsSync(file) && readFileSync(file, 'utf8').endsWith('\n')).toBe(true)
  // It may run before it is known here that it does.
  await expect.poll(() => limits.length).toBe(1)
  const pid = Number(readFileSync(file, 'utf8'))
  try {
    limits[0]?.callback()
    expect(isAlive(pid, null)).toBe(true)
    if (who === 'it') limits[1]?.callback()
    await expect(hanging).rejects.toMatchObject({ message: 'git hang: it took longer than 60 s' })
    expect(limits.slice(0, 2).map(({ delayMs }) => delayMs)).toEqual([60_000, 2_000])
    await expect.poll(() => isAlive(pid, startTimeOf(pid))).toBe(false)
  } finally {
    if (isAlive(pid, startTimeOf(pid))) process.kill(pid, 'SIGKILL')
  }
})

test('an output without end is refused, unless its beginning is enough', async () => {
  repository.git('config', 'alias.flood', '!head -c 20000000 /dev/zero')
  const git = gitWith(new SystemClock())
  const place = { cwd: repository.top }
  await expect(git.run(place, ['flood'])).rejects.toMatchObject({ code: 'git_failed' })
  expect(await git.run(place, ['flood'], { mayBeCut: true })).toHaveLength(8 * 1024 * 1024)
})

test('a folder that is missing is not mistaken for a git that is', async () => {
  const git = gitWith(new SystemClock())
  await expect(git.run({ cwd: '/nowhere' }, ['status'])).rejects.toMatchObject({ code: 'git_failed' })
  const without = new Git({ clock: new SystemClock(), env: { PATH: repository.home } })
  await expect(without.run({ cwd: repository.top }, ['status'])).rejects.toMatchObject({
    code: 'git_not_found',
  })
})

test.each(['git version 2.38.0', 'git version 2.39.5 (Apple Git-154)', 'git version 3.0.1'])(
  '%s will do',
  (version) => {
    expect(() => checkVersion(version)).not.toThrow()
  },
)

test.each(['git version 2.37.9', 'git version 1.99.0', 'something else'])(
  '%s is too old, and it says so',
  (version) => {
    expect(() => checkVersion(version)).toThrow(`worktrees need git 2.38 or newer, but this is ${version}`)
  },
)

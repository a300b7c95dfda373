import { chmodSync, realpathSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import type { Failure } from '../core/failure.ts'
import { MAX_FAILURE_TEXT, MAX_PAYLOAD_BYTES, MAX_SHELL_OUTPUT } from '../core/limits.ts'
import type { ShellRequest } from '../graph/graph-types.ts'
import type { AttemptCallbacks, AttemptEnd } from './attempt.ts'
import { CommandRunner } from './command.ts'
import { CommandAttempt } from './command-task.ts'
import {
  assignmentOf,
  clock,
  processIn,
  readIfThere,
  SILENT,
  temporaryFolder,
  until,
} from './fixtures/process-probe.ts'
import { killMarked } from './process-tree.ts'
import { shellTask } from './shell-task.ts'
import { Supervisor } from './supervisor.ts'

const nodeId = `n_shell_${process.pid}`
let supervisor: Supervisor
let runner: CommandRunner
let dir: string

beforeAll(async () => {
  supervisor = await Supervisor.start({ nodeId, clock, logger: SILENT, obituary: null })
  runner = new CommandRunner({ supervisor, table: supervisor.table, clock, nodeId, logger: SILENT })
})

beforeEach(() => {
  dir = temporaryFolder()
})

afterEach(async () => {
  const leftover = await killMarked({ nodeId }, { clock, table: supervisor.table })
  rmSync(dir, { recursive: true, force: true })
  expect(leftover.killed).toBe(false)
})

afterAll(() => supervisor.close())

type Beat = Parameters<AttemptCallbacks['beat']>[0]

function start(over: Partial<ShellRequest>) {
  const request: ShellRequest = { command: null, argv: null, env: {}, workingDir: null, ...over }
  const beats: Beat[] = []
  const parts = { clock, logger: SILENT }
  const attempt = new CommandAttempt(shellTask, assignmentOf('$shell', request), parts, runner, {
    beat: (beat) => beats.push(beat),
    extend: () => Promise.reject(new Error('not asked for')),
    note: () => Promise.reject(new Error('not asked for')),
  })
  return { attempt, beats }
}

/** Its output, or its failure. */
async function run(over: Partial<ShellRequest>) {
  return read(await start(over).attempt.ended)
}

function read(end: AttemptEnd) {
  if (end.type === 'failed') return { failure: end.failure }
  const { exitCode, stdout, stderr } = JSON.parse(end.output) as Record<'stdout' | 'stderr', string> & {
    exitCode: number
  }
  return { exitCode, stdout, stderr }
}

/** Every character that means something to a shell, or to whoever writes a command line. */
const HOSTILE = [
  '$(touch pwned) `touch pwned`',
  '; touch pwned #',
  '" && touch pwned && echo "',
  "' ; touch pwned ; '",
  '${IFS}$(touch${IFS}pwned)\n\ttouch pwned\n',
  '-n --help -e',
  '* ~ \\ ! ü 😀 %s',
  '',
]

describe('a command', () => {
  test('is a program with its arguments, none of which is code', async () => {
    const script = 'process.stdout.write(JSON.stringify(process.argv.slice(1)))'
    const argv = [process.execPath, '-e', script, '--', ...HOSTILE]
    const { stdout, stderr } = (await run({ argv, workingDir: dir })) as { stdout: string; stderr: string }
    expect({ arguments: JSON.parse(stdout), stderr }).toEqual({ arguments: HOSTILE, stderr: '' })
    expect(readIfThere(join(dir, 'pwned'))).toBeNull()
  })

  test('or a line for the shell, whose values are variables and never code', async () => {
    const names = HOSTILE.map((_, i) => `V${i}`)
    const env = Object.fromEntries(HOSTILE.map((value, i) => [`V${i}`, value]))
    const command = `printf '%s\\0' ${names.map((name) => `"$${name}"`).join(' ')}; ls; echo err >&2`
    expect(await run({ command, env, workingDir: dir })).toEqual({
      exitCode: 0,
      stdout: HOSTILE.map((value) => `${value}\0`).join(''),
      stderr: 'err\n',
    })
  })

  test('runs in its folder, with nothing to read', async () => {
    expect(await run({ command: 'pwd; cat; echo end', workingDir: dir })).toMatchObject({
      stdout: `${realpathSync(dir)}\nend\n`,
    })
  })

  test('sees what this process sees, its own variables, and of ours only what it is found by', async () => {
    process.env.SHELL_TEST_SEEN = 'inherited'
    try {
      const env = { OWN: 'a\nb', PATH: `${process.env.PATH}:${dir}`, CURFEW_ATTEMPT: 'forged' }
      const { stdout } = (await run({ argv: ['env', '-0'], env })) as { stdout: string }
      const seen = Object.fromEntries(
        stdout.split('\0').map((line) => [line.split('=')[0], line.slice(line.indexOf('=') + 1)]),
      )
      expect(seen).toMatchObject({ SHELL_TEST_SEEN: 'inherited', OWN: 'a\nb', PATH: env.PATH })
      const ours = Object.keys(seen).filter((name) => /^(CURFEW|NODE_CHANNEL|NODE_UNIQUE)/.test(name))
      expect(ours.toSorted()).toEqual(['CURFEW_ATTEMPT', 'CURFEW_NODE'])
      expect([seen.CURFEW_NODE, seen.CURFEW_ATTEMPT]).toEqual([
        nodeId,
        expect.stringMatching(/^n_shell_\d+:a_\$shell_.*:t_\$shell\/\d+$/),
      ])
    } finally {
      delete process.env.SHELL_TEST_SEEN
    }
  })

  test('that exits with another code than 0 fails with it, and with what it said last', async () => {
    expect(await run({ command: 'echo out; echo first >&2; echo last >&2; exit 3' })).toMatchObject({
      failure: {
        code: 'command_failed',
        message: '/bin/sh ended with exit code 3: last',
        retryable: true,
        details: { exitCode: 3, signal: null, stdout: 'out\n', stderr: 'first\nlast\n' },
      },
    })
    expect(await run({ command: 'kill -SEGV $$' })).toMatchObject({
      failure: {
        message: '/bin/sh ended with signal SIGSEGV',
        details: { exitCode: null, signal: 'SIGSEGV' },
      },
    })
  })

  test('that cannot be started says why', async () => {
    const plain = join(dir, 'plain')
    writeFileSync(plain, 'echo no')
    chmodSync(plain, 0o600)
    const absent = join(dir, 'absent')
    const failures = await Promise.all(
      [
        { argv: ['no-such-program', 'x'] },
        { argv: [plain] },
        { argv: ['true'], workingDir: absent },
        { argv: ['true'], workingDir: plain },
        { argv: ['true', 'a\u0000b'] },
        { argv: ['true'], env: { V: 'x'.repeat(200_000) } },
      ].map(run),
    )
    expect(failures.map(({ failure }) => [failure?.message, failure?.code, failure?.retryable])).toEqual(
      [
        'no-such-program could not be started: it was not found',
        `${plain} could not be started: it may not be run, or its folder may not be entered`,
        `true could not be started: there is no folder '${absent}'`,
        `true could not be started: there is no folder '${plain}'`,
        'true could not be started: an argument or variable holds a NUL',
        'true could not be started: its arguments and variables are too large; pass what is large in a file',
      ].map((message) => [message, 'command_not_started', false]),
    )
    expect(await run({ argv: [''] })).toMatchObject({
      failure: { code: 'invalid_command', retryable: false },
    })
  })

  test('may print without end: what it printed last is kept', async () => {
    const { stdout, stderr } = (await run({
      command: 'yes 0123456789 | head -c 22000000; echo last; head -c 3000000 /dev/urandom >&2; echo >&2',
    })) as { stdout: string; stderr: string }
    expect(/^…[0-9\n]+\nlast\n$/.test(stdout)).toBe(true)
    expect(Buffer.byteLength(stdout)).toBe(MAX_SHELL_OUTPUT + '…'.length + 2)
    expect(Buffer.byteLength(JSON.stringify({ stdout, stderr }))).toBeLessThan(MAX_PAYLOAD_BYTES)
    expect(stderr.length).toBeGreaterThan(10_000)
  })

  test('what a failure keeps of it is the end as well', async () => {
    const { failure } = (await run({
      command: 'yes out | head -n 5000; yes "$(printf "\\033")err" | head -n 5000 >&2; echo last >&2; exit 1',
    })) as { failure: { message: string; details: { stdout: string; stderr: string } } }
    expect(failure.message).toMatch(/exit code 1: last$/)
    expect(/^…[out\n]{2000,}\nout\n$/.test(failure.details.stdout)).toBe(true)
    expect(failure.details.stderr).toMatch(/err\nlast\n$/)
    expect(JSON.stringify(failure.details).length).toBeLessThan(MAX_FAILURE_TEXT)
  })

  test('has ended when its main process has, and takes what it left behind with it', async () => {
    const command = 'sleep 1000 & echo $! > left; setsid sleep 1000 & echo $! > session; echo done'
    const since = clock.monotonic()
    expect(await run({ command, workingDir: dir })).toEqual({ exitCode: 0, stdout: 'done\n', stderr: '' })
    // Two seconds for the pipes that are held open.
    expect(clock.monotonic() - since).toBeLessThan(8_000)
    for (const name of ['left', 'session']) expect((await processIn(dir, name)).alive()).toBe(false)
  })
})

describe('while it runs', () => {
  test('what it prints is progress, and is reported', async () => {
    const { attempt, beats } = start({
      command: 'echo one; echo two >&2; sleep 0.3; echo three; exec sleep 1000',
    })
    const last = () => beats.at(-1) as Beat
    await until('the third line', () => last()?.progress?.completed === 14)
    expect(JSON.parse(last().details ?? '')).toEqual({ stdout: 'one\nthree\n', stderr: 'two\n' })
    expect(beats.every(({ moved }) => moved)).toBe(true)
    expect(await attempt.kill()).toBe('killed')
  })

  test('one that ends at once reports nothing', async () => {
    const { attempt, beats } = start({ command: 'echo one' })
    await attempt.ended
    expect(beats).toEqual([])
  })
})

describe('stopping it', () => {
  const stopped = { code: 'timed_out', message: 'over', kind: 'execution' } as const

  test('everything it started is asked to, and what it said meanwhile is kept', async () => {
    const command = `sh -c 'trap "echo child; exit 0" TERM; echo ready; while :; do sleep 0.05; done' &
      trap 'echo parent; wait; exit 5' TERM; wait`
    const { attempt, beats } = start({ command })
    await until('the child', () => beats.length > 0)
    attempt.abort(stopped)
    const { failure } = read(await attempt.ended) as { failure: Failure }
    expect(failure).toMatchObject({ code: 'command_failed', details: { exitCode: 5 } })
    const { stdout } = failure.details as { stdout: string }
    expect(stdout.trim().split('\n').toSorted()).toEqual(['child', 'parent', 'ready'])
  })

  test('one that ends well after it was asked to has its result', async () => {
    const { attempt, beats } = start({
      command: `trap 'echo saved; exit 0' TERM; echo ready; sleep 1000 & wait`,
    })
    await until('the command', () => beats.length > 0)
    attempt.abort({ code: 'soft_stop', message: 'soon' })
    expect(read(await attempt.ended)).toEqual({ exitCode: 0, stdout: 'ready\nsaved\n', stderr: '' })
  })

  test('one that just goes when its deadline is near leaves the outcome to the deadline', async () => {
    const { attempt, beats } = start({ command: 'echo ready; exec sleep 1000' })
    await until('the command', () => beats.length > 0)
    attempt.abort({ code: 'soft_stop', message: 'soon' })
    expect(read(await attempt.ended)).toMatchObject({ failure: { code: 'soft_stop' } })
  })

  test('one that ignores it is killed, and so is every descendant', async () => {
    const command = `trap '' TERM; echo $$ > main
      (trap '' TERM; exec sleep 1000) & echo $! > background
      setsid sh -c 'trap "" TERM; echo $$ > session; exec sleep 1000' &
      env -i sh -c 'trap "" TERM; echo $$ > bare; exec sleep 1000' &
      echo ready; while :; do sleep 1000; done`
    const { attempt, beats } = start({ command, workingDir: dir })
    await until('the command', () => beats.length > 0)
    const names = ['main', 'background', 'session', 'bare']
    const processes = await Promise.all(names.map((name) => processIn(dir, name)))
    attempt.abort(stopped)
    expect(processes.map(({ alive }) => alive())).toEqual([true, true, true, true])
    expect(await attempt.kill()).toBe('killed')
    expect(processes.map(({ alive }) => alive())).toEqual([false, false, false, false])
    expect(read(await attempt.ended)).toMatchObject({ failure: { details: { signal: 'SIGKILL' } } })
  })
})

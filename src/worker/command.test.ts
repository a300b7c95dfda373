import { chmodSync, realpathSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import type { CommandRequest } from './command.ts'
import { probeCommands } from './fixtures/command-probe.ts'
import { clock, processIn, readIfThere, until } from './fixtures/process-probe.ts'
import { runCommand } from './fixtures/run-command.ts'
import type { RunningCommand } from './running-command.ts'

const probe = probeCommands('commands')
const { run } = probe

describe('a command', () => {
  test('ends with its exit code, and with what it printed', async () => {
    expect(await run('echo out; echo err >&2; exit 3')).toEqual({
      type: 'ended',
      exitCode: 3,
      signal: null,
      receipt: 'exited',
      timedOut: null,
      durationMs: expect.any(Number),
      stdout: 'out\n',
      stderr: 'err\n',
      truncated: { stdout: false, stderr: false },
      swept: false,
      left: [],
    })
    expect(await run('kill -SEGV $$')).toMatchObject({ exitCode: null, signal: 'SIGSEGV', receipt: 'exited' })
  })

  test('has a group and a session of its own, its folder, its variables and the marks, and nothing to read', async () => {
    let started: RunningCommand | undefined
    const script = 'cut -d " " -f 5,6 /proc/self/stat; pwd; cat; env | grep -v ^_= | sort'
    const env = { PATH: process.env.PATH, OWN: '1', CURFEW_NODE: 'forged', CURFEW_TASK_PROCESS: '1' }
    const { stdout } = await run(script, { env }, { onStarted: (command) => (started = command) })
    const pid = started?.root.pid
    expect(stdout.split('\n')).toEqual([
      `${pid} ${pid}`,
      realpathSync(probe.dir),
      expect.stringMatching(new RegExp(`^CURFEW_ATTEMPT=${probe.nodeId}:a_test/\\d+$`)),
      `CURFEW_NODE=${probe.nodeId}`,
      'OWN=1',
      `PATH=${process.env.PATH}`,
      `PWD=${realpathSync(probe.dir)}`,
      '',
    ])
  })

  test('that cannot be started is a value that says why', async () => {
    const plain = join(probe.dir, 'plain')
    writeFileSync(plain, 'echo no')
    chmodSync(plain, 0o600)
    const absent = join(probe.dir, 'absent')
    const refused = async (over: Partial<CommandRequest>) => {
      const end = await runCommand(probe.runner, { ...probe.request(''), ...over })
      return end.type === 'not_started' ? [end.code, end.message, end.retryable] : end
    }
    expect(await refused({ argv: ['no-such-program'] })).toEqual([
      'program_not_found',
      'no-such-program could not be started: it was not found',
      false,
    ])
    expect(await refused({ argv: [plain] })).toMatchObject([
      'not_allowed',
      expect.stringMatching(/may not be run/),
      false,
    ])
    expect(await refused({ argv: ['true'], cwd: absent })).toMatchObject([
      'folder_not_found',
      expect.stringMatching(/no folder/),
      false,
    ])
    expect(await refused({ argv: ['true'], cwd: plain })).toMatchObject([
      'folder_not_found',
      expect.stringMatching(/no folder/),
      false,
    ])
    expect(await refused({ argv: ['true', 'a\0b'] })).toMatchObject([
      'invalid_argument',
      expect.stringMatching(/NUL/),
      false,
    ])
    expect(await refused({ argv: ['true', 'x'.repeat(200_000)] })).toMatchObject([
      'too_large',
      expect.stringMatching(/too large/),
      false,
    ])
    expect(await refused({ argv: [] })).toMatchObject([
      'no_program',
      expect.stringMatching(/no program/),
      false,
    ])
    expect(await refused({ argv: ['hunter2-hunter2'], secrets: ['hunter2-hunter2'] })).toMatchObject([
      'program_not_found',
      expect.stringMatching(/^\*\*\* could not be started/),
      false,
    ])
  })

  test('fifty at once each have their own', async () => {
    const ends = await Promise.all(
      Array.from({ length: 50 }, (_, i) => run(`sleep 0.${i % 5}; echo ${i}; exit ${i}`)),
    )
    expect(ends.map(({ exitCode, stdout }) => [exitCode, stdout])).toEqual(ends.map((_, i) => [i, `${i}\n`]))
  })
})

describe('what it prints', () => {
  test('is passed on as it comes, and its end is kept', async () => {
    const seen: string[] = []
    const onOutput = (stream: string, chunk: Buffer) => seen.push(`${stream}: ${chunk}`)
    const end = await run(
      'echo one; sleep 0.2; echo two >&2; sleep 0.2; echo three',
      { outputBytes: 8 },
      { onOutput },
    )
    expect(seen).toEqual(['stdout: one\n', 'stderr: two\n', 'stdout: three\n'])
    expect(end).toMatchObject({
      stdout: '…e\nthree\n',
      stderr: 'two\n',
      truncated: { stdout: true, stderr: false },
    })
  })

  test('can be looked at while it runs', async () => {
    let running: RunningCommand | undefined
    const ended = run(
      'echo first; echo other >&2; exec sleep 1000',
      {},
      { onStarted: (command) => (running = command) },
    )
    await until('its output', () => running?.tails(100).stderr === 'other\n')
    expect(running?.tails(4)).toEqual({ stdout: '…rst\n', stderr: '…her\n' })
    running?.kill()
    expect(await ended).toMatchObject({ receipt: 'killed', stdout: 'first\n' })
  })

  test('E9: holds no secret, in no form and in no place, also when it comes in pieces', async () => {
    const secret = 'p@ss/w0rd "x"'
    let passed = ''
    const script = `printf 'a %s' "\${S%w*}"; sleep 0.2; printf '%s b\\n' "w\${S#*w}"
      printf %s "user:$S" | base64; printf '%s' "$S" >&2`
    const env = { PATH: process.env.PATH, S: secret }
    const end = await run(script, { env, secrets: [secret] }, { onOutput: (_, chunk) => (passed += chunk) })
    expect(end).toMatchObject({
      stdout: expect.stringMatching(/^a \*\*\* b\n[\w=]*\*\*\*=*\n$/),
      stderr: '***',
    })
    expect(passed).toContain('a *** b\n')
    for (const part of ['p@ss', 'w0rd', 'QHNz', '"x"']) expect(passed).not.toContain(part)
  })

  test('E7: without end, it is ended at its limit, takes no memory, and its last words are there', async () => {
    const flood =
      'i=0; while :; do i=$((i+1)); echo "line $i"; done & exec yes "$(head -c 1000 /dev/zero | tr "\\0" x)"'
    const before = process.memoryUsage().rss
    const ends = await Promise.all(
      Array.from({ length: 4 }, () =>
        run(flood, { limitMs: 1_000, secrets: ['a-secret-that-never-comes'], outputBytes: 100_000 }),
      ),
    )
    for (const end of ends) {
      expect(end).toMatchObject({
        timedOut: 'limit',
        receipt: 'terminated',
        truncated: { stdout: true, stderr: false },
      })
      expect(end.durationMs).toBeLessThan(3_000)
      expect(Buffer.byteLength(end.stdout)).toBeGreaterThan(90_000)
      expect(Buffer.byteLength(end.stdout)).toBeLessThanOrEqual(100_003)
    }
    expect(process.memoryUsage().rss - before).toBeLessThan(150 * 1024 * 1024)
  })
})

describe('what it leaves behind', () => {
  const script = `sleep 1000 & echo $! > group
    setsid sleep 1000 & echo $! > session
    env -i sleep 1000 & echo $! > bare
    echo done`
  const names = ['group', 'session', 'bare']
  const everything = () => Promise.all(names.map((name) => processIn(probe.dir, name)))

  test('E8: is ended with it, after two seconds when it holds the pipes; it has not timed out', async () => {
    const ended = run(script, { limitMs: 1_000 })
    const processes = await everything()
    expect(await ended).toMatchObject({
      exitCode: 0,
      receipt: 'exited',
      timedOut: null,
      stdout: 'done\n',
      swept: true,
    })
    expect(processes.map(({ alive }) => alive())).toEqual([false, false, false])
  })

  test('at once when it does not', async () => {
    const since = clock.monotonic()
    writeFileSync(join(probe.dir, 'wait'), '')
    const wait = 'while [ -e wait ]; do sleep 0.01; done'
    const ended = run(`setsid sleep 1000 > out 2> err & echo $! > session; ${wait}`)
    const daemon = await processIn(probe.dir, 'session')
    rmSync(join(probe.dir, 'wait'))
    expect(await ended).toMatchObject({ exitCode: 0, swept: true })
    expect(daemon.alive()).toBe(false)
    expect(clock.monotonic() - since).toBeLessThan(1_800)
  })

  test('E8: or it goes on, and may print, until what the command is part of has ended', async () => {
    const talks = 'while sleep 0.05; do echo more || exit; date +%N > heard; done'
    const ended = run(`${script}; (${talks}) & echo $! > talks`, { sweep: 'later', marker: 'a_item' })
    const processes = await everything()
    const talking = await processIn(probe.dir, 'talks')
    const end = await ended
    expect(end).toMatchObject({ exitCode: 0, receipt: 'exited', swept: false, left: [] })
    const other = await run('sleep 1000 > /dev/null 2>&1 & echo $! > other', {
      sweep: 'later',
      marker: 'a_item1',
    })
    const foreign = await processIn(probe.dir, 'other')
    expect(other.exitCode).toBe(0)
    expect(processes.map(({ alive }) => alive())).toEqual([true, true, true])
    // Into a pipe that nobody reads it could write no longer.
    const heard = readIfThere(join(probe.dir, 'heard'))
    await until('it to go on', () => readIfThere(join(probe.dir, 'heard')) !== heard)
    expect(await probe.runner.endLeft('a_item')).toEqual({ killed: true, left: [] })
    expect([...processes, talking].map(({ alive }) => alive())).toEqual([false, false, false, false])
    expect(foreign.alive()).toBe(true)
    expect(await probe.runner.endLeft('a_item1')).toEqual({ killed: true, left: [] })
    expect(await probe.runner.endLeft('a_item')).toEqual({ killed: false, left: [] })
  })
})

import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { probeCommands, strangers } from './fixtures/command-probe.ts'
import { hangingProgram } from './fixtures/hanging-program.ts'
import { clock, processIn, readIfThere, stateOf, until } from './fixtures/process-probe.ts'
import { TREE, TREE_NAMES } from './fixtures/process-tasks.ts'
import type { RunningCommand } from './running-command.ts'

const probe = probeCommands('stopping')
const { run } = probe
const processes = (names: string[]) => Promise.all(names.map((name) => processIn(probe.dir, name)))
const read = (name: string) => readIfThere(join(probe.dir, name))

describe('the limit of a command', () => {
  test('D4: asks it to stop, and one that cleans up is left to it', async () => {
    const script = `trap 'sleep 0.5; echo saved > marker; exit 9' TERM; echo ready; sleep 1000 & wait`
    expect(await run(script, { limitMs: 300, graceMs: 10_000 })).toMatchObject({
      exitCode: 9,
      signal: null,
      timedOut: 'limit',
      receipt: 'aborted',
      stdout: 'ready\n',
    })
    expect(read('marker')).toBe('saved')
  })

  test('one that just goes was terminated', async () => {
    const end = await run('exec sleep 1000', { limitMs: 100 })
    expect(end).toMatchObject({ exitCode: null, signal: 'SIGTERM', timedOut: 'limit', receipt: 'terminated' })
  })

  test('D5: one that ignores it is killed when the grace is over, not before', async () => {
    const script = `trap '' TERM; echo ready; while :; do sleep 0.1; done`
    const end = await run(script, { limitMs: 300, graceMs: 700 })
    expect(end).toMatchObject({ signal: 'SIGKILL', timedOut: 'limit', receipt: 'killed', stdout: 'ready\n' })
    expect(end.durationMs).toBeGreaterThanOrEqual(1_000)
    expect(end.durationMs).toBeLessThan(3_000)
  })

  test('D6: the grace is for each of its group: the shell goes at once, what it ran takes its time', async () => {
    const child = `trap "sleep 1; echo saved > marker; exit 0" TERM; echo ready; while :; do sleep 0.05; done`
    const end = await run(`sh -c '${child}' ; echo after`, { limitMs: 300, graceMs: 10_000 })
    expect(end).toMatchObject({ signal: 'SIGTERM', receipt: 'terminated', timedOut: 'limit', swept: false })
    expect(read('marker')).toBe('saved')
  })

  test('but no longer than the grace, whatever is left of the group', async () => {
    const child = `trap "" TERM; echo $$ > child; while :; do sleep 0.05; done`
    const since = clock.monotonic()
    const end = await run(`sh -c '${child}' ; echo after`, { limitMs: 300, graceMs: 500 })
    expect(end).toMatchObject({ signal: 'SIGTERM', receipt: 'killed', timedOut: 'limit' })
    expect(clock.monotonic() - since).toBeGreaterThanOrEqual(800)
    expect((await processIn(probe.dir, 'child')).alive()).toBe(false)
  })

  test('E6: one that has stopped itself hears it, and one that would not is killed', async () => {
    const polite = `trap 'echo bye; exit 0' TERM; kill -STOP $$; sleep 1000`
    expect(await run(polite, { limitMs: 300, graceMs: 10_000 })).toMatchObject({
      receipt: 'aborted',
      stdout: 'bye\n',
      timedOut: 'limit',
    })
    const stubborn = `trap '' TERM; trap 'kill -STOP $$' CONT; kill -STOP $$; while :; do kill -STOP $$; done`
    expect(await run(stubborn, { limitMs: 300 })).toMatchObject({ receipt: 'killed', timedOut: 'limit' })
  })

  test('E1: takes all it started, wherever that ran to; a stranger of the same user lives', async () => {
    const others = strangers({ CURFEW_NODE: `${probe.nodeId}0`, CURFEW_ATTEMPT: `${probe.nodeId}0:a_test/1` })
    const ended = run(TREE, { limitMs: 2_000 })
    const members = await processes(TREE_NAMES)
    expect(members.map(({ alive }) => alive())).toEqual(members.map(() => true))
    expect(await ended).toMatchObject({ timedOut: 'limit', left: [] })
    expect(members.map(({ alive }) => alive())).toEqual(members.map(() => false))
    expect(await others.untouched()).toBe(true)
  })

  test('E1: what has neither mark nor group nor, once the shell is gone, a parent is found too', async () => {
    const script = 'env -i setsid sleep 1000 & echo $! > bare; wait'
    const ended = run(script, { limitMs: 1_000, graceMs: 5_000 })
    const bare = await processIn(probe.dir, 'bare')
    await until('it to run alone', () => readIfThere(`/proc/${bare.pid}/cmdline`)?.startsWith('sleep'))
    expect(await ended).toMatchObject({ receipt: 'terminated', swept: true })
    expect(bare.alive()).toBe(false)
  })

  test('two hundred children, half of them in sessions of their own, go with it', async () => {
    const script = `i=0; while [ $i -lt 100 ]; do i=$((i+1)); sleep 1000 & setsid sh -c 'trap "" TERM; sleep 1000' & done
      echo started; wait`
    let running: RunningCommand | undefined
    const ended = run(script, { graceMs: 1_000 }, { onStarted: (command) => (running = command) })
    await until('all of them', () => running?.tails(100).stdout === 'started\n')
    running?.terminate()
    expect(await ended).toMatchObject({ receipt: 'terminated', swept: true, left: [] })
  })

  test('counts nothing that happens after its end', async () => {
    const end = await run('sleep 0.3 & echo done', { limitMs: 200 })
    expect(end).toMatchObject({ exitCode: 0, receipt: 'exited', timedOut: null })
  })

  test('C5: at the very moment of its end there is one outcome', async () => {
    const ends = await Promise.all(
      Array.from({ length: 40 }, async () => {
        const overran: string[] = []
        const end = await run('sleep 0.25', { limitMs: 250 }, { onOverrun: (which) => overran.push(which) })
        return { ...end, overran }
      }),
    )
    for (const { exitCode, receipt, timedOut, durationMs, overran } of ends) {
      // Nobody is told of a timeout that is none.
      expect(overran).toEqual(timedOut === null ? [] : ['limit'])
      // It may have been on its way out when it was asked.
      const stopped = exitCode === 0 ? 'aborted' : 'terminated'
      expect({ exitCode, receipt, timedOut, durationMs }).toMatchObject(
        timedOut
          ? { receipt: stopped, timedOut: 'limit' }
          : { exitCode: 0, receipt: 'exited', timedOut: null },
      )
      if (timedOut) expect(durationMs).toBeGreaterThanOrEqual(250)
    }
  })
})

describe('the idle limit', () => {
  test('ends one that has said nothing for so long', async () => {
    const end = await run('for i in 1 2 3 4; do echo $i; sleep 0.2; done; echo last >&2; exec sleep 1000', {
      idleMs: 600,
    })
    expect(end).toMatchObject({
      timedOut: 'idle',
      receipt: 'terminated',
      stdout: '1\n2\n3\n4\n',
      stderr: 'last\n',
    })
    expect(end.durationMs).toBeGreaterThanOrEqual(1_400)
    expect(end.durationMs).toBeLessThan(3_400)
  })
})

describe('limits', () => {
  test('J2, J3: fifty at once under load: none is early, none is late, and what is done in time is done', async () => {
    const load = new AbortController()
    const busy = Array.from({ length: 4 }, () =>
      run('while :; do :; done', { marker: 'a_load' }, { signal: load.signal }),
    )
    const commands = Array.from({ length: 50 }, (_, i) => {
      const limitMs = [500, 1_000, 1_500, 2_000, 60_000][i % 5] as number
      const script = [`sleep 1000`, `trap '' TERM; while :; do sleep 0.1; done`][i % 2] as string
      return i % 5 === 4 ? run('sleep 0.5; exit 4', { limitMs }) : run(script, { limitMs, graceMs: 300 })
    })
    const ends = await Promise.all(commands)
    for (const [i, end] of ends.entries()) {
      const limitMs = [500, 1_000, 1_500, 2_000][i % 5]
      const graceMs = i % 2 === 1 ? 300 : 0
      if (limitMs === undefined) expect(end).toMatchObject({ exitCode: 4, receipt: 'exited', timedOut: null })
      else {
        expect(end).toMatchObject({ timedOut: 'limit', receipt: graceMs ? 'killed' : 'terminated', left: [] })
        expect(end.durationMs).toBeGreaterThanOrEqual(limitMs + graceMs)
        expect(end.durationMs).toBeLessThan(limitMs + graceMs + 2_000)
      }
    }
    load.abort()
    expect((await Promise.all(busy)).map(({ receipt }) => receipt)).toEqual(Array(4).fill('terminated'))
  })
})

describe('the signal', () => {
  test('sends it down the same ladder', async () => {
    const cancel = new AbortController()
    let running: RunningCommand | undefined
    const script = `trap '' TERM; (trap '' TERM; exec sleep 1000) & echo $! > child; echo ready; while :; do sleep 1; done`
    const ended = run(
      script,
      { graceMs: 300, limitMs: 60_000 },
      {
        signal: cancel.signal,
        onStarted: (command) => (running = command),
      },
    )
    const child = await processIn(probe.dir, 'child')
    await until('it', () => running?.tails(10).stdout === 'ready\n')
    const since = clock.monotonic()
    cancel.abort()
    expect(await ended).toMatchObject({ receipt: 'killed', timedOut: null, stdout: 'ready\n' })
    expect(clock.monotonic() - since).toBeGreaterThanOrEqual(300)
    expect(child.alive()).toBe(false)
  })

  test('that is given when it has ended says nothing any more', async () => {
    const cancel = new AbortController()
    const end = await run('exit 1', {}, { signal: cancel.signal })
    cancel.abort()
    expect(end).toMatchObject({ exitCode: 1, receipt: 'exited' })
    await expect(run('exit 1')).resolves.toMatchObject({ exitCode: 1 })
  })
})

describe('whoever walks the ladder himself', () => {
  test.skipIf(process.platform !== 'linux').each(['limit', 'idle'] as const)(
    'its %s holds also while it starts',
    async (which) => {
      const { file } = hangingProgram('#!/bin/sh\necho run > run\n')
      const told: string[] = []
      const limits = which === 'limit' ? { limitMs: 300, idleMs: 400 } : { limitMs: 400, idleMs: 300 }
      const end = await run(
        '',
        { argv: [file], ...limits },
        { onLimit: (one) => told.push(`limit ${one}`), onOverrun: (one) => told.push(`overrun ${one}`) },
      )
      expect(end).toMatchObject({
        type: 'ended',
        timedOut: which,
        receipt: 'killed',
        signal: 'SIGKILL',
        left: [],
      })
      expect(told).toEqual([`limit ${which}`, `overrun ${which}`])
      expect(read('run')).toBeNull()
    },
  )

  test('can ask, and take his time; the limit holds on', async () => {
    let running: RunningCommand | undefined
    const script = `trap 'echo asked' TERM; echo ready; while :; do sleep 0.05; done`
    const ended = run(
      script,
      { limitMs: 1_500, graceMs: 100 },
      { onStarted: (command) => (running = command) },
    )
    await until('it', () => running?.tails(10).stdout === 'ready\n')
    running?.terminate()
    await until('it to hear', () => running?.tails(20).stdout.includes('asked'))
    const end = await ended
    expect(end).toMatchObject({ receipt: 'killed', timedOut: 'limit' })
    expect(end.durationMs).toBeGreaterThanOrEqual(1_600)
  })

  test('can kill it in any moment: as it starts, as it is asked, as its pipes are held open', async () => {
    const kill = (command: RunningCommand) => command.kill()
    expect(await run('sleep 1000', {}, { onStarted: kill })).toMatchObject({ receipt: 'killed', left: [] })
    let running: RunningCommand | undefined
    const onStarted = (command: RunningCommand) => (running = command)
    const asked = run(
      `trap '' TERM; echo ready; while :; do sleep 1; done`,
      { graceMs: 60_000 },
      { onStarted },
    )
    await until('it', () => running?.tails(10).stdout === 'ready\n')
    running?.terminate()
    running?.kill()
    expect(await asked).toMatchObject({ receipt: 'killed', timedOut: null })
    const since = clock.monotonic()
    const held = run('sleep 1000 & echo $$ > main', {}, { onStarted })
    const main = await processIn(probe.dir, 'main')
    await until('its end', () => stateOf(main.pid) === null)
    running?.kill()
    expect(await held).toMatchObject({ exitCode: 0, receipt: 'exited', swept: true })
    expect(clock.monotonic() - since).toBeLessThan(1_900)
  })
})

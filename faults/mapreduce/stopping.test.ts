// Commands that do not want to stop, and a runner that is hindered: what has run out of time is gone.

import { readdirSync, readFileSync } from 'node:fs'
import { expect } from 'vitest'
import { isAlive } from '../../src/cli/fixtures/cli-process.ts'
import { until } from '../wait.ts'
import { TOLERANCE_MS, worldTest as test } from './world.ts'

const LIMIT = { timeout: 90_000 }

interface Timeouts {
  agent?: number
  grace?: number
  items?: unknown[]
  [key: string]: unknown
}

/** One item, or several, with these steps, and what holds for them. */
function pipeline(
  steps: string | object[],
  { agent, grace = 1, items = [{ n: 1 }], ...rest }: Timeouts = {},
): object {
  return {
    map: {
      input: { items },
      ...(agent !== undefined && { agent_timeout_secs: agent }),
      timeout_config: { cleanup_grace_period_secs: grace },
      agent_template: typeof steps === 'string' ? [{ shell: steps }] : steps,
    },
    ...rest,
  }
}

/** Waits in a phase after the items until the test has looked around. */
const LOOK_AROUND = 'echo now >> "$MARKS/reducing"; until test -e "$MARKS/go"; do sleep 0.05; done'

const RECORD = 'echo $$ >> "$MARKS/pids"'
/** A child, a grandchild, one in a session of its own, a daemon, one that forgot its environment, one that sleeps. */
const MANY_PROCESSES = [
  RECORD,
  'sleep 600 & echo $! >> "$MARKS/pids"',
  `sh -c 'sleep 600 & echo $! >> "$MARKS/pids"; wait' &`,
  `setsid sh -c '${RECORD}; trap "" TERM; while :; do sleep 600; done' &`,
  `( ( setsid sh -c '${RECORD}; exec sleep 600' & ) & )`,
  `env -i MARKS="$MARKS" FAULTS_RUN="$FAULTS_RUN" setsid sh -c '${RECORD}; exec sleep 600' &`,
  'until test "$(wc -l < "$MARKS/pids")" -ge 6; do sleep 0.02; done',
  'echo all >> "$MARKS/started"',
  'sleep 600',
].join('\n')

/** Dead ones that nobody has asked about, below any of these. */
function zombiesOf(parents: readonly number[]): number[] {
  return readdirSync('/proc')
    .map(Number)
    .filter((pid) => {
      const status = statusOf(pid)
      return /^State:\s+Z/m.test(status) && parents.includes(Number(/^PPid:\s+(\d+)$/m.exec(status)?.[1]))
    })
}

function statusOf(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/status`, 'utf8')
  } catch {
    return '' // no process, or gone by now
  }
}

test(
  'E1: everything a command started is gone once it timed out, and there is no zombie',
  LIMIT,
  async ({ world }) => {
    const file = pipeline(MANY_PROCESSES, { agent: 2, reduce: [{ shell: LOOK_AROUND }] })
    const running = world.launch(file)
    await world.untilMarked('reducing')
    expect(world.lines('pids')).toHaveLength(6)
    expect(world.alive()).toEqual([])
    expect(zombiesOf([running.pid, ...running.witnesses()])).toEqual([])
    world.setMark('go')
    const { code, json } = await world.ended(running)
    expect([code, json!.status, json!.counts.timedOut]).toEqual([1, 'completed', 1])
    const [{ limitMs, elapsedMs, resolution } = expect.fail('no timeout')] = json!.timeouts
    expect([limitMs, resolution]).toEqual([2_000, 'GracefulTermination'])
    expect(elapsedMs).toBeGreaterThanOrEqual(2_000)
    expect(elapsedMs).toBeLessThanOrEqual(2_000 + TOLERANCE_MS)
    await world.nothingLeft()
  },
)

test('E1: a fork of 200 children is ended with them', LIMIT, async ({ world }) => {
  const forks = `${RECORD}; i=0; while test $i -lt 200; do sleep 600 & echo $! >> "$MARKS/pids"; i=$((i+1)); done; wait`
  const { json } = await world.run(pipeline(forks, { agent: 4 }))
  expect(json!.counts.timedOut).toBe(1)
  expect(world.lines('pids')).toHaveLength(201)
  expect(world.alive()).toEqual([])
})

test('E6: a command that stopped itself is dead within limit, grace and 2 s', LIMIT, async ({ world }) => {
  const stopped = `${RECORD}; trap "" TERM; sh -c '${RECORD}; kill -STOP $$; sleep 600' & kill -STOP $$; sleep 600`
  const { json } = await world.run(pipeline(stopped, { agent: 1 }))
  expect(world.lines('pids')).toHaveLength(2)
  expect(world.alive()).toEqual([])
  expect(json!.timeouts).toMatchObject([{ kind: 'agent', resolution: 'ForceTermination' }])
  expect(json!.timeouts[0]!.elapsedMs).toBeLessThanOrEqual(1_000 + TOLERANCE_MS)
  expect(json!.slowest[0]!.ms).toBeLessThanOrEqual(1_000 + 1_000 + TOLERANCE_MS)
})

test(
  'E7: output without end stops on time, and neither memory nor what is kept grows with it',
  LIMIT,
  async ({ world }) => {
    const flood = `${RECORD}; yes 'a line of a flood' >&2 & yes 'another line'`
    // The parent of the step is the runner.
    const memory = 'grep VmHWM /proc/$PPID/status > "$MARKS/memory"'
    const keep = 'cp -r "$XDG_STATE_HOME"/curfew/runs/*/results.jsonl "$MARKS/results"'
    const file = pipeline(flood, { agent: 2, reduce: [{ shell: memory }, { shell: keep }] })
    const { json } = await world.run(file)
    expect(json!.counts.timedOut).toBe(1)
    expect(json!.timeouts[0]!.elapsedMs).toBeGreaterThanOrEqual(2_000)
    expect(json!.timeouts[0]!.elapsedMs).toBeLessThanOrEqual(2_000 + TOLERANCE_MS)
    const peakKiB = Number(/\d+/.exec(world.mark('memory') ?? '')?.[0])
    expect(peakKiB).toBeLessThan(400 * 1_024)
    const { attempts } = JSON.parse(world.mark('results') ?? '{}')
    for (const [stream, line] of [
      ['stdout', 'another line'],
      ['stderr', 'a line of a flood'],
    ] as const) {
      const kept: string = attempts[0].timeout[stream]
      expect(kept.startsWith('…')).toBe(true)
      expect(kept).toContain(`${line}\n${line}\n`)
      expect(Buffer.byteLength(kept)).toBeLessThanOrEqual(16 * 1_024)
    }
    expect(world.alive()).toEqual([])
  },
)

test(
  'E8: a command that exits and leaves a child that holds its output is done, and the child ends with the item',
  LIMIT,
  async ({ world }) => {
    const daemon = `setsid sh -c '${RECORD}; trap "" TERM HUP; while :; do sleep 600; done' & sleep 600 & echo $! >> "$MARKS/pids"; until test -s "$MARKS/pids"; do sleep 0.02; done; echo answered`
    const steps = [{ shell: daemon, capture: 'answer' }, { shell: 'test ${answer} = answered' }]
    const file = pipeline(steps, { agent: 20, reduce: [{ shell: LOOK_AROUND }] })
    const running = world.launch(file)
    await world.untilMarked('reducing')
    expect(world.alive()).toEqual([])
    world.setMark('go')
    const { code, json } = await world.ended(running)
    expect([code, json!.counts.successful, json!.timeouts]).toEqual([0, 1, []])
    expect(json!.slowest[0]!.ms).toBeLessThan(10_000)
  },
)

test('F4: what timed out is said in these words, with what set the limit', LIMIT, async ({ world }) => {
  const byAgent = await world.run(pipeline(`${RECORD}; sleep 600`, { agent: 1 }))
  expect(byAgent.stderr).toMatch(
    /Agent item-0 timed out after 1s .*sleep 600.*; the limit is set by agent_timeout_secs/,
  )
  expect(byAgent.stderr).toContain('raise agent_timeout_secs of map')
  const step = { shell: `${RECORD}; sleep 600`, timeout: 1 }
  const byCommand = await world.run(pipeline([{ shell: 'true' }, step]))
  expect(byCommand.stderr).toMatch(/Command 1 in agent item-0 timed out after 1s .*sleep 600/)
  expect(byCommand.stderr).toContain('raise timeout of command 1')
  expect(world.alive()).toEqual([])
})

test(
  'J4: a runner that was stopped for a while acts as soon as it goes on, never early',
  LIMIT,
  async ({ world }) => {
    const step = `${RECORD}; echo now >> "$MARKS/started"; sleep 4; echo now >> "$MARKS/late"; sleep 600`
    const running = world.launch(pipeline(step, { agent: 2 }))
    await world.untilMarked('started')
    running.kill('SIGSTOP')
    // The limit falls meanwhile.
    await world.untilMarked('late')
    expect(world.alive()).toHaveLength(1)
    running.kill('SIGCONT')
    const { code, json } = await world.ended(running)
    expect([code, json!.status, json!.counts.timedOut]).toEqual([1, 'completed', 1])
    expect(json!.timeouts).toMatchObject([{ kind: 'agent', limitMs: 2_000 }])
    expect(json!.timeouts[0]!.elapsedMs).toBeGreaterThanOrEqual(3_900)
    expect(json!.timeouts[0]!.elapsedMs).toBeLessThanOrEqual(4_500 + TOLERANCE_MS)
    expect(world.alive()).toEqual([])
  },
)

test(
  'J4: while the runner was stopped one ended well, and another went past its limit',
  LIMIT,
  async ({ world }) => {
    // Before the process that watches over the runner takes it for dead, five seconds after it was stopped.
    const later = '(sleep 4; echo now >> "$MARKS/later") > /dev/null 2>&1 &'
    const file = {
      map: {
        input: { items: [0.7, 100] },
        timeout_config: {
          ...{ timeout_policy: 'per_command', command_timeouts: { shell: 1 }, cleanup_grace_period_secs: 1 },
        },
        agent_template: [{ shell: `${later} echo now >> "$MARKS/started"; exec sleep \${item}` }],
      },
    }
    const running = world.launch(file)
    await world.untilMarked('started', 2)
    running.kill('SIGSTOP')
    // The limits, and the two seconds that the store gives the runner, are over when it goes on.
    await world.untilMarked('later')
    running.kill('SIGCONT')
    const { code, json } = await world.ended(running)
    expect([code, json!.status]).toEqual([1, 'completed'])
    expect(json!.counts).toMatchObject({ total: 2, successful: 1, timedOut: 1 })
    expect(json!.timeouts).toMatchObject([{ itemId: 'item-1', kind: 'command', limitMs: 1_000 }])
  },
)

test(
  'K2: without the process that watches over it, a command is still held to its limit',
  LIMIT,
  async ({ world }) => {
    const running = world.launch(pipeline(MANY_PROCESSES, { agent: 2 }))
    await world.untilMarked('started')
    const watchers = running.witnesses()
    expect(watchers).toHaveLength(1)
    for (const pid of watchers) process.kill(pid, 'SIGKILL')
    const { json } = await world.ended(running)
    expect(json!.counts).toMatchObject({ total: 1, timedOut: 1 })
    expect(json!.timeouts).toMatchObject([{ kind: 'agent', limitMs: 2_000 }])
    expect(world.alive()).toEqual([])
    await world.nothingLeft()
  },
)

test(
  'kill -9 of the runner: nothing of its commands is left, and nobody else is touched',
  LIMIT,
  async ({ world }) => {
    // As another program of the same user would run beside it.
    const foreign = world.launch(pipeline('echo $$ >> "$MARKS/foreign"; sleep 600'), {
      ...{ name: 'foreign', args: ['--store', 'other.db'] },
    })
    const [stranger] = await world.untilMarked('foreign')
    const running = world.launch(pipeline(MANY_PROCESSES))
    await world.untilMarked('started')
    expect(world.alive()).toHaveLength(6)
    running.kill('SIGKILL')
    expect(await running.exited).toBe('SIGKILL')
    await until('nothing of it is left', 20_000, () => world.alive().length === 0)
    expect(zombiesOf([foreign.pid, ...foreign.witnesses()])).toEqual([])
    expect([foreign.alive, isAlive(Number(stranger))]).toEqual([true, true])
  },
)

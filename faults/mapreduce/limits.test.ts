import { existsSync, readdirSync } from 'node:fs'
import path from 'node:path'
import { describe, expect, vi } from 'vitest'
import { hangingProgram } from '../../src/worker/fixtures/hanging-program.ts'
import type { StoredItem, Summary, World } from './world.ts'
import { HANG, summaryOf, TOLERANCE_MS, worldTest as test } from './world.ts'

// Each test starts processes that wait for limits, and the machine may be busy.
vi.setConfig({ testTimeout: 90_000, maxConcurrency: 4 })

const SHORT_GRACE = { cleanup_grace_period_secs: 1 }
const ONE = { items: [{ name: 'one' }] }

/** Never early, and at most so late. */
function expectTimely({ elapsedMs, limitMs }: { elapsedMs: number; limitMs: number }): void {
  expect(elapsedMs).toBeGreaterThanOrEqual(limitMs)
  expect(elapsedMs).toBeLessThanOrEqual(limitMs + TOLERANCE_MS)
}

/** The only timeout there was. */
function onlyTimeout({ timeouts }: Summary): Summary['timeouts'][number] {
  expect(timeouts).toHaveLength(1)
  const [timeout] = timeouts as [Summary['timeouts'][number]]
  expectTimely(timeout)
  return timeout
}

/** What was noted of one item. */
async function eventsOf(world: World, { jobId }: Summary, id = 'item-0'): Promise<StoredItem['events']> {
  return (await world.items(jobId))[id]?.events ?? []
}

const typesOf = (events: StoredItem['events']) => events.map(({ type }) => type)

describe('the limit of the agent', () => {
  test.concurrent('J2: it is kept while another item has printed nothing but line breaks', async ({
    world,
  }) => {
    const breaks = 'head -c 130000 /dev/zero | tr "\\0" "\\n"; echo tea; echo'
    const ran = await world.run({
      map: {
        ...{ input: { items: ['slow', 'breaks'] }, agent_timeout_secs: 2, timeout_config: SHORT_GRACE },
        agent_template: [
          { shell: 'sleep 1', when: 'item == "breaks"' },
          { shell: breaks, when: 'item == "breaks"', capture: 'tea' },
          { shell: HANG, when: 'item == "slow"' },
        ],
      },
    })
    expect(onlyTimeout(summaryOf(ran))).toMatchObject({ itemId: 'item-0' })
    expect(ran.json?.counts).toMatchObject({ successful: 1, timedOut: 1 })
  })

  test.skipIf(process.platform !== 'linux').for([
    ['agent_timeout_secs', {}],
    ['timeout', { timeout: 2 }],
  ] as const)(
    '%s stops an item whose program hangs at its start, and leaves the others alone',
    async ([which, own], { world }) => {
      const { file } = hangingProgram('#!/bin/sh\necho late > "$MARKS/late"\n')
      const ran = await world.run({
        runners: { stuck: [file] },
        map: {
          ...{ input: { items: ['stuck', 'fast', 'faster'] }, timeout_config: SHORT_GRACE },
          ...(which === 'agent_timeout_secs' && { agent_timeout_secs: 2 }),
          agent_template: [{ stuck: 'x', ...own, when: 'item == "stuck"' }, { shell: 'echo done' }],
        },
      })
      expect(onlyTimeout(summaryOf(ran))).toMatchObject({ itemId: 'item-0', limitMs: 2_000 })
      expect(ran.json?.counts).toMatchObject({ successful: 2, timedOut: 1 })
      expect(world.mark('late')).toBeNull()
    },
  )

  test.concurrent('A1: agent_timeout_secs stops one item and leaves the other alone', async ({ world }) => {
    const ran = await world.run({
      map: {
        ...{ input: { items: [{ name: 'slow' }, { name: 'fast' }] }, agent_timeout_secs: 2 },
        timeout_config: SHORT_GRACE,
        agent_template: [{ shell: HANG, when: 'item.name == "slow"' }, { shell: 'echo done' }],
      },
      reduce: [
        { shell: 'echo ${map.failed} ${map.timed_out} ${map.successful} ${map.total} > "$MARKS/counts"' },
      ],
    })
    const summary = summaryOf(ran)
    expect(ran.code).toBe(1)
    expect(summary.counts).toMatchObject({ total: 2, timedOut: 1, successful: 1, failed: 0 })
    expect(onlyTimeout(summary)).toMatchObject({
      ...{ name: 'slow', kind: 'agent', limitMs: 2_000, source: 'agent_timeout_secs' },
    })
    expect(summary.slowest[0]?.ms).toBeLessThan(2_000 + 1_000 + TOLERANCE_MS)
    expect(world.lines('counts')).toEqual(['1 1 1 2'])
    expect(world.lines('pids')).toHaveLength(2)
    expect(world.alive()).toEqual([])
    expect(world.mark('late')).toBeNull()
    await world.nothingLeft()
  })

  test.concurrent('A3: it may be a variable of the environment', async ({ world }) => {
    const pipeline = {
      map: {
        ...{ input: ONE, agent_timeout_secs: '$AT', timeout_config: SHORT_GRACE },
        agent_template: [{ shell: HANG }],
      },
    }
    const unset = await world.run(pipeline)
    expect(unset.code).toBe(2)
    expect(unset.stderr).toContain('the environment variable AT is not set')
    expect(world.mark('pids')).toBeNull()
    expect(readdirSync(world.state)).toEqual([])
    const set = await world.run(pipeline, [], { AT: '1' })
    expect(onlyTimeout(summaryOf(set))).toMatchObject({ kind: 'agent', limitMs: 1_000 })
  })

  test.concurrent('A4: it may stand beside timeout_config or in it, and the outer one wins', async ({
    world,
  }) => {
    const map = { input: ONE, agent_template: [{ shell: HANG }] }
    const outer = await world.run({
      map: { ...map, agent_timeout_secs: 1, timeout_config: { ...SHORT_GRACE, timeout_policy: 'hybrid' } },
    })
    expect(onlyTimeout(summaryOf(outer))).toMatchObject({ kind: 'agent', limitMs: 1_000 })
    const inner = await world.run({
      map: { ...map, timeout_config: { ...SHORT_GRACE, agent_timeout_secs: 1 } },
    })
    expect(onlyTimeout(summaryOf(inner))).toMatchObject({ kind: 'agent', limitMs: 1_000 })
    const both = await world.run({
      map: { ...map, agent_timeout_secs: 1, timeout_config: { ...SHORT_GRACE, agent_timeout_secs: 60 } },
    })
    expect(onlyTimeout(summaryOf(both))).toMatchObject({ kind: 'agent', limitMs: 1_000 })
    const validated = await world.curfew(['validate', 'main.pipeline.json'])
    expect(validated.code).toBe(0)
    expect(validated.stdout).toContain("agent_timeout_secs of 'map' is another, and wins")
  })

  test.concurrent('A5: without any limit a step takes the time it takes', async ({ world }) => {
    const ran = await world.run({
      map: { input: ONE, agent_template: [{ shell: 'sleep 3; echo done > "$MARKS/done"' }] },
    })
    const summary = summaryOf(ran)
    expect(ran.code).toBe(0)
    expect(summary.timeouts).toEqual([])
    expect(world.lines('done')).toEqual(['done'])
    const types = typesOf(await eventsOf(world, summary))
    expect(types).toContain('command_completed')
    expect(types).not.toContain('timeout_occurred')
  })

  test.concurrent('C6: waiting for a slot and making the folder are not charged', async ({ world }) => {
    const ran = await world.run({
      map: {
        ...{ input: { items: [1, 2, 3] }, max_parallel: 1, agent_timeout_secs: 3 },
        agent_template: [{ shell: 'sleep 1.5' }],
      },
    })
    const summary = summaryOf(ran)
    expect(summary.counts).toMatchObject({ total: 3, successful: 3 })
    expect(summary.ms).toBeGreaterThan(4_500)
    expect(summary.timeouts).toEqual([])
  })
})

describe('limits of commands', () => {
  test.concurrent('B1: the key of one command wins over that of its type', async ({ world }) => {
    world.program('claude', '#!/bin/sh\necho "$2" >> "$MARKS/asked"\nexec sleep 2\n')
    const ran = await world.run({
      map: {
        ...{ input: ONE },
        timeout_config: {
          ...{ ...SHORT_GRACE, timeout_policy: 'per_command', command_timeouts: { claude: 1, claude_0: 30 } },
        },
        agent_template: [{ claude: 'first' }, { shell: 'true' }, { claude: 'second' }, { shell: HANG }],
      },
    })
    const summary = summaryOf(ran)
    expect(onlyTimeout(summary)).toMatchObject({
      ...{ kind: 'command', commandIndex: 2, type: 'claude', limitMs: 1_000 },
      source: 'command_timeouts["claude"]',
    })
    expect(world.lines('asked')).toEqual(['first', 'second'])
    expect(world.mark('pids')).toBeNull()
  })

  test.concurrent('B2: the key of a type; the error names command and type', async ({ world }) => {
    const ran = await world.run({
      map: {
        ...{ input: ONE, agent_template: [{ shell: 'sleep 5' }] },
        timeout_config: { ...SHORT_GRACE, timeout_policy: 'per_command', command_timeouts: { shell: 1 } },
      },
    })
    expect(onlyTimeout(summaryOf(ran))).toMatchObject({
      ...{ kind: 'command', commandIndex: 0, type: 'shell' },
      source: 'command_timeouts["shell"]',
    })
    expect(ran.stderr).toContain('Command 0 in agent item-0 timed out after 1s (shell: sleep 5)')
  })

  test.concurrent('B4: what is written on a step wins', async ({ world }) => {
    const ran = await world.run({
      map: {
        ...{ input: ONE, agent_template: [{ shell: 'sleep 2', timeout: 20 }] },
        timeout_config: { timeout_policy: 'per_command', command_timeouts: { shell: 1 } },
      },
    })
    expect(summaryOf(ran).timeouts).toEqual([])
    expect(ran.code).toBe(0)
  })

  test.concurrent('C4: one that has ended does not time out later', async ({ world }) => {
    world.program('claude', '#!/bin/sh\nexec sleep 2\n')
    const ran = await world.run({
      map: {
        ...{ input: ONE, agent_template: [{ shell: 'true' }, { claude: 'take your time' }] },
        timeout_config: { timeout_policy: 'per_command', command_timeouts: { shell: 1, claude: 30 } },
      },
    })
    const summary = summaryOf(ran)
    expect(summary.counts.successful).toBe(1)
    const events = await eventsOf(world, summary)
    expect(typesOf(events).filter((type) => type === 'command_completed')).toHaveLength(2)
    expect(typesOf(events)).not.toContain('timeout_occurred')
  })
})

describe('policies', () => {
  const two = [{ shell: 'sleep 1.2' }, { shell: 'sleep 1.2' }]
  const limits = (timeout_policy: string, shell: number) => ({
    timeout_config: { ...SHORT_GRACE, timeout_policy, command_timeouts: { shell } },
  })

  test.concurrent('C1: per_agent applies that of the agent, not those of commands', async ({ world }) => {
    const map = { input: ONE, agent_template: two, ...limits('per_agent', 1) }
    const within = await world.run({ map: { ...map, agent_timeout_secs: 20 } })
    expect(summaryOf(within).timeouts).toEqual([])
    expect(within.code).toBe(0)
    const beyond = await world.run({ map: { ...map, agent_timeout_secs: 2 } })
    expect(onlyTimeout(summaryOf(beyond))).toMatchObject({ kind: 'agent', commandIndex: 1, limitMs: 2_000 })
  })

  test.concurrent('C2: per_command does not apply that of the agent', async ({ world }) => {
    const ran = await world.run({
      map: { input: ONE, agent_template: two, ...limits('per_command', 20), agent_timeout_secs: 1 },
    })
    expect(summaryOf(ran).timeouts).toEqual([])
    expect(ran.code).toBe(0)
    const validated = await world.curfew(['validate', 'main.pipeline.json'])
    expect(validated.stdout).toContain('the limit of the agent is not applied')
  })

  test.concurrent('C3: hybrid applies both, and the first to fire wins', async ({ world }) => {
    const map = { input: ONE, agent_template: [{ shell: HANG }] }
    const command = await world.run({ map: { ...map, ...limits('hybrid', 1), agent_timeout_secs: 20 } })
    expect(onlyTimeout(summaryOf(command))).toMatchObject({ kind: 'command', limitMs: 1_000 })
    expect(command.stderr).toContain('Command 0 in agent item-0 timed out after 1s')
    const agent = await world.run({ map: { ...map, ...limits('hybrid', 20), agent_timeout_secs: 1 } })
    expect(onlyTimeout(summaryOf(agent))).toMatchObject({ kind: 'agent', limitMs: 1_000 })
    expect(agent.stderr).toContain('Agent item-0 timed out after 1s')
  })
})

describe('other limits', () => {
  test.concurrent('A6: setup, reduce and merge are bounded the same way', async ({ world }) => {
    const map = { input: ONE, agent_template: [{ shell: 'echo item >> "$MARKS/ran"' }] }
    const limited = { timeout: 1, commands: [{ shell: HANG }] }
    const after = [{ shell: 'echo after >> "$MARKS/ran"' }]
    const bounded = { ...map, timeout_config: SHORT_GRACE }
    const setup = await world.run({ setup: limited, map: bounded })
    expect(summaryOf(setup).failure).toEqual({
      code: 'phase_timed_out',
      message: expect.stringMatching(/^setup: Phase setup timed out after 1s \(command 0, shell: .+\)$/),
    })
    const reduce = await world.run({ map: bounded, reduce: [{ shell: HANG, timeout: 1 }], merge: after })
    expect(summaryOf(reduce).failure).toMatchObject({
      code: 'phase_timed_out',
      message: expect.stringMatching(/^reduce: Command 0 in phase reduce timed out after 1s/),
    })
    const merge = await world.run({ map: bounded, merge: limited })
    expect(summaryOf(merge).failure?.message).toMatch(/^merge: Phase merge timed out after 1s/)
    expect([setup, reduce, merge].map(({ code }) => code)).toEqual([1, 1, 1])
    expect(world.lines('ran')).toEqual(['item', 'item'])
    expect(world.lines('pids')).toHaveLength(6)
    expect(world.alive()).toEqual([])
  })

  test.concurrent('the job: it exits with 124 and nothing runs on', async ({ world }) => {
    const ran = await world.run({
      timeout: 2,
      map: {
        ...{ input: { items: [1, 2, 3] }, max_parallel: 2, timeout_config: SHORT_GRACE },
        agent_template: [{ shell: HANG }],
      },
      reduce: [{ shell: 'echo reduced > "$MARKS/reduced"' }],
    })
    const summary = summaryOf(ran)
    expect(ran.code).toBe(124)
    expect(summary.status).toBe('timed_out')
    expect(summary.counts).toMatchObject({ total: 3, cancelled: 3, running: 0, waiting: 0 })
    expect(world.lines('pids')).toHaveLength(4)
    expect(world.alive()).toEqual([])
    expect(world.mark('reduced')).toBeNull()
    expect(summary.ms).toBeGreaterThanOrEqual(2_000)
    await world.nothingLeft()
  })

  test.concurrent('what claude streams counts as progress; silence does not', async ({ world }) => {
    const speak = 'for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do printf "word "; sleep 0.3; done'
    world.program('claude', `#!/bin/sh\nif [ "$2" = stream ]; then ${speak}; else sleep 600; fi\n`)
    const ran = await world.run({
      map: {
        ...{ input: { items: [{ name: 'stream' }, { name: 'silent' }] }, idle_timeout_ms: 4_000 },
        timeout_config: SHORT_GRACE,
        agent_template: [{ claude: '${item.name}' }],
      },
    })
    const summary = summaryOf(ran)
    expect(summary.counts).toMatchObject({ successful: 1, timedOut: 1 })
    expect(onlyTimeout(summary)).toMatchObject({
      ...{ name: 'silent', kind: 'idle', limitMs: 4_000, source: 'idle_timeout_secs' },
    })
    expect(ran.stderr).toContain('timed out after 4s without output')
  })

  test.concurrent('a claude that is missing is told before anything starts', async ({ world }) => {
    const ran = await world.run(
      {
        setup: [{ shell: 'echo ran > "$MARKS/ran"' }],
        map: { input: ONE, agent_template: [{ shell: 'echo ran > "$MARKS/ran"' }, { claude: 'hello' }] },
      },
      [],
      { PATH: world.bin },
    )
    expect(ran.code).toBe(2)
    expect(ran.json).toBeNull()
    expect(ran.stderr).toContain('claude, which runs claude steps, is not found on PATH')
    expect(ran.stderr).toContain('runners: { claude:')
    expect(world.mark('ran')).toBeNull()
    expect(existsSync(path.join(world.top, 'curfew.db'))).toBe(false)
    expect(readdirSync(world.state)).toEqual([])
  })
})

describe('precision', () => {
  test('C5: a command that ends at its limit has one end', async ({ world }) => {
    const items = Array.from({ length: 20 }, (_, i) => ({ name: `n${i}`, secs: 0.97 + i * 0.002 }))
    const ran = await world.run({
      map: {
        ...{ input: { items }, max_parallel: 10, agent_template: [{ shell: 'sleep ${item.secs}' }] },
        timeout_config: { ...SHORT_GRACE, timeout_policy: 'per_command', command_timeouts: { shell: 1 } },
      },
    })
    const summary = summaryOf(ran)
    const { total, successful, timedOut } = summary.counts
    expect(total).toBe(20)
    expect(successful + timedOut).toBe(20)
    expect(summary.timeouts).toHaveLength(timedOut)
    expect(summary.deadLetters).toBe(timedOut)
    const stored = Object.values(await world.items(summary.jobId))
    expect(stored).toHaveLength(20)
    for (const { status, events } of stored) {
      const types = typesOf(events)
      const ends = types.filter((type) => type === 'command_completed' || type === 'timeout_occurred')
      expect(ends).toEqual([status === 'successful' ? 'command_completed' : 'timeout_occurred'])
      expect(types.filter((type) => type === 'agent_completed')).toHaveLength(1)
      expect(types.filter((type) => type === 'timeout_resolved')).toHaveLength(
        status === 'successful' ? 0 : 1,
      )
    }
    expect(await world.letters(summary.jobId)).toHaveLength(timedOut)
  })

  /** Each item runs the one command whose limit it names. */
  const limited = (limits: readonly number[], shell: string) =>
    limits.map((limit) => ({ shell, timeout: limit, when: `item.limit == ${limit}` }))

  test('J2: limits of 1, 2, 3 and 5 s fire in time under load', async ({ world }) => {
    const burn = 'while :; do :; done'
    const ran = await world.run({
      map: {
        ...{ input: { items: [1, 2, 3, 5, 6, 7].map((limit) => ({ limit })) }, timeout_config: SHORT_GRACE },
        agent_template: [...limited([1, 2, 3, 5], HANG), ...limited([6, 7], burn)],
      },
    })
    const summary = summaryOf(ran)
    expect(summary.counts).toMatchObject({ total: 6, timedOut: 6 })
    for (const timeout of summary.timeouts) expectTimely(timeout)
    expect(summary.timeouts.map(({ limitMs }) => limitMs).toSorted((a, b) => a - b)).toEqual([
      1_000, 2_000, 3_000, 5_000, 6_000, 7_000,
    ])
    expect(world.alive()).toEqual([])
  })

  test('J3: 50 agents at once, each with its own limit', async ({ world }) => {
    const items = Array.from({ length: 50 }, (_, i) => ({ limit: (i % 4) + 1, hangs: i % 5 !== 0 }))
    const shell = 'test ${item.hangs} = false || sleep 600'
    const ran = await world.run({
      map: {
        ...{ input: { items }, max_parallel: 50, timeout_config: SHORT_GRACE },
        agent_template: limited([1, 2, 3, 4], shell),
      },
    })
    const summary = summaryOf(ran)
    expect(summary.counts).toMatchObject({ total: 50, timedOut: 40, successful: 10 })
    for (const timeout of summary.timeouts) {
      expectTimely(timeout)
      expect(timeout.limitMs).toBe(items[Number(timeout.itemId.replace('item-', ''))]!.limit * 1_000)
    }
    const stored = await world.items(summary.jobId)
    const wrong = Object.values(stored).filter(
      ({ id, status }) => (status === 'timed_out') !== items[Number(id.replace('item-', ''))]!.hangs,
    )
    expect(wrong).toEqual([])
    await world.nothingLeft()
  })
})

// What stays on record of a run: events, figures and dead letters; and what must not.

import { readdirSync, readFileSync } from 'node:fs'
import path from 'node:path'
import { expect } from 'vitest'
import type { World } from './world.ts'
import { HANG, TOLERANCE_MS, worldTest as test } from './world.ts'

const LIMIT = { timeout: 120_000 }

interface Event {
  taskId: string
  seq: number
  at: number
  type: string
  item?: string
  [field: string]: unknown
}

/** What the command line prints of them. */
async function eventsOf(world: World, jobId: string): Promise<Event[]> {
  const { code, stdout } = await world.curfew(['events', jobId, '--json'])
  expect(code).toBe(0)
  return stdout
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line) as Event)
}

/** Those that say what was done to an item. */
const OF_ITEMS = /^(agent|command|timeout|cleanup)_/

async function show(world: World, jobId: string, itemId: string) {
  const { code, stdout } = await world.curfew(['dlq', 'show', jobId, itemId, '--json'])
  expect(code).toBe(0)
  return JSON.parse(stdout)
}

function pipeline(steps: object[], map: object = {}, rest: object = {}): object {
  const timeout_config = {
    cleanup_grace_period_secs: 1,
    ...(map as { timeout_config?: object }).timeout_config,
  }
  return { map: { input: { items: [{ n: 1 }] }, ...map, timeout_config, agent_template: steps }, ...rest }
}

test('F1: a timeout can be followed by its events, in their order', LIMIT, async ({ world }) => {
  const { json } = await world.run(pipeline([{ shell: 'true' }, { shell: HANG }], { agent_timeout_secs: 1 }))
  const events = await eventsOf(world, json!.jobId)
  const told = events.filter(({ type }) => OF_ITEMS.test(type))
  expect(told).toMatchObject([
    { type: 'agent_started', item: 'item-0', limitMs: 1_000 },
    {
      type: 'command_started',
      item: 'item-0',
      command: 0,
      commandType: 'shell',
      source: 'agent_timeout_secs',
    },
    { type: 'command_completed', item: 'item-0', command: 0 },
    { type: 'command_started', item: 'item-0', command: 1, text: HANG },
    {
      ...{ type: 'timeout_occurred', item: 'item-0', command: 1, timeoutType: 'agent', limitMs: 1_000 },
      ...{
        source: 'agent_timeout_secs',
        message: expect.stringContaining('Agent item-0 timed out after 1s'),
      },
    },
    { type: 'timeout_resolved', item: 'item-0', resolution: 'GracefulTermination' },
    { type: 'cleanup_completed', item: 'item-0' },
    { type: 'agent_completed', item: 'item-0', status: 'timed_out' },
  ])
  expect(new Set(told.map(({ taskId }) => taskId)).size).toBe(1)
  const { elapsedMs } = told[4] as unknown as { elapsedMs: number }
  expect(elapsedMs).toBeGreaterThanOrEqual(1_000)
  expect(elapsedMs).toBeLessThanOrEqual(1_000 + TOLERANCE_MS)
  expect(events.at(-1)).toMatchObject({ taskId: json!.jobId, type: 'workflow_completed' })
})

test(
  'F2: a run in which nothing times out says how long everything took, and nothing of timeouts',
  LIMIT,
  async ({ world }) => {
    const map = { input: { items: [{ n: 1 }, { n: 2 }] }, agent_timeout_secs: 30 }
    const { code, json } = await world.run(pipeline([{ shell: 'sleep 0.2' }, { shell: 'true' }], map))
    expect(code).toBe(0)
    const told = (await eventsOf(world, json!.jobId)).filter(({ type }) => OF_ITEMS.test(type))
    const ofType = (type: string) => told.filter((event) => event.type === type)
    expect(ofType('agent_completed')).toHaveLength(2)
    expect(ofType('command_completed')).toHaveLength(4)
    expect(ofType('timeout_occurred')).toEqual([])
    expect(ofType('timeout_resolved')).toEqual([])
    for (const { tookMs } of ofType('agent_completed')) expect(tookMs).toBeGreaterThanOrEqual(200)
    for (const { tookMs } of ofType('command_completed').filter(({ command }) => command === 0))
      expect(tookMs).toBeGreaterThanOrEqual(200)
  },
)

test(
  'G2: without monitoring limits hold, and neither events nor figures are kept',
  LIMIT,
  async ({ world }) => {
    const map = { agent_timeout_secs: 1, timeout_config: { enable_monitoring: false } }
    const { code, json } = await world.run(pipeline([{ shell: HANG }], map))
    expect([code, json?.counts.timedOut]).toEqual([1, 1])
    expect(json!.timeouts[0]!.elapsedMs).toBeLessThanOrEqual(1_000 + TOLERANCE_MS)
    expect(world.alive()).toEqual([])
    const told = (await eventsOf(world, json!.jobId)).filter(({ type }) => OF_ITEMS.test(type))
    expect(told).toEqual([])
    const stats = await world.curfew(['timeouts', 'stats', json!.jobId, '--json'])
    expect(stats.stdout + stats.stderr).not.toMatch(/"timeouts_occurred": [1-9]/)
    // What was given up is a matter of its own.
    expect(await world.letters(json!.jobId)).toMatchObject([{ itemId: 'item-0', errorType: 'timeout' }])
  },
)

const SECRETS = {
  PLAIN: 'correct horse "battery" staple',
  SPLIT: 'swordfish-of-the-deep',
  OWN: 'hunter2-hunter2',
}

test('E9: secrets are masked wherever output turns up', LIMIT, async ({ world }) => {
  const leak =
    'printf "plain %s\\n" "$PLAIN"; printf "%s" "${OWN}" | base64 >&2; printf swordfish-; sleep 0.1; echo of-the-deep; echo "own $OWN" >&2'
  const steps = [
    { shell: `${leak}; exit 3`, when: 'item.n == 1' },
    { shell: `${leak}; ${HANG}`, when: 'item.n == 2' },
    { shell: leak, capture: 'said', when: 'item.n == 3' },
    { shell: 'echo ${said}; exit 1', when: 'item.n == 3' },
    { claude: 'Use ${PLAIN} and nothing else.', when: 'item.n == 4' },
  ]
  world.program('claude', '#!/bin/sh\necho "I was told: $*" >&2\nexit 4\n')
  const definition = pipeline(
    steps,
    { input: { items: [1, 2, 3, 4].map((n) => ({ n })) }, agent_timeout_secs: 2 },
    { secrets: ['PLAIN', 'SPLIT', 'OWN'], env: { OWN: SECRETS.OWN }, reduce: [{ shell: `${leak}; exit 1` }] },
  )
  const { PLAIN, SPLIT } = SECRETS
  const ran = await world.run(definition, [], { PLAIN, SPLIT })
  expect(ran.json).toMatchObject({ status: 'failed', counts: { failed: 3, timedOut: 1 } })
  const { jobId } = ran.json!
  const printed = [ran.stdout, ran.stderr]
  for (const args of [
    ['events', jobId, '--json'],
    ['dlq', 'list', jobId],
    ...[0, 1, 2, 3].map((n) => ['dlq', 'show', jobId, `item-${n}`]),
    ['dlq', 'export', jobId],
    ['status', jobId],
    ['explain', jobId],
  ]) {
    const { code, stdout, stderr } = await world.curfew(args)
    expect([args.join(' '), code]).toEqual([args.join(' '), 0])
    printed.push(stdout, stderr)
  }
  const all = printed.join('\n')
  // It is there, without them.
  expect(all).toContain('plain ')
  expect(all).toContain('I was told: ')
  expectNoSecret(all)
  expectNoSecret(readFileSync(path.join(world.top, 'curfew.db'), 'latin1'))
  for (const name of readdirSync(path.join(world.runs, jobId)))
    if (name !== 'run.json') expectNoSecret(readFileSync(path.join(world.runs, jobId, name), 'utf8'))
})

test(
  'E9: what the command of map.input prints to stderr is masked in its error',
  LIMIT,
  async ({ world }) => {
    const input = { command: 'echo "no access with $PLAIN" >&2; exit 1' }
    const definition = { map: { input, agent_template: [{ shell: 'true' }] }, secrets: ['PLAIN'] }
    const { code, json, stdout, stderr } = await world.run(definition, [], { PLAIN: SECRETS.PLAIN })
    expect([code, json?.failure?.code]).toEqual([1, 'input_failed'])
    expect(stderr).toContain('no access with')
    expectNoSecret(stdout + stderr)
    expectNoSecret(readFileSync(path.join(world.top, 'curfew.db'), 'latin1'))
  },
)

test(
  'E9: neither a condition that cannot be told nor a file that is not there shows one',
  LIMIT,
  async ({ world }) => {
    const LONG = Array.from({ length: 100 }, (_, i) => `part-${i}`).join('.')
    const secrets = { secrets: ['PLAIN', 'LONG'] }
    const expectNone = ({ stdout, stderr }: { stdout: string; stderr: string }) => {
      const stored = readFileSync(path.join(world.top, 'curfew.db'), 'latin1')
      for (const text of [stdout, stderr, stored]) {
        expectNoSecret(text)
        expect(text).not.toContain('part-1')
      }
    }
    const steps = [{ shell: 'true', when: 'LONG == item.missing || PLAIN == "x"' }]
    const ran = await world.run(
      {
        ...pipeline(steps, { input: { items: [{ n: 1 }] } }),
        ...secrets,
        reduce: [{ shell: 'true', when: 'LONG' }],
      },
      [],
      { PLAIN: SECRETS.PLAIN, LONG },
    )
    expect(ran.json).toMatchObject({ status: 'failed', counts: { failed: 1 } })
    expect(ran.json?.failure?.message).toContain('LONG = "***"')
    expectNone(ran)

    const map = { input: 'in-${PLAIN}.json', agent_template: [{ shell: 'true' }] }
    const missing = await world.run({ map, ...secrets }, [], { PLAIN: SECRETS.PLAIN, LONG })
    expect(missing.json?.failure).toMatchObject({ code: 'input_not_found' })
    expectNone(missing)
  },
)

function expectNoSecret(text: string): void {
  for (const secret of Object.values(SECRETS)) {
    const forms = [secret, JSON.stringify(secret).slice(1, -1), Buffer.from(secret).toString('base64')]
    for (const form of forms) expect(text.includes(form), `${form} is in there`).toBe(false)
  }
}

test(
  'H1: a dead letter tells what timed out, with one entry of its history for each attempt',
  LIMIT,
  async ({ world }) => {
    const timeout_config = {
      timeout_action: 'retry',
      timeout_policy: 'hybrid',
      command_timeouts: { shell: 1 },
    }
    const { json } = await world.run(
      pipeline([{ shell: 'true' }, { shell: HANG }], { agent_timeout_secs: 20, timeout_config }),
    )
    expect(json?.counts.timedOut).toBe(1)
    const letter = await show(world, json!.jobId, 'item-0')
    expect(letter).toMatchObject({
      ...{ errorType: 'timeout', eligible: true, state: 'open', item: { n: 1 }, attempts: 2 },
      timeout: {
        ...{ kind: 'command', commandIndex: 1, commandType: 'shell', limitMs: 1_000 },
        source: 'command_timeouts["shell"]',
      },
      history: [
        { attempt: 1, status: 'timed_out', timeout: { limitMs: 1_000 } },
        { attempt: 2, status: 'timed_out', timeout: { limitMs: 1_000 } },
      ],
    })
    expect(letter.timeout.elapsedMs).toBeGreaterThanOrEqual(1_000)
    const text = await world.curfew(['dlq', 'show', json!.jobId, 'item-0'])
    expect(text.stdout).toContain('command_timeouts["shell"]')
    expect(text.stdout).toContain(`curfew dlq retry ${json!.jobId} item-0`)
  },
)

/** Item 1 hangs until it is mended, item 2 fails until it is. */
const BROKEN = [
  { shell: 'echo "${item.n}" >> "$MARKS/ran"' },
  { shell: `test -e "$MARKS/mended" && sleep 1.5 || { ${HANG}; }`, when: 'item.n == 1' },
  { shell: 'test -e "$MARKS/mended"', when: 'item.n == 2' },
]
const OF_THREE = { input: { items: [1, 2, 3].map((n) => ({ n })) }, agent_timeout_secs: 1 }

test(
  'H2: letters are listed by their kind, and retried with another limit until they are resolved',
  LIMIT,
  async ({ world }) => {
    // Silent for longer than that both times it is retried: the other limit is the only one.
    const { json } = await world.run(pipeline(BROKEN, { ...OF_THREE, idle_timeout: '1200ms' }))
    const { jobId } = json!
    expect(json?.counts).toMatchObject({ successful: 1, failed: 1, timedOut: 1 })
    const listed = await world.curfew(['dlq', 'list', jobId, '--error-type', 'timeout', '--json'])
    expect(JSON.parse(listed.stdout).letters).toMatchObject([{ itemId: 'item-0', errorType: 'timeout' }])

    // Not yet mended: the history grows.
    const retry = ['dlq', 'retry', jobId, '--error-type', 'timeout', '--json']
    const again = await world.curfew([...retry, '--timeout', '2'])
    expect([again.code, again.json?.counts]).toMatchObject([1, { total: 1, timedOut: 1 }])
    expect(await show(world, jobId, 'item-0')).toMatchObject({
      ...{ state: 'open', attempts: 2, retryId: null, timeout: { limitMs: 2_000 } },
      history: [
        { jobId, timeout: { limitMs: 1_000 } },
        { jobId: again.json!.jobId, timeout: { limitMs: 2_000 } },
      ],
    })

    world.setMark('mended')
    const mended = await world.curfew([...retry, '--timeout', '30'])
    expect([mended.code, mended.json?.counts]).toMatchObject([0, { total: 1, successful: 1 }])
    const left = await world.curfew(['dlq', 'list', jobId, '--json'])
    expect(JSON.parse(left.stdout).letters).toMatchObject([{ itemId: 'item-1', errorType: 'failure' }])
    expect(world.lines('ran').toSorted()).toEqual(['1', '1', '1', '2', '3'])
    expect(world.alive()).toEqual([])
    expect(world.worktrees()).toEqual([])
  },
)

test('H3: of two retries at once the second is refused', LIMIT, async ({ world }) => {
  const { json } = await world.run(pipeline(BROKEN, OF_THREE))
  const { jobId } = json!
  const first = world.start(['dlq', 'retry', jobId, '--timeout', '60', '--json'])
  await world.untilMarked('ran', 5)
  const second = await world.curfew(['dlq', 'retry', jobId, '--json'])
  expect([second.code, second.stdout]).toEqual([1, ''])
  expect(second.stderr).toMatch(/item-\d of w_\w+ is being retried by w_/)
  const discarded = await world.curfew(['dlq', 'discard', jobId, '--json'])
  expect(discarded.stderr).toContain('is being retried by')
  first.kill('SIGINT')
  expect(await first.exited).toBe(130)
  expect(world.alive()).toEqual([])
})

test('G1: timeouts stats counts what started, completed and timed out', LIMIT, async ({ world }) => {
  const { json } = await world.run({
    map: {
      input: { items: [1, 2, 3, 4] },
      agent_timeout_secs: 2,
      timeout_config: { cleanup_grace_period_secs: 1 },
      agent_template: [{ shell: `test \${item} != 3 || { ${HANG}; }` }],
    },
  })
  const stats = await world.curfew(['timeouts', 'stats', json!.jobId, '--json'])
  expect(JSON.parse(stats.stdout)).toMatchObject({
    ...{ agents_started: 4, agents_completed: 3, timeouts_occurred: 1, timeout_rate_percent: 25 },
    ...{ by_type: { agent: 1 }, by_command_type: { shell: 1 } },
  })
  expect(JSON.parse(stats.stdout).average_execution_time_secs).toBeGreaterThan(0)
})

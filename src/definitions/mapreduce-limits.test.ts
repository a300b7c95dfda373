import { describe, expect, test } from 'vitest'
import { loadMapreduce, validateMapreduce } from './mapreduce.ts'
import type { CommandLimit } from './mapreduce-limits.ts'
import { effectiveLimits, limitOfAttempt, maxAttempts, worstCase } from './mapreduce-limits.ts'
import type { MapreduceModel } from './mapreduce-model.ts'

/** The file of a map over these commands. */
function file(template: string, timeouts: string, rest = ''): string {
  return `name: m
map:
  input: { items: [1] }
  agent_template: ${template}
  ${timeouts}
${rest}`
}
const model = (...parts: Parameters<typeof file>): MapreduceModel => loadMapreduce(file(...parts)).model
const warnings = (...parts: Parameters<typeof file>): string[] =>
  validateMapreduce(file(...parts)).problems.map(
    ({ severity, path, message }) => `${severity} ${path}: ${message}`,
  )

/** Of the commands of the map: what holds, in seconds, and where it was set. */
function limits(of: MapreduceModel): [number | null, string][] {
  const commands = effectiveLimits(of).commands.filter(({ phase }) => phase === 'map')
  return commands.map(({ limit }) => [limit.ms && limit.ms / 1_000, limit.source])
}

describe('which limit a command has', () => {
  test('B1: its own key wins over that of its type', () => {
    const of = model(
      '[{ claude: a }, { shell: b }, { claude: c }]',
      'timeout_config: { timeout_policy: per_command, command_timeouts: { claude: 1, claude_0: 4 } }',
    )
    expect(limits(of)).toEqual([
      [4, 'command_timeouts["claude_0"]'],
      [60, 'default'],
      [1, 'command_timeouts["claude"]'],
    ])
  })

  test('B2: the key of its type', () => {
    const of = model(
      '[{ shell: a }]',
      'timeout_config: { timeout_policy: per_command, command_timeouts: { shell: 1 } }',
    )
    expect(limits(of)).toEqual([[1, 'command_timeouts["shell"]']])
  })

  test('B3: without any the default of its type', () => {
    const of = model(
      '[{ claude: a }, { shell: b }, { codex: c }]',
      'timeout_config: { timeout_policy: per_command }',
      'runners: { codex: [codex, exec] }',
    )
    expect(limits(of)).toEqual([
      [300, 'default'],
      [60, 'default'],
      [120, 'default'],
    ])
  })

  test('B4: what is written on the step wins over all of them, under every policy', () => {
    for (const policy of ['per_agent', 'per_command', 'hybrid']) {
      const of = model(
        '[{ shell: a, timeout: 5 }, { shell: b, timeout: null }]',
        `timeout_config: { timeout_policy: ${policy}, command_timeouts: { shell: 1, shell_0: 2 } }`,
      )
      expect(limits(of)).toEqual([
        [5, 'step'],
        [null, 'step'],
      ])
    }
  })

  test('a null in command_timeouts takes a default away', () => {
    const of = model(
      '[{ shell: a }]',
      'timeout_config: { timeout_policy: hybrid, command_timeouts: { shell: null } }',
    )
    expect(limits(of)).toEqual([[null, 'command_timeouts["shell"]']])
  })

  test('handlers have the limit of their type', () => {
    const of = model(
      '[{ shell: a, on_failure: { shell: b }, on_success: [{ claude: c, timeout: 9 }] }]',
      'timeout_config: { timeout_policy: hybrid, command_timeouts: { shell: 1, shell_0: 2 } }',
    )
    const commands = effectiveLimits(of).commands
    expect(commands.map(({ index, handler, limit }) => [index, handler, limit.ms])).toEqual([
      [0, null, 2_000],
      [0, 'on_failure', 1_000],
      [0, 'on_success', 9_000],
    ])
  })

  test('B5: a key that fits no command is told', () => {
    const config =
      'timeout_config: { timeout_policy: hybrid, command_timeouts: { claude_1: 5, shell_1: 5, shell_7: 5 } }'
    expect(warnings('[{ claude: a }, { shell: b }]', config)).toEqual([
      "warning map.timeout_config.command_timeouts.claude_1: 'claude_1' matches no command: command 1 is shell",
      "warning map.timeout_config.command_timeouts.shell_7: 'shell_7' matches no command: there are 2 commands",
    ])
  })
})

describe('which limits apply', () => {
  const commands = '[{ shell: a }, { shell: b }]'
  const config = (policy: string, agent: number, shell: number) =>
    `timeout_config: { agent_timeout_secs: ${agent}, timeout_policy: ${policy}, command_timeouts: { shell: ${shell} } }`

  test('C1: per_agent: that of the agent, not those of commands', () => {
    const of = effectiveLimits(model(commands, config('per_agent', 6, 1)))
    expect(of.agent).toEqual({ ms: 6_000, isApplied: true })
    for (const { limit, notApplied } of of.commands) {
      expect(limit).toEqual({ ms: null, source: 'none' })
      expect(notApplied).toEqual({ ms: 1_000, source: 'command_timeouts["shell"]' })
    }
  })

  test('C2: per_command: those of commands, not that of the agent', () => {
    const of = effectiveLimits(model(commands, config('per_command', 2, 3)))
    expect(of.agent).toEqual({ ms: 2_000, isApplied: false })
    expect(of.commands.map(({ limit }) => limit.ms)).toEqual([3_000, 3_000])
  })

  test('C3: hybrid: both', () => {
    const of = effectiveLimits(model(commands, config('hybrid', 4, 1)))
    expect(of.agent).toEqual({ ms: 4_000, isApplied: true })
    expect(of.commands.map(({ limit }) => limit.ms)).toEqual([1_000, 1_000])
  })

  test('C4: each command has a limit of its own, whatever those before it have', () => {
    const of = model(
      '[{ shell: a }, { claude: b }]',
      'timeout_config: { timeout_policy: per_command, command_timeouts: { shell: 1 } }',
    )
    expect(limits(of)).toEqual([
      [1, 'command_timeouts["shell"]'],
      [300, 'default'],
    ])
  })

  test('A5: where nothing is set, nothing holds', () => {
    const of = effectiveLimits(model(commands, ''))
    expect(of.agent).toEqual({ ms: null, isApplied: false })
    expect(of.commands.map(({ limit }) => limit)).toEqual(Array(2).fill({ ms: null, source: 'none' }))
    expect(of).toMatchObject({ policy: 'per_agent', idleMs: null, graceMs: 30_000, jobMs: null })
  })

  test('A6: outside the map what is written holds, of a step or of its phase', () => {
    const of = effectiveLimits(
      model(
        '[{ shell: a }]',
        'timeout_config: { timeout_policy: per_command, command_timeouts: { shell: 1 } }',
        'setup: { timeout: 2m, commands: [{ shell: a }, { shell: b, timeout: 3 }] }\nreduce: [{ claude: c }]\nmerge: [{ shell: d, timeout_ms: 1500 }]',
      ),
    )
    expect(of.phases).toEqual({ setup: 120_000, reduce: null, merge: null })
    const shown = ({ phase, index, limit }: CommandLimit) => [phase, index, limit.ms, limit.source]
    expect(of.commands.map(shown)).toEqual([
      ['setup', 0, null, 'none'],
      ['setup', 1, 3_000, 'step'],
      ['map', 0, 1_000, 'command_timeouts["shell"]'],
      ['reduce', 0, null, 'none'],
      ['merge', 0, 1_500, 'step'],
    ])
  })

  test('L3: every command tells its limit and where it comes from', () => {
    const of = model(
      '[{ claude: a }, { shell: b }, { shell: c, timeout: 90s }, { codex: d }]',
      'timeout_config: { timeout_policy: hybrid, command_timeouts: { shell: 10, claude_0: 600 } }',
      'runners: { codex: [codex] }\nreduce: [{ shell: e }]',
    )
    expect(
      effectiveLimits(of).commands.map(({ phase, text, limit }) => [phase, text, limit.ms, limit.source]),
    ).toEqual([
      ['map', 'a', 600_000, 'command_timeouts["claude_0"]'],
      ['map', 'b', 10_000, 'command_timeouts["shell"]'],
      ['map', 'c', 90_000, 'step'],
      ['map', 'd', 120_000, 'default'],
      ['reduce', 'e', null, 'none'],
    ])
  })
})

describe('L2: limits that cannot do what they were written for are told', () => {
  test.each([
    [
      'a command with more than its agent',
      '[{ shell: a }, { claude: b, timeout: 50 }]',
      'agent_timeout_secs: 40\n  timeout_config: { timeout_policy: hybrid, command_timeouts: { shell: 45 } }',
      [
        'map.agent_template[1].timeout: the limit of command 1, 50s, never fires: the agent has 40s',
        'map.timeout_config.command_timeouts.shell: the limit of shell commands, 45s, never fires: the agent has 40s',
      ],
    ],
    [
      'commands with less than their agent together',
      '[{ shell: a }, { shell: b }]',
      'agent_timeout_secs: 40\n  timeout_config: { timeout_policy: hybrid, command_timeouts: { shell: 10 } }',
      ['map.agent_timeout_secs: the limit of the agent, 40s, never fires: its commands have 20s together'],
    ],
    [
      'nothing where tries, waits and handlers may take as long as the agent has',
      '[{ shell: a, retry: { retries: 1, backoff: { initial: 9 } }, on_failure: { shell: h, retry: 1 } }]',
      'agent_timeout_secs: 49\n  timeout_config: { timeout_policy: hybrid, cleanup_grace_period_secs: 0, command_timeouts: { shell: 10 } }',
      [],
    ],
    [
      'the agent, under per_command',
      '[{ shell: a }]',
      'timeout_config: { timeout_policy: per_command, agent_timeout_secs: 5 }',
      [
        'map.timeout_config.agent_timeout_secs: the limit of the agent is not applied: the policy is per_command',
      ],
    ],
    [
      'commands, under per_agent',
      '[{ shell: a }]',
      'timeout_config: { command_timeouts: { shell: 5 } }',
      ['map.timeout_config.command_timeouts: is not applied: the policy is per_agent'],
    ],
    [
      'an escalation of nothing',
      '[{ shell: a }]',
      'timeout_config: { timeout_action: skip, escalation: { multiplier: 3 } }',
      ['map.timeout_config.escalation: has no effect: the action is skip'],
    ],
    [
      'a default above the agent is no mistake',
      '[{ claude: a }]',
      'agent_timeout_secs: 5\n  timeout_config: { timeout_policy: hybrid }',
      [],
    ],
    [
      'equal limits',
      '[{ shell: a }]',
      'agent_timeout_secs: 5\n  timeout_config: { timeout_policy: hybrid, command_timeouts: { shell: 5 } }',
      [],
    ],
  ])('%s', (_, template, timeouts, expected) => {
    expect(warnings(template, timeouts).toSorted()).toEqual(
      expected.map((text) => `warning ${text}`).toSorted(),
    )
  })
})

describe('escalation', () => {
  const of = (text: string) => model('[{ shell: a }]', `timeout_config: { timeout_action: retry${text} }`).map

  test('D7: each attempt has more than the one before, up to a cap', () => {
    const { escalation } = of(', escalation: { multiplier: 2, max_secs: 10, max_attempts: 5 }')
    expect([1, 2, 3, 4, 5].map((attempt) => limitOfAttempt(2_000, attempt, escalation))).toEqual([
      2_000, 4_000, 8_000, 10_000, 10_000,
    ])
  })

  test('a cap below the limit does not lower it, and nothing grows for ever', () => {
    const { escalation } = of(', escalation: { max_secs: 1 }')
    expect(limitOfAttempt(2_000, 2, escalation)).toBe(2_000)
    const endless = of(', escalation: { multiplier: 100, max_attempts: 1000 }').escalation
    expect(limitOfAttempt(2_000, 999, endless)).toBe(400 * 86_400_000)
    expect(limitOfAttempt(2_000, 5, null)).toBe(2_000)
  })

  test('a timed-out item is tried once more, or as often as it says', () => {
    expect(maxAttempts(of(''))).toBe(2)
    expect(maxAttempts(of(', escalation: { max_attempts: 4 }'))).toBe(4)
    expect(maxAttempts(model('[{ shell: a }]', '').map)).toBe(1)
  })
})

describe('the worst case', () => {
  const grace = 'cleanup_grace_period_secs: 1'

  test('is so many items one after the other as do not run at once', () => {
    const of = model(
      '[{ shell: a }]',
      `max_parallel: 4\n  agent_timeout_secs: 9\n  timeout_config: { ${grace} }`,
    )
    expect(worstCase(of, 9)).toEqual({
      setupMs: 0,
      itemMs: 10_000,
      mapMs: 30_000,
      reduceMs: 0,
      mergeMs: 0,
      totalMs: 30_000,
    })
    expect(worstCase(of, 0).totalMs).toBe(0)
  })

  test('counts commands with their tries, waits and handlers, and stops at the agent', () => {
    const template =
      '[{ shell: a, retry: { retries: 2, backoff: { initial: 1, factor: 3 } }, on_failure: { shell: h } }, { shell: b }]'
    const config = (policy: string) =>
      `timeout_config: { timeout_policy: ${policy}, ${grace}, command_timeouts: { shell: 10 } }`
    expect(worstCase(model(template, config('per_command')), 1).itemMs).toBe(
      30_000 + 4_000 + 10_000 + 10_000 + 1_000,
    )
    const hybrid = model(template, `agent_timeout_secs: 20\n  ${config('hybrid')}`)
    expect(worstCase(hybrid, 1).itemMs).toBe(21_000)
  })

  test('counts the tries of handlers, and the grace of what they come after', () => {
    const of = (rest: string) =>
      model(
        `[{ shell: a, on_failure: { shell: h, ${rest} } }]`,
        `timeout_config: { timeout_policy: per_command, ${grace}, command_timeouts: { shell: 10 } }`,
      )
    expect(worstCase(of('retry: 0'), 1).itemMs).toBe(10_000 + 1_000 + 10_000 + 1_000)
    const tried = of('retry: { retries: 1, backoff: { initial: 5 } }')
    expect(worstCase(tried, 1).itemMs).toBe(10_000 + 1_000 + 20_000 + 5_000 + 1_000)
  })

  test('counts every attempt of an item', () => {
    const of = model(
      '[{ shell: a }]',
      `agent_timeout_secs: 10\n  timeout_config: { ${grace}, timeout_action: retry, escalation: { multiplier: 2, max_attempts: 3 } }`,
    )
    expect(worstCase(of, 1).itemMs).toBe(10_000 + 20_000 + 40_000 + 3_000)
  })

  test('is not known where something has no limit, unless the job has one', () => {
    const unbounded = 'reduce: [{ shell: r }]'
    const of = (rest: string) =>
      model('[{ shell: a }]', `agent_timeout_secs: 10\n  timeout_config: { ${grace} }`, rest)
    expect(worstCase(of(unbounded), 1)).toMatchObject({ itemMs: 11_000, reduceMs: null, totalMs: null })
    expect(worstCase(of(`${unbounded}\ntimeout: 1m`), 1).totalMs).toBe(61_000)
    expect(worstCase(of('reduce: { timeout: 5, commands: [{ shell: r }] }'), 1).totalMs).toBe(17_000)
  })
})

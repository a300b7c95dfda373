import { describe, expect, test } from 'vitest'
import { parse } from 'yaml'
import { problemsOf, toldOf, withMap, withSteps } from './fixtures/mapreduce-text.ts'
import type { LoadMapreduceOptions } from './mapreduce.ts'
import { loadMapreduce } from './mapreduce.ts'
import { effectiveLimits } from './mapreduce-limits.ts'
import { isToleranceUsedUp } from './mapreduce-model.ts'
import { DefinitionError } from './problem.ts'
import { contentHash } from './workflow-model.ts'

/** The example of the seed, as it stands. */
const SEED = `name: example-with-timeout-config
mode: mapreduce

map:
  input: "large-dataset.json"
  json_path: "$.items[*]"

  # Global agent timeout
  agent_timeout_secs: 600  # 10 minutes per agent

  # Timeout configuration
  timeout_config:
    timeout_policy: hybrid
    cleanup_grace_period_secs: 30
    timeout_action: dlq
    enable_monitoring: true

    # Per-command type timeouts
    command_timeouts:
      claude: 300     # 5 minutes for Claude commands
      shell: 60       # 1 minute for shell commands
      claude_0: 600   # 10 minutes for first Claude command specifically

  agent_template:
    - claude: "/analyze-complex-item '\${item}'"  # Uses claude_0 timeout (600s)
    - shell: "validate-results \${item.id}"       # Uses shell timeout (60s)
    - claude: "/generate-report '\${item}'"       # Uses claude timeout (300s)

reduce:
  - claude: "/summarize-results \${map.results}"
`

const mapOf = (keys: string, options?: LoadMapreduceOptions) =>
  loadMapreduce(withMap(keys), options).model.map
const stepsOf = (steps: string, rest?: string) => loadMapreduce(withSteps(steps, rest)).model.map.template

describe('the example of the seed', () => {
  test('A2: is accepted unchanged, with its limits', () => {
    expect(problemsOf(SEED, { env: {} })).toEqual([])
    const { model, name, kind, hash, warnings } = loadMapreduce(SEED)
    expect({ name, kind, warnings }).toEqual({
      name: 'example-with-timeout-config',
      kind: 'mapreduce',
      warnings: [],
    })
    expect(hash).toBe(contentHash(model))
    const { agent, commands } = effectiveLimits(model)
    expect(agent).toEqual({ ms: 600_000, isApplied: true })
    expect(commands.map(({ phase, limit }) => [phase, limit.ms && limit.ms / 1_000])).toEqual([
      ['map', 600],
      ['map', 60],
      ['map', 300],
      ['reduce', null],
    ])
    expect(model.map).toMatchObject({
      input: { kind: 'file', file: 'large-dataset.json' },
      jsonPath: '$.items[*]',
      policy: 'hybrid',
      action: 'dlq',
      graceMs: 30_000,
      monitoring: true,
      maxParallel: 10,
    })
    expect(model.map.template.map(({ type, text }) => [type, text])).toEqual([
      ['claude', "/analyze-complex-item '${item}'"],
      ['shell', 'validate-results ${item.id}'],
      ['claude', "/generate-report '${item}'"],
    ])
  })

  test('A2: as JSON, and in the spelling of Rust, it is the same', () => {
    const { hash, model } = loadMapreduce(SEED)
    expect(loadMapreduce(JSON.stringify(parse(SEED))).hash).toBe(hash)
    const rust = SEED.replace('hybrid', 'Hybrid')
      .replace('dlq', 'Dlq')
      .replace('mode: mapreduce', 'mode: MapReduce')
    expect(loadMapreduce(rust).hash).toBe(hash)
    expect(contentHash(JSON.parse(JSON.stringify(model)))).toBe(hash)
    for (const [written, read] of [
      ['PerAgent', 'per_agent'],
      ['PerCommand', 'per_command'],
      ['per_command', 'per_command'],
    ])
      expect(mapOf(`timeout_config: { timeout_policy: ${written} }`).policy).toBe(read)
    for (const [written, read] of [
      ['GracefulTerminate', 'graceful_terminate'],
      ['Skip', 'skip'],
      ['Fail', 'fail'],
      ['Retry', 'retry'],
    ])
      expect(mapOf(`timeout_config: { timeout_action: ${written} }`).action).toBe(read)
  })
})

describe('numbers', () => {
  test('A3: a number may be a variable of env or of the environment', () => {
    const env = { AT: '2', MANY: ' 7 ' }
    expect(mapOf('agent_timeout_secs: $AT\nmax_parallel: ${MANY}', { env })).toMatchObject({
      agentTimeoutMs: 2_000,
      maxParallel: 7,
    })
    const own = `env: { AT: 3, OTHER: $MANY }`
    const { map } = loadMapreduce(withMap('agent_timeout_secs: $AT\noffset: $OTHER', own), { env }).model
    expect(map).toMatchObject({ agentTimeoutMs: 3_000, offset: 7 })
    expect(mapOf('agent_timeout: $AT', { env: { AT: '1m' } }).agentTimeoutMs).toBe(60_000)
    expect(mapOf('timeout_config: { command_timeouts: { shell: $AT } }', { env }).commandTimeouts).toEqual({
      shell: 2_000,
    })
  })

  test('A3: one that is not set is named', () => {
    const text = withMap('agent_timeout_secs: $AT\nmax_parallel: $MP\noffset: ${BAD}')
    expect(toldOf(text, { env: { BAD: 'x', MP: '' } })).toEqual([
      'm.yml:5:23: error: map.agent_timeout_secs: Invalid timeout configuration: the environment variable AT is not set',
      'm.yml:6:17: error: map.max_parallel: the environment variable MP is empty',
      "m.yml:7:11: error: map.offset: must be a whole number from 0 to 9007199254740991, got 'x'",
    ])
  })

  test('A4: the outer limit wins over the one in timeout_config, and tells so where they differ', () => {
    const both = 'agent_timeout_secs: 2\ntimeout_config: { agent_timeout_secs: 5 }'
    expect(mapOf(both).agentTimeoutMs).toBe(2_000)
    expect(problemsOf(withMap(both))).toEqual([
      "m.yml:6:41: warning: map.timeout_config.agent_timeout_secs: has no effect: agent_timeout_secs of 'map' is another, and wins\n  Take one of them out.",
    ])
    expect(mapOf('agent_timeout_secs: 2\ntimeout_config: {}').agentTimeoutMs).toBe(2_000)
    expect(mapOf('timeout_config: { agent_timeout_secs: 5 }').agentTimeoutMs).toBe(5_000)
    expect(problemsOf(withMap('agent_timeout_secs: 2\ntimeout_config: { agent_timeout_secs: 2 }'))).toEqual(
      [],
    )
    expect(mapOf('agent_timeout_secs: null\ntimeout_config: { agent_timeout_secs: 5 }').agentTimeoutMs).toBe(
      null,
    )
  })

  test.each([
    ['timeout: 90', 90_000],
    ['timeout: 90s', 90_000],
    ['timeout: 1h30m', 5_400_000],
    ['timeout: 1.5s', 1_500],
    ['timeout_secs: 5', 5_000],
    ['timeout_seconds: 5', 5_000],
    ['timeout_ms: 5', 5],
    ['timeout: null', null],
  ])('%s', (key, ms) => {
    expect(stepsOf(`- shell: a\n  ${key}`)[0]!.timeoutMs).toBe(ms)
  })
})

describe('L1: what cannot be a limit is told', () => {
  test('all together, each with its place', () => {
    const text = `name: m
timeout: -1
map:
  input: items.json
  agent_timeout_secs: 0
  timeout_config:
    agent_timeout_secs: 1.5
    idle_timeout_secs: "abc"
    cleanup_grace_period_secs: -1
    timeout_policy: per_comand
    timeout_action: explode
    enable_monitring: true
    enable_monitoring: 1
    escalation: { multiplier: 0, max_secs: -3, max_attempts: 0, twice: 2 }
    command_timeouts:
      clude: 5
      claude: 1000000000
      shell: "60"
      shell_0: 1s1
  agent_template:
    - { shell: a, timeout: 0, timeout_ms: 5 }
    - { shell: a, timeout: soon }
`
    const place = (line: number, column: number, path: string) =>
      `m.yml:${line}:${column}: error: ${path}: Invalid timeout configuration:`
    const config = 'map.timeout_config'
    expect(toldOf(text)).toEqual([
      `${place(2, 10, 'timeout')} must be longer than zero seconds, got -1`,
      `${place(5, 23, 'map.agent_timeout_secs')} must be longer than zero seconds, got 0`,
      `${place(7, 25, `${config}.agent_timeout_secs`)} must be whole seconds, got 1.5`,
      `${place(8, 24, `${config}.idle_timeout_secs`)} must be whole seconds, as a number, got 'abc'`,
      `${place(9, 32, `${config}.cleanup_grace_period_secs`)} must be zero or more seconds, got -1`,
      `${place(10, 21, `${config}.timeout_policy`)} must be one of per_agent, per_command, hybrid, got 'per_comand'`,
      `${place(11, 21, `${config}.timeout_action`)} must be one of dlq, skip, fail, retry, graceful_terminate, got 'explode'`,
      `${place(12, 5, `${config}.enable_monitring`)} is not a key here`,
      `${place(13, 24, `${config}.enable_monitoring`)} must be true or false, got 1`,
      `${place(14, 31, `${config}.escalation.multiplier`)} must be a number from 1 to 100, got 0`,
      `${place(14, 44, `${config}.escalation.max_secs`)} must be longer than zero seconds, got -3`,
      `${place(14, 62, `${config}.escalation.max_attempts`)} must be a whole number from 1 to 1001, got 0`,
      `${place(14, 65, `${config}.escalation.twice`)} is not a key here`,
      `${place(16, 7, `${config}.command_timeouts.clude`)} there is no type of command 'clude'`,
      `${place(17, 15, `${config}.command_timeouts.claude`)} must be at most 400 days, in seconds, got 1000000000`,
      `${place(18, 14, `${config}.command_timeouts.shell`)} must be a number of seconds, or a text with units such as '90s', got '60'`,
      `${place(19, 16, `${config}.command_timeouts.shell_0`)} '1s1' is not a valid duration: expected '90s', '5m', '1h30m', or a number of seconds`,
      `${place(21, 31, 'map.agent_template[0].timeout_ms')} timeout says the same thing`,
      `${place(22, 28, 'map.agent_template[1].timeout')} 'soon' is not a valid duration: expected '90s', '5m', '1h30m', or a number of seconds`,
    ])
  })

  test('with what to write instead', () => {
    const text = withMap(
      'timeout_config: { agent_timeout_secs: 1.5, timeout_policy: Hybird, command_timeouts: { clude: 5, shell: 0.5 } }',
    )
    expect(problemsOf(text).map((text) => text.split('\n  ')[1])).toEqual([
      'Write agent_timeout_ms: 1500.',
      "Did you mean 'hybrid'?",
      "Did you mean 'claude'?",
      "Write '500ms'.",
    ])
  })

  test('as one error where it is loaded', () => {
    const error = thrown(() =>
      loadMapreduce(withMap('agent_timeout_secs: 0\nmax_parallel: 0'), { file: 'm.yml' }),
    )
    expect(error).toMatchObject({ code: 'invalid_definition' })
    expect(error.message).toContain('m.yml has 2 problems:')
    expect(error.message).toContain('Invalid timeout configuration')
  })
})

describe('the file', () => {
  test('is read whole', () => {
    const text = `
name: all
timeout: 2h
env: { REGION: eu, LEVEL: 3, DEBUG: true }
secrets: [API_KEY]
runners:
  codex: [codex, exec, "--region=\${REGION}"]
setup:
  timeout: 10m
  commands:
    - shell: find . > files
      capture: base
map:
  input: { command: "cat \${params.list} \${base}", timeout: 30 }
  filter: item.ok
  sort_by: -priority
  offset: 1
  max_items: 50
  max_parallel: 4
  idle_timeout_secs: 60
  timeout_config:
    timeout_action: retry
    escalation: { multiplier: 3, max_secs: 900, max_attempts: 4 }
    adaptive: { enabled: true, percentile: 95 }
  agent_template:
    - codex: "do \${item.name} in \${REGION} with \${base} for \${args[0]}"
      capture: answer
      retry: { retries: 2, backoff: { initial: 5, factor: 3, max: 1m, jitter: 0 } }
    - shell: check "$ANSWER" \${item_file}
      when: item.kind == 'code' && answer != ''
      env: { ANSWER: "\${answer}", N: 1 }
      working_dir: packages/\${item.package}
      commit_required: true
      on_failure:
        - shell: report \${failure.message} \${attempt}
      on_success: { claude: "/note \${item}" }
reduce:
  - shell: sum \${map.results} \${map.successful} \${map.total}
    capture: total
merge:
  - shell: git tag "\${total}"
error_policy: { max_failures: 3 }
`
    expect(problemsOf(text, { env: { API_KEY: 'x' }, params: { list: 'l' } })).toEqual([])
    const { model } = loadMapreduce(text)
    expect(JSON.parse(JSON.stringify(model))).toEqual(model)
    expect(model).toMatchObject({
      timeoutMs: 7_200_000,
      env: { REGION: 'eu', LEVEL: '3', DEBUG: 'true' },
      secrets: ['API_KEY'],
      runners: { claude: ['claude', '--print'], codex: ['codex', 'exec', '--region=${REGION}'] },
      setup: { timeoutMs: 600_000 },
      errorPolicy: { maxFailures: 3, failureRate: null, onFailure: 'stop' },
    })
    expect(model.map).toMatchObject({
      input: { kind: 'command', timeoutMs: 30_000 },
      sortBy: [{ path: ['priority'], isDescending: true }],
      offset: 1,
      maxItems: 50,
      maxParallel: 4,
      idleTimeoutMs: 60_000,
      action: 'retry',
      escalation: { multiplier: 3, maxMs: 900_000, maxAttempts: 4 },
      adaptive: { enabled: true, percentile: 95 },
    })
    expect(model.map.template[0]).toMatchObject({
      type: 'codex',
      retries: 2,
      backoff: { initialMs: 5_000, factor: 3, maxMs: 60_000, jitter: 0 },
    })
    expect(model.map.template[1]).toMatchObject({
      commitRequired: true,
      env: { ANSWER: '${answer}', N: '1' },
      onFailure: [{ type: 'shell' }],
      onSuccess: [{ type: 'claude' }],
    })
  })

  test('a secret that stands in it, or nowhere, is told', () => {
    const text = withMap('', 'env: { A: plain, B: "${TOKEN}" }\nsecrets: [A, B, C, D]')
    expect(toldOf(text, { env: { TOKEN: 'x', C: 'y' } })).toEqual([
      'm.yml:7:11: warning: secrets[0]: the value of A stands in env, and is stored with each run',
      'm.yml:7:20: warning: secrets[3]: the environment variable D is not set',
    ])
  })
})

describe('error_policy', () => {
  const policy = (text: string) => loadMapreduce(withMap('', text)).model.errorPolicy

  test.each([
    ['', { maxFailures: null, failureRate: null, onFailure: 'continue' }],
    ['error_policy: { on_failure: stop }', { maxFailures: 1, failureRate: null, onFailure: 'stop' }],
    [
      'error_policy: { on_failure: Continue }',
      { maxFailures: null, failureRate: null, onFailure: 'continue' },
    ],
    ['error_policy: { failure_rate: 0.2 }', { maxFailures: null, failureRate: 0.2, onFailure: 'stop' }],
    [
      'error_policy: { max_failures: 2, on_failure: continue }',
      { maxFailures: 2, failureRate: null, onFailure: 'continue' },
    ],
  ])('%s', (text, expected) => {
    expect(policy(text)).toEqual(expected)
  })

  test('D8: its tolerance is used up at so many failures, or by more than its share of all items', () => {
    const used = (text: string, items: number) =>
      [0, 1, 2, 3].filter((failed) => isToleranceUsedUp(policy(text), failed, items))
    expect(used('', 4)).toEqual([])
    expect(used('error_policy: { max_failures: 2 }', 4)).toEqual([2, 3])
    expect(used('error_policy: { failure_rate: 0.5 }', 4)).toEqual([3])
    expect(used('error_policy: { failure_rate: 0 }', 4)).toEqual([1, 2, 3])
    expect(used('error_policy: { max_failures: 3, failure_rate: 0.25 }', 4)).toEqual([2, 3])
  })
})

function thrown(call: () => unknown): DefinitionError {
  try {
    call()
  } catch (error) {
    expect(error).toBeInstanceOf(DefinitionError)
    return error as DefinitionError
  }
  throw new Error('nothing was thrown')
}

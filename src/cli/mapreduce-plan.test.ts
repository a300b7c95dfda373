import { execFileSync } from 'node:child_process'
import { chmod, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { CliProcess } from './fixtures/cli-process.ts'
import { curfew } from './fixtures/test-io.ts'

let cwd: string

/** The example of the seed, as it stands there. */
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

beforeAll(async () => {
  cwd = await mkdtemp(path.join(tmpdir(), 'curfew-cli-'))
  await mkdir(path.join(cwd, 'bin'))
  await write('bin/claude', '#!/bin/sh\n')
  await chmod(path.join(cwd, 'bin/claude'), 0o755)
  await write('seed.yml', SEED)
  const items = Array.from({ length: 12 }, (_, id) => ({ id: `i${id}`, size: id }))
  await write('large-dataset.json', JSON.stringify({ items }))
})

afterAll(async () => {
  await rm(cwd, { recursive: true, force: true })
})

const write = (file: string, text: string) => writeFile(path.join(cwd, file), text)
const environment = () => ({ PATH: `${path.join(cwd, 'bin')}:/usr/bin:/bin` })

/** As a process, which has claude on its PATH. */
async function processOf(...args: string[]): Promise<{ code: unknown; out: string; err: string }> {
  const started = new CliProcess(args, { cwd, env: environment() })
  const code = await started.exited
  return { code, out: started.stdout, err: started.stderr }
}

interface Command {
  phase: string
  type: string
  limitMs: number | null
  source: string
  notApplied: { limitMs: number; source: string } | null
}

interface Plan {
  commands: Command[]
  items: Record<string, unknown>
  worstCase: Record<string, unknown>
  obstacles: string[]
  [key: string]: unknown
}

async function planOf(text: string, ...args: string[]): Promise<Plan> {
  await write('m.yml', text)
  const io = await curfew(['run', 'm.yml', '--dry-run', '--json', ...args], { cwd, env: environment() })
  expect([io.code, io.err]).toEqual([0, ''])
  return io.json() as Plan
}

const mapreduce = (map: string, rest = '') =>
  `name: m\nmode: mapreduce\nmap:\n  input: { items: [a, b, c] }\n${map.replaceAll(/^/gm, '  ')}\n${rest}`
const template = (steps: string) => `agent_template: [${steps}]`

test('A2: the example of the seed is valid, and its plan tells the effective limits', async () => {
  const validated = await processOf('validate', 'seed.yml')
  expect(validated).toEqual({
    code: 0,
    out: 'seed.yml: map-reduce example-with-timeout-config is valid\n',
    err: '',
  })
  const { code, out, err } = await processOf('run', 'seed.yml', '--dry-run')
  expect([code, err]).toEqual([0, ''])
  expect(out).toContain('items        12, from file large-dataset.json: i0, i1,')
  expect(out).toContain('i9, … 2 more\n')
  expect(out).toMatch(/^agent {8}10m \(600s\)$/m)
  expect(out).toMatch(/^map 0 +claude +10m \(600s\) +command_timeouts\["claude_0"\] +\/analyze/m)
  expect(out).toMatch(/^map 1 +shell +1m \(60s\) +command_timeouts\["shell"\] +validate/m)
  expect(out).toMatch(/^map 2 +claude +5m \(300s\) +command_timeouts\["claude"\] +\/generate/m)
  expect(out).toMatch(/^reduce 0 +claude +none +\/summarize/m)
  expect(out).toContain(`claude: claude, ${path.join(cwd, 'bin/claude')}\n`)
  // Two rounds of 10m and 30s of grace; the reduce has no limit.
  expect(out).toContain('worst case   no bound: map 21m (12 items, 10 at once, each 10m30s), reduce no bound')
})

test('B3: without keys the limits of types are those built in, as JSON', async () => {
  const steps = template('{ claude: a }, { shell: b }, { other: c }')
  await write(
    'b3.yml',
    mapreduce(`timeout_config: { timeout_policy: per_command }\n${steps}`, 'runners: { other: [sh] }'),
  )
  const { code, out, err } = await processOf('run', 'b3.yml', '--dry-run', '--json')
  expect([code, err]).toEqual([0, ''])
  const plan = JSON.parse(out) as Plan
  expect(plan.commands.map(({ type, limitMs, source }) => [type, limitMs, source])).toEqual([
    ['claude', 300_000, 'default'],
    ['shell', 60_000, 'default'],
    ['other', 120_000, 'default'],
  ])
  expect(plan.worstCase).toMatchObject({ items: 3, itemMs: 510_000, totalMs: 510_000 })
})

test('L3: timeouts explain tells the effective value and origin of every command', async () => {
  const steps = template('{ shell: a, timeout: 5, on_failure: { shell: b } }, { shell: c }, { claude: d }')
  const config = 'timeout_config: { timeout_policy: hybrid, command_timeouts: { shell: 2 } }'
  await write('l3.yml', mapreduce(`agent_timeout_secs: 20\n${config}\n${steps}`, 'setup: [{ shell: s }]'))
  const { code, out, err } = await processOf('timeouts', 'explain', 'l3.yml', '--json')
  expect([code, err]).toEqual([0, ''])
  const plan = JSON.parse(out) as Plan
  expect(plan.commands.map(({ phase, limitMs, source }) => [phase, limitMs, source])).toEqual([
    ['setup', null, 'none'],
    ['map', 5_000, 'step'],
    ['map', 2_000, 'command_timeouts["shell"]'],
    ['map', 2_000, 'command_timeouts["shell"]'],
    ['map', 300_000, 'default'],
  ])
  const text = await processOf('timeouts', 'explain', 'l3.yml')
  expect(text.out).toMatch(/^map 0 +shell +5s +step +a$/m)
  expect(text.out).toMatch(/^map 0 on_failure +shell +2s +command_timeouts\["shell"\] +b$/m)
  expect(text.out).not.toContain('items')
})

test('L1: validate tells every problem with path, line and suggestion, and exits 2', async () => {
  const config = 'timeout_config: { timeout_policy: hibrid, command_timeouts: { clude: 5, shell: 0 } }'
  await write('l1.yml', mapreduce(`agent_timeout_secs: 1.5\n${config}\n${template('{ shell: a }')}`))
  const { code, out } = await processOf('validate', 'l1.yml')
  expect(code).toBe(2)
  expect(out.match(/error: \S+: Invalid timeout configuration: /g)).toHaveLength(4)
  expect(out).toMatch(/^l1\.yml:5:\d+: error: map\.agent_timeout_secs: /m)
  expect(out).toContain("Did you mean 'hybrid'?")
  expect(out).toContain("Did you mean 'claude'?")
  const run = await processOf('run', 'l1.yml', '--dry-run')
  expect([run.code, run.out]).toEqual([2, ''])
})

test('B5, L2: what has no effect is a warning, with its line, also in the plan', async () => {
  const config =
    'timeout_config: { timeout_policy: hybrid, command_timeouts: { claude_1: 5, shell: 30 } }\nagent_timeout: 10'
  await write('l2.yml', mapreduce(`${config}\n${template('{ claude: a }, { shell: b }')}`))
  const { code, out } = await curfew(['validate', 'l2.yml'], { cwd })
  expect(code).toBe(0)
  expect(out).toMatch(/l2\.yml:5:\d+: warning: \S+: 'claude_1' matches no command: command 1 is shell/)
  expect(out).toContain('the limit of shell commands, 30s, never fires: the agent has 10s')
  const planned = await curfew(['run', 'l2.yml', '--dry-run'], { cwd })
  expect(planned.out).toContain("'claude_1' matches no command")
})

test('a limit that was looked up and does not hold under the policy is told', async () => {
  const text = mapreduce(`agent_timeout_secs: 6\n${template('{ shell: a }')}`)
  const plan = await planOf(text)
  expect(plan.commands[0]).toMatchObject({
    limitMs: null,
    source: 'none',
    notApplied: { limitMs: 60_000, source: 'default' },
  })
  const { out } = await curfew(['run', 'm.yml', '--dry-run'], { cwd })
  expect(out).toMatch(/^map 0 +shell +none +not applied: 1m of default +a$/m)
})

test('an agent limit that does not hold under per_command is told', async () => {
  const config = 'agent_timeout_secs: 6\ntimeout_config: { timeout_policy: per_command }'
  await planOf(mapreduce(`${config}\n${template('{ shell: a }')}`))
  const { out } = await curfew(['run', 'm.yml', '--dry-run'], { cwd })
  expect(out).toContain('agent        none (6s is not applied: per_command)')
})

test('escalation tells the limits of the second and third attempt', async () => {
  const config =
    'timeout_config: { timeout_policy: hybrid, timeout_action: retry, escalation: { multiplier: 2, max_secs: 30, max_attempts: 5 } }'
  const plan = await planOf(
    mapreduce(`agent_timeout_secs: 10\n${config}\n${template('{ shell: a, timeout: 4 }')}`),
  )
  expect(plan).toMatchObject({
    maxAttempts: 5,
    attempts: [
      { attempt: 2, agentMs: 20_000, commandsMs: [8_000] },
      { attempt: 3, agentMs: 30_000, commandsMs: [16_000] },
    ],
  })
  const { out } = await curfew(['run', 'm.yml', '--dry-run'], { cwd })
  expect(out).toContain('up to 5, each with 2 times the limits, at most 30s\n')
  expect(out).toContain('attempt 3: agent 30s, command 0 16s')
})

test('items are counted as they are found, filtered and taken', async () => {
  const map = `json_path: '$.items[*]'\nfilter: item.size > 2\nmax_items: 8\n${template('{ shell: a }')}`
  const text = mapreduce(map).replace('{ items: [a, b, c] }', 'large-dataset.json')
  const plan = await planOf(text)
  expect(plan.items).toMatchObject({ from: 'file', found: 12, matched: 9, chosen: 8, note: null })
  expect((await planOf(text, '--max-items', '2')).items).toMatchObject({
    chosen: 2,
    first: [
      { id: 'item-3', name: 'i3' },
      { id: 'item-4', name: 'i4' },
    ],
  })
  const { out } = await curfew(['run', 'm.yml', '--dry-run'], { cwd })
  expect(out).toContain('items        8, of 12 found, 9 pass the filter, 8 are taken, from file')
})

test('a command that lists the items is not run', async () => {
  const file = path.join(cwd, 'was-run')
  const text = mapreduce(template('{ shell: a }')).replace('items: [a, b, c]', `command: touch ${file}`)
  const plan = await planOf(`${text}\ntimeout: 1h`)
  expect(plan.items).toMatchObject({
    from: 'command',
    chosen: null,
    note: expect.stringContaining('not run'),
  })
  expect(plan.worstCase).toMatchObject({ items: null, mapMs: null, totalMs: 3_630_000 })
  expect(() => execFileSync('test', ['-e', file])).toThrow()
})

test('a file that setup may make is not missed; one that nobody makes is', async () => {
  const text = mapreduce(template('{ shell: a }')).replace('{ items: [a, b, c] }', 'none.json')
  const made = await planOf(`${text}\nsetup: [{ shell: make-items, timeout: 5 }]`)
  expect([made.items.note, made.obstacles]).toEqual([expect.stringContaining('setup may make it'), []])
  expect((await planOf(text)).obstacles).toEqual(['none.json: there is no such file'])
  const folder = await planOf(text.replace('none.json', 'bin'))
  expect(folder.obstacles).toEqual(['bin cannot be read: it is a folder'])
  const wrong = await planOf(text.replace('none.json', 'large-dataset.json'))
  expect(wrong.obstacles[0]).toContain('the input is no list of items')
})

test('a program that is not on PATH is told before anything runs', async () => {
  const runners = 'runners: { lint: [no-such-linter], tool: ["./tool"], own: ["${params.program}"] }'
  const text = mapreduce(template('{ lint: a }, { tool: b }, { own: c }'), runners)
  const plan = await planOf(text, '--param', 'program=claude')
  expect(plan.programs).toEqual([
    { type: 'lint', program: 'no-such-linter', path: null, isFound: false },
    { type: 'tool', program: './tool', path: null, isFound: null },
    { type: 'own', program: '${params.program}', path: path.join(cwd, 'bin/claude'), isFound: true },
  ])
  expect(plan.obstacles).toEqual(['no-such-linter, which runs lint steps, is not found on PATH'])
})

test('worktrees are made where there is a commit, plain folders elsewhere', async () => {
  const text = mapreduce(template('{ shell: a }'))
  const outside = await planOf(text)
  expect(outside.folders).toEqual({
    kind: 'plain',
    commit: null,
    note: expect.stringContaining('is not in a git'),
  })
  const repository = await mkdtemp(path.join(tmpdir(), 'curfew-cli-'))
  const git = (...args: string[]) => execFileSync('git', args, { cwd: repository, encoding: 'utf8' })
  try {
    git('init', '--quiet')
    await writeFile(path.join(repository, 'm.yml'), text)
    const folders = async (...args: string[]) => {
      const io = await curfew(['run', 'm.yml', '--dry-run', '--json', ...args], {
        cwd: repository,
        env: environment(),
      })
      return (io.json() as Plan).folders
    }
    expect(await folders()).toEqual({
      kind: 'plain',
      commit: null,
      note: expect.stringContaining('no commit'),
    })
    git('-c', 'user.name=a', '-c', 'user.email=a@b', 'commit', '--quiet', '--allow-empty', '-m', 'first')
    expect(await folders()).toEqual({ kind: 'worktree', commit: git('rev-parse', 'HEAD').trim(), note: null })
    expect(await folders('--no-worktrees')).toMatchObject({ kind: 'plain', note: 'worktrees are off' })
  } finally {
    await rm(repository, { recursive: true, force: true })
  }
})

test('what a name would do to a terminal is shown', async () => {
  const text = mapreduce(template(`{ shell: "echo \\e[31m" }`)).replace('[a, b, c]', '["\\e]0;x\\a"]')
  await write('m.yml', text)
  const { out } = await curfew(['run', 'm.yml', '--dry-run'], { cwd })
  expect(out).not.toContain('\x1b')
  expect(out).toContain('echo \\x1b[31m')
})

test.each([
  [['--param', 'branch'], "--param must be NAME=VALUE, got 'branch'"],
  [['--param', '__proto__=1'], '--param must be NAME=VALUE'],
  [['--param', 'a=1', '--param', 'a=2'], '--param a is given twice'],
  [['--max-items', '0'], '--max-items must be a whole number from 1'],
  [['--input', '1'], '--input: m.yml is a map-reduce'],
  [['--key', 'k'], '--key: m.yml is a map-reduce'],
  [['--args', '{"__proto__":1}'], "the key '__proto__' is not allowed"],
  [['--args', '{"id":9007199254740993}'], "--args: 9007199254740993 at 'id' would become 9007199254740992"],
  [['--timeout', 'soon'], '--timeout'],
])('%j is refused with 2', async (args, message) => {
  await write('m.yml', mapreduce(template('{ shell: a }')))
  const { code, out, err } = await curfew(['run', 'm.yml', '--dry-run', ...args], { cwd })
  expect([code, out]).toEqual([2, ''])
  expect(err).toContain(message)
})

test('params and args reach the texts; a param that nobody gave is an error', async () => {
  const text = mapreduce(template('{ shell: a }')).replace(
    '{ items: [a, b, c] }',
    '"${params.folder}${args.files[0]}"',
  )
  const given = ['--param', `folder=${cwd}/`, '--args', '{"files":["large-dataset.json"]}']
  const plan = await planOf(text.replace('map:\n', `map:\n  json_path: '$.items[*]'\n`), ...given)
  expect(plan.items).toMatchObject({ chosen: 12 })
  const { code, err } = await curfew(['run', 'm.yml', '--dry-run'], { cwd })
  expect([code, err]).toEqual([2, expect.stringContaining("there is no 'folder' in 'params'")])
})

test('a text that is no JSON stays the text it is', async () => {
  const text = mapreduce(template('{ shell: a }')).replace('{ items: [a, b, c] }', '"${args}"')
  for (const args of ['007', '[draft', '"quoted"']) {
    await write(args, '[1]')
    expect((await planOf(text, '--args', args)).items).toMatchObject({ chosen: 1 })
  }
})

test.each(['5m', '300'])('--timeout %s is the limit of the job', async (timeout) => {
  const text = mapreduce(template('{ shell: a }'))
  expect(await planOf(text, '--timeout', timeout)).toMatchObject({
    jobMs: 300_000,
    worstCase: { totalMs: 330_000 },
  })
})

test.each([
  [['run', 'flow.yml', '--dry-run'], '--dry-run: flow.yml is a workflow'],
  [['run', 'flow.yml', '--param', 'a=1'], '--param: flow.yml is a workflow'],
  [['run', 'flow.yml', '--no-worktrees'], '--no-worktrees: flow.yml is a workflow'],
  [['graph', 'seed.yml', '--workflow', 'a'], '--workflow: seed.yml is a mapreduce, not a job'],
  [['timeouts', 'explain', 'flow.yml'], 'flow.yml is a workflow'],
  [['submit', 'seed.yml'], 'seed.yml is a map-reduce'],
])('%j: what is for one kind is refused for another', async (args, message) => {
  await write('flow.yml', 'name: flow\nnodes: [{ id: a, action_id: work }]\n')
  const { code, err } = await curfew(args, { cwd })
  expect(err).toContain(message)
  expect(code).toBe(2)
})

test('graph draws what a map-reduce is compiled to', async () => {
  const { code, out } = await curfew(['graph', 'seed.yml'], { cwd })
  expect(code).toBe(0)
  expect(out).toContain('title: "example-with-timeout-config (no limit, cancel_all)"')
  for (const node of ['items', 'item', 'reduce']) expect(out).toContain(`["${node}<br/>`)
  expect(out).not.toContain('["merge')
})

test('A3: a number may stand in the environment; where it does not, the variable is named', async () => {
  await write('a3.yml', mapreduce(`agent_timeout_secs: $AT\n${template('{ shell: a }')}`))
  const { code, err } = await curfew(['run', 'a3.yml', '--dry-run'], { cwd })
  expect([code, err]).toEqual([2, expect.stringContaining('the environment variable AT is not set')])
  const io = await curfew(['run', 'a3.yml', '--dry-run', '--json'], { cwd, env: { AT: '2' } })
  expect(io.json()).toMatchObject({ agent: { limitMs: 2_000, isApplied: true } })
})

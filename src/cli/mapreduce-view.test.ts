import { stripVTControlCharacters } from 'node:util'
import { expect, test } from 'vitest'
import { Colours } from './colours.ts'
import {
  commandOf,
  countsOf,
  endedItem,
  phaseOf,
  runningItem,
  START,
  snapshotOf,
  summaryOf,
} from './fixtures/mapreduce-snapshots.ts'
import { TestIo } from './fixtures/test-io.ts'
import type { MapreduceSnapshot, TimeoutOfItem } from './mapreduce-snapshot.ts'
import { summaryText } from './mapreduce-summary.ts'
import { renderMapreduce } from './mapreduce-view.ts'
import { widthOf } from './plain-text.ts'

function coloursOf(terminal: boolean): Colours {
  const io = new TestIo({ cwd: '/', terminal })
  return new Colours(io, io.stdout)
}

function draw(snapshot: MapreduceSnapshot, width = 80, height = 20, afterMs = 30_000): string[] {
  return renderMapreduce(snapshot, { width, height, colours: coloursOf(false), now: START + afterMs })
}

const MANY = Array.from({ length: 1_000 }, (_, n) =>
  runningItem(n, { startedAt: START - n * 10, command: commandOf(50_000) }),
)

const BUSY = snapshotOf({
  deadlineAt: START + 60_000,
  counts: countsOf({ waiting: 2, running: 2, successful: 3, failed: 1, timedOut: 2 }),
  running: [
    runningItem(1, { agentLimitMs: 60_000 }),
    runningItem(2, { agentLimitMs: null, attempt: 2, command: commandOf(40_000) }),
  ],
  recent: [endedItem(3, { status: 'timed_out', message: 'Agent item-3 timed out after 1m', ms: 60_000 })],
})

test('a bar for each phase, counts that add up, running items with elapsed and limit', () => {
  expect(draw(BUSY)).toEqual([
    'pipeline 30s, 30s left (j_1)',
    'setup  [##############################] done 2s',
    'map    [##################............] 6/10 30s',
    'reduce [..............................] waiting',
    '10 items: 2 waiting, 2 running, 3 successful, 1 failed, 2 timed out',
    '  30s / 40s  name-2  attempt 2  shell 0: make test',
    '  30s / 1m   name-1  agent',
    '  name-3 timed out after 1m: Agent item-3 timed out after 1m',
  ])
})

test.each([20, 80, 200])('at %i columns no line is wider, with long names and wide letters', (width) => {
  const names = [
    'x'.repeat(300),
    '日本語'.repeat(40),
    '「、」ＡＢ！'.repeat(20),
    '👩‍👩‍👧❤️'.repeat(30),
    'é'.repeat(90),
  ]
  const running = names.map((name, n) =>
    runningItem(n, { name, command: { ...commandOf(9_000), text: name } }),
  )
  const recent = names.map((name, n) => endedItem(n, { name, message: name }))
  const counts = countsOf({
    waiting: 10_000,
    running: 5,
    successful: 99_999,
    failed: 1,
    timedOut: 1,
    skipped: 1,
  })
  const step = { index: 0, of: 2, text: names[1]!, startedAt: START, limitMs: 5_000 }
  const phases = [phaseOf('setup', 'running', { step }), phaseOf('map', 'waiting')]
  const lines = draw(snapshotOf({ name: names[1]!, running, recent, counts, phases }), width, 40)
  for (const line of lines) expect(widthOf(line)).toBeLessThanOrEqual(width)
  const text = lines.join(' ')
  for (const count of ['10000 waiting', '5 running', '99999 successful', '1 timed out'])
    expect(text).toContain(count)
})

test('of a thousand running items those nearest to their limit are shown', () => {
  const counts = countsOf({ running: 1_000 })
  const lines = draw(snapshotOf({ running: MANY, counts }), 80, 12)
  expect(lines).toHaveLength(12)
  expect(lines[5]).toContain('name-999')
  expect(lines[6]).toContain('name-998')
  expect(lines.at(-1)).toBe('  … 994 more run')
})

test.each([1, 2, 3, 5, 6, 7, 9, 30])('%i rows are never exceeded', (height) => {
  const recent = Array.from({ length: 20 }, (_, n) => endedItem(n))
  const counts = countsOf({ running: 1_000, successful: 20 })
  const snapshot = snapshotOf({ running: MANY, recent, counts })
  for (const width of [1, 20, 80]) expect(draw(snapshot, width, height).length).toBeLessThanOrEqual(height)
  expect(draw(snapshot, 80, height).join(' ')).toContain('1020 items: 1000 running, 20 successful')
})

test('G4: with no items nothing is divided by zero', () => {
  const phases = [phaseOf('map', 'running')]
  expect(draw(snapshotOf({ phases }))).toEqual([
    'pipeline 30s (j_1)',
    'map    [..............................] 0/0 30s',
    '0 items',
  ])
  expect(draw(snapshotOf({ phases: [phaseOf('map', 'done')] }))[1]).toContain(`${'#'.repeat(30)}] done 0/0`)
})

test('a bar is full only when everything is done', () => {
  const line = draw(snapshotOf({ counts: countsOf({ running: 1, successful: 9_999 }) }))[2]
  expect(line).toContain('.] 9999/10000')
})

test('what names and commands would do to a terminal is shown', () => {
  const name = 'a\x1b[2Jb\r\nc\u202e'
  const running = [
    runningItem(0, { name, command: { ...commandOf(null), text: '\x1b]0;t\x07', type: '\x9b' } }),
  ]
  const recent = [endedItem(1, { name, message: name, status: '\x1b[31m' })]
  const step = { index: 0, of: 1, text: '\x1b[A', startedAt: START, limitMs: null }
  const phases = [phaseOf('setup', 'running', { step })]
  const lines = draw(snapshotOf({ name, jobId: '\x1b', running, recent, phases }), 200)
  // biome-ignore lint/suspicious/noControlCharactersInRegex: these are what it is about
  expect(lines.join('')).not.toMatch(/[\u0000-\u001f\u007f-\u009f\u202e]/)
  expect(lines[0]).toContain('a\\x1b[2Jb c\\x202e')
  expect(
    summaryText(summaryOf({ name, notes: [name] }), { colours: coloursOf(false) }).join(''),
  ).not.toContain('\x1b')
})

test.each([
  [0, '\x1b[32m'],
  [29_999, '\x1b[32m'],
  [30_000, '\x1b[33m'],
  [47_999, '\x1b[33m'],
  [48_000, '\x1b[31m'],
  [90_000, '\x1b[31m'],
])('after %i ms of a minute the colour is %j', (afterMs, colour) => {
  const snapshot = snapshotOf({ running: [runningItem(1)] })
  const screen = { width: 80, height: 20, colours: coloursOf(true), now: START + afterMs }
  const line = renderMapreduce(snapshot, screen).at(-1)!
  expect(line).toContain(`  ${colour}`)
  expect(stripVTControlCharacters(line)).toBe(draw(snapshot, 80, 20, afterMs).at(-1))
})

test('the limit of which most is used up counts, of the command or of the agent', () => {
  const last = (command: ReturnType<typeof commandOf>) =>
    draw(snapshotOf({ running: [runningItem(1, { command })] })).at(-1)
  expect(last(commandOf(100_000, START + 20_000))).toBe('  30s / 1m  name-1  agent, shell 0: make test')
  expect(last(commandOf(11_000, START + 20_000))).toBe('  10s / 11s  name-1  shell 0: make test')
})

test('a step outside map is shown with its limit', () => {
  const step = { index: 1, of: 3, text: 'npm ci', startedAt: START + 10_000, limitMs: 60_000 }
  const [, line] = draw(snapshotOf({ phases: [phaseOf('setup', 'running', { step })] }))
  expect(line).toBe('setup  [##########....................] step 2/3 30s, 20s / 1m npm ci')
})

const timeout = (n: number, rest: Partial<TimeoutOfItem> = {}): TimeoutOfItem => ({
  ...{ itemId: `item-${n}`, name: `name-${n}`, kind: 'command', commandIndex: 0, type: 'claude' },
  ...{ limitMs: 600_000, elapsedMs: 600_400, source: 'command_timeouts["claude_0"]' },
  ...{ resolution: 'GracefulTermination', ...rest },
})

test('F3: the summary tells which key set the limit and how to raise it', () => {
  const timeouts = [
    timeout(1),
    timeout(2, { resolution: 'ForceTermination' }),
    timeout(3, { kind: 'agent', commandIndex: null, type: null, source: 'agent_timeout_secs' }),
    timeout(4, { source: 'step' }),
    timeout(5, { source: 'default', type: 'shell', commandIndex: 1, limitMs: 60_000 }),
    timeout(6, { kind: 'idle', source: 'idle_timeout_secs', limitMs: 5_000 }),
  ]
  const slowest = [{ itemId: 'item-1', name: 'name-1', status: 'timed_out', ms: 600_400 }]
  const counts = countsOf({ successful: 4, timedOut: 6 })
  const lines = summaryText(
    summaryOf({ timeouts, slowest, counts, deadLetters: 6, notes: ['kept a branch'] }),
    {
      colours: coloursOf(false),
    },
  )
  expect(lines).toEqual([
    'map-reduce pipeline completed after 1m1s (j_1)',
    '10 items: 4 successful, 6 timed out',
    'Slowest:',
    '  name-1 timed out after 10m',
    'Timed out:',
    '  limit of command 0, claude: 10m, set by command_timeouts["claude_0"]: 2 items',
    '    name-1 after 10m, GracefulTermination',
    '    name-2 after 10m, ForceTermination',
    '    For more time, raise claude_0 in command_timeouts of timeout_config.',
    '  limit of the agent: 10m, set by agent_timeout_secs: 1 item',
    '    name-3 after 10m, GracefulTermination',
    '    For more time, raise agent_timeout_secs of map.',
    '  limit of command 0, claude: 10m, set by timeout of the step: 1 item',
    '    name-4 after 10m, GracefulTermination',
    '    For more time, raise timeout of command 0.',
    '  limit of command 1, shell: 1m, set by default: 1 item',
    '    name-5 after 10m, GracefulTermination',
    '    For more time, set timeout of command 1, or shell in command_timeouts of timeout_config.',
    '  idle limit of command 0, claude: 5s, set by idle_timeout_secs: 1 item',
    '    name-6 after 10m, GracefulTermination',
    '    For more time, raise idle_timeout_secs, or let the command print as it goes.',
    'kept a branch',
    '6 in the dead letters: curfew dlq list j_1',
  ])
})

test('a thousand timeouts of one limit are told in a few lines', () => {
  const timeouts = Array.from({ length: 1_000 }, (_, n) => timeout(n))
  const lines = summaryText(summaryOf({ timeouts }), { colours: coloursOf(false) })
  expect(lines.length).toBeLessThan(15)
  expect(lines.join('\n')).toMatch(/: 1000 items\n(.*\n){5} {4}… 995 more/)
})

test('I5: an interrupted run tells how to go on, a failed one why', () => {
  const told = (rest: Parameters<typeof summaryOf>[0]) =>
    summaryText(summaryOf(rest), { colours: coloursOf(false) })
  expect(told({ status: 'interrupted' }).at(-1)).toBe('To go on with it: curfew resume j_1')
  const failure = { code: 'timed_out', message: 'item name-1 timed out' }
  expect(told({ status: 'timed_out', failure }).slice(0, 2)).toEqual([
    'map-reduce pipeline timed out after 1m1s (j_1)',
    '  item name-1 timed out',
  ])
})

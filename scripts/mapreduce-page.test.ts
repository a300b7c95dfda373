// What docs/mapreduce.md says is what the code has: its YAML is valid, its tables have every key, its commands can be
// called, its numbers are those that hold.

import { readFileSync } from 'node:fs'
import path from 'node:path'
import type { Command } from 'commander'
import { expect, test } from 'vitest'
import { parse, stringify } from 'yaml'
import { TestIo } from '../src/cli/fixtures/test-io.ts'
import { makeProgram } from '../src/cli/program.ts'
import * as limits from '../src/core/limits.ts'
import { COMMAND_EVENTS } from '../src/core/note.ts'
import { validateMapreduce } from '../src/definitions/mapreduce.ts'
import { effectiveLimits } from '../src/definitions/mapreduce-limits.ts'
import {
  DEFAULT_CLEANUP_GRACE_MS,
  DEFAULT_MAX_PARALLEL,
  DEFAULT_RUNNERS,
  TIMEOUT_ACTIONS,
  TIMEOUT_POLICIES,
} from '../src/definitions/mapreduce-model.ts'

const root = path.join(import.meta.dirname, '..')
const page = readFileSync(path.join(root, 'docs/mapreduce.md'), 'utf8')
const words = page.replaceAll(/\s+/g, ' ')

type Data = Record<string, unknown>

/** What stands around a part of a file. */
const MAP: Data = { input: 'items.json', agent_template: [{ shell: 'true' }] }
const AROUND: Record<string, (part: unknown) => Data> = {
  file: (part) => ({ name: 'part', mode: 'mapreduce', map: MAP, ...(part as Data) }),
  map: (part) => AROUND.file!({ map: { ...MAP, ...(part as Data) } }),
  steps: (part) => AROUND.map!({ agent_template: part }),
}

/** As `yaml map` of a fence says what a block is a part of; nothing behind `yaml`: it is a whole file. */
const blocks = [...page.matchAll(/^```yaml *(\w*)\n(.*?)^```$/gms)].map(([, part = '', text = '']) => ({
  ...{ part, text },
  whole: part === '' ? text : stringify(AROUND[part]?.(parse(text))),
}))

test('O1: the page has whole files and parts of files', () => {
  expect(blocks.filter(({ part }) => part === '').length).toBeGreaterThanOrEqual(2)
  expect(blocks.length).toBeGreaterThanOrEqual(10)
})

test.each(blocks.map(({ part, text, whole }) => [`${part} ${text.split('\n')[0]}`, whole]))(
  'O1: %s… is valid',
  (_, whole) => {
    expect(validateMapreduce(whole)).toMatchObject({ problems: [], definition: { kind: 'mapreduce' } })
  },
)

test('the first file is that of the example', () => {
  const example = readFileSync(path.join(root, 'examples/mapreduce/pipeline.yml'), 'utf8')
  expect(blocks[0]?.text).toBe(example.replace(/^#.*\n/, ''))
})

test('A2: the limits that the second one is said to have are those it has', () => {
  const { definition } = validateMapreduce(blocks.find(({ text }) => text.includes('claude_0'))?.text ?? '')
  const { agent, commands } = effectiveLimits(definition!.model)
  expect(agent).toEqual({ ms: 600_000, isApplied: true })
  expect(commands.map(({ limit: { ms, source } }) => [ms, source])).toEqual([
    [600_000, 'command_timeouts["claude_0"]'],
    [60_000, 'command_timeouts["shell"]'],
    [300_000, 'command_timeouts["claude"]'],
    [null, 'none'],
  ])
})

/** The first cells of the table behind a mark, without the head. */
function keysOf(table: string): string[] {
  const [, rows = ''] = new RegExp(`<!-- keys: ${table} -->\n((?:\\|.*\n)+)`).exec(page) ?? []
  const cells = rows.split('\n').slice(2, -1)
  return cells.flatMap((row) => [...row.split(' | ')[0]!.matchAll(/`(\w+)`/g)].map(([, key = '']) => key))
}

/** What is told of a key that nobody knows: those that there are. */
function knownKeys(text: Data): string[] {
  const { problems } = validateMapreduce(stringify(text))
  const told = problems.find(({ code, path: at }) => code === 'unknown_key' && at.includes('zzzzzzzzzz'))
  return /There are (.*)\./.exec(told?.suggestion ?? '')?.[1]?.split(', ') ?? []
}

const unknown = { zzzzzzzzzz: 1 }

test.each<[string, Data]>([
  ['file', AROUND.file!(unknown)],
  ['phase', AROUND.file!({ reduce: { commands: [], ...unknown } })],
  ['map', AROUND.map!(unknown)],
  ['timeout_config', AROUND.map!({ timeout_config: unknown })],
  ['step', AROUND.steps!([{ shell: 'true', ...unknown }])],
  ['error_policy', AROUND.file!({ error_policy: unknown })],
  ['escalation', AROUND.map!({ timeout_config: { escalation: unknown } })],
])('O1: the table of keys of %s has all there are', (table, text) => {
  const plain = keysOf(table).map((key) => key.replace(/_secs$/, ''))
  const others = table === 'step' ? ['runners'] : []
  expect(plain.toSorted()).toEqual([...knownKeys(text), ...others].toSorted())
})

const program = await makeProgram(new TestIo({ cwd: '/' }))
const calls = [...page.matchAll(/^```sh\n(.*?)^```$/gms)]
  .flatMap(([, block = '']) => block.trimEnd().split('\n'))
  .map((line) => line.split(' '))

function find(path: readonly string[], within: Command): Command {
  const found = within.commands.find((command) => command.name() === path[0])
  return found ? find(path.slice(1), found) : within
}

test.each(calls.map((call) => [call.join(' '), call] as const))('O1: %s can be called', (_, call) => {
  expect(call[0]).toBe('curfew')
  const command = find(call.slice(1), program)
  expect(command.commands).toHaveLength(0)
  const options = command.options.map(({ long }) => long)
  expect(options).toEqual(expect.arrayContaining(call.filter((word) => word.startsWith('--'))))
})

test('the options of run are those it has', () => {
  const [, rows = ''] = /\| option of `curfew run` .*\n((?:\|.*\n)+)/.exec(page) ?? []
  const told = [...rows.matchAll(/^\| `(--[\w-]+)/gm)].map(([, name]) => name)
  expect(find(['run'], program).options.map(({ long }) => long)).toEqual(expect.arrayContaining(told))
  expect(told.length).toBeGreaterThan(5)
})

test.each([
  ...TIMEOUT_POLICIES.map((policy) => [`| \`${policy}\` |`]),
  ...TIMEOUT_ACTIONS.map((action) => [`| \`${action}\` |`]),
  ...COMMAND_EVENTS.map((event) => [`\`${event}\``]),
])('%s is told', (text) => {
  expect(page).toContain(text)
})

const count = (number: number) => number.toLocaleString('en')
const kib = (bytes: number) => `${bytes / 1024} KiB`
const mib = (bytes: number) => `${bytes / 1024 ** 2} MiB`

test.each([
  [`At most ${count(limits.MAX_BRANCHES)} items of ${mib(limits.MAX_PAYLOAD_BYTES)} each`],
  [`read from ${mib(limits.MAX_ITEMS_BYTES)}`],
  [`${limits.MAX_STEPS_OF_PHASE} steps a phase, ${kib(limits.MAX_COMMAND_TEXT)} of text each`],
  [`A value for a command: ${kib(limits.MAX_COMMAND_VALUE_BYTES)}`],
  [`one argument with its values: ${kib(limits.MAX_COMMAND_ARGUMENT_BYTES)}`],
  [`all values of one command: ${mib(limits.MAX_COMMAND_VARIABLES_BYTES)}`],
  [`a command takes values of up to ${limits.MAX_COMMAND_VALUE_BYTES}`],
  [`so many at a time | ${DEFAULT_MAX_PARALLEL} |`],
  [`from SIGTERM to SIGKILL | ${DEFAULT_CLEANUP_GRACE_MS / 1_000} |`],
  [`\`claude: [${DEFAULT_RUNNERS.claude?.join(', ')}]\``],
])('the page says "%s"', (text) => {
  expect(words).toContain(text)
})

// `curfew dlq` over a store with dead letters that nobody works on.
import { mkdir, mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { SystemClock } from '../core/system-clock.ts'
import { SILENT } from '../store/fixtures/stores.ts'
import type { LetterRow } from '../store/letter-row.ts'
import { openStore } from '../store/open-store.ts'
import { run } from '../store/statement.ts'
import { curfew } from './fixtures/test-io.ts'
import type { LetterDocument } from './letter-document.ts'

const JOB = 'w_01kdvq5x6w0000000000000000'
const RETRY = 'w_01kdvq5x6w0000000000000001'
const REF = `refs/curfew/${JOB}/item-0`

const attempt = (limitMs: number) => ({
  ...{ jobId: JOB, attempt: 1, startedAt: 1_800_000_000_000, tookMs: limitMs + 12, status: 'timed_out' },
  timeout: {
    ...{
      type: 'agent',
      command: 1,
      commandType: 'shell',
      text: 'sleep 600',
      limitMs,
      elapsedMs: limitMs + 5,
    },
    ...{ source: 'agent_timeout_secs', resolution: 'ForceTermination', message: 'late' },
  },
  ...{ failure: null, steps: [], kept: null },
})
const TIMED_OUT = {
  ...{ errorType: 'timeout', message: 'Agent item-0 timed out after 4s', name: 'a \x1b[31mred.md' },
  ...{ item: { path: 'a.md' }, file: 'pipeline.yml', eligible: true, failure: null },
  timeout: {
    ...{ kind: 'agent', commandIndex: 1, commandType: 'shell', limitMs: 4_000, elapsedMs: 4_005 },
    ...{ source: 'agent_timeout_secs', resolution: 'ForceTermination' },
  },
  partial: {
    steps: [
      {
        ...{
          command: 0,
          commandType: 'claude',
          text: 'write it',
          status: 'completed',
          exitCode: 0,
          tookMs: 90,
        },
        ...{ limitMs: 4_000, source: 'agent_timeout_secs' },
      },
    ],
    captures: { title: 'A' },
    kept: { ref: REF, commit: 'f4ca3c5', changedFiles: ['a.md'], diffStat: ' a.md | 1 +' },
  },
  output: {
    stdout: Array.from({ length: 30 }, (_, i) => `line ${i}`).join('\n'),
    stderr: 'a \x1b]0;x\x07 bell\rover',
  },
  history: [attempt(2_000), attempt(4_000)],
}
const FAILED = {
  errorType: 'failure',
  message: 'exit code 3',
  failure: { code: 'command_failed' },
  history: [{}],
}

const letter = (itemId: string, body: Record<string, unknown>, more: Partial<LetterRow> = {}): LetterRow => ({
  ...{ jobId: JOB, itemId, state: 'open', errorType: String(body.errorType), message: String(body.message) },
  ...{ name: String(body.name ?? itemId), body: JSON.stringify(body), createdAt: 1_800_000_000_000 },
  ...{ attempts: (body.history as unknown[]).length, updatedAt: 1_800_000_000_000 },
  ...{ retryId: null, retriedAt: null },
  ...more,
})

let cwd: string
beforeEach(async () => {
  cwd = await mkdtemp(path.join(tmpdir(), 'curfew-dlq-'))
  await put([
    letter('item-0', TIMED_OUT),
    letter('item-2', FAILED),
    letter('item-10', FAILED, { state: 'resolved' }),
  ])
})
afterEach(() => rm(cwd, { recursive: true, force: true }))

async function put(rows: LetterRow[]): Promise<void> {
  const store = await openStore(path.join(cwd, 'curfew.db'), new SystemClock(), SILENT, 'n_1')
  await store.write(null, () => run(store.statements.letters.put(rows)))
  await store.close()
}

const dlq = (...args: string[]) => curfew(['dlq', ...args], { cwd })
async function document<T>(...args: string[]): Promise<T> {
  const io = await dlq(...args, '--json')
  expect({ code: io.code, err: io.err }).toEqual({ code: 0, err: '' })
  return io.json() as T
}
const listed = async (...args: string[]) =>
  (await document<{ letters: { itemId: string }[] }>('list', ...args)).letters.map(({ itemId }) => itemId)
async function errorOf(...args: string[]) {
  const { code, out, err } = await dlq(...args, '--json')
  expect(out).toBe('')
  return [code, (JSON.parse(err) as { error: { code: string } }).error.code]
}

describe('dlq list', () => {
  test('H2: lists what is open, by type, state and job', async () => {
    expect(await listed()).toEqual(['item-0', 'item-2'])
    expect(await listed(JOB, '--error-type', 'timeout')).toEqual(['item-0'])
    expect(await listed('--state', 'resolved')).toEqual(['item-10'])
    expect(await listed('--state', 'all')).toEqual(['item-0', 'item-2', 'item-10'])
    expect(await listed(RETRY)).toEqual([])
    const { code, err } = await dlq('list', RETRY)
    expect([code, err]).toEqual([0, 'There is none.\n'])
  })

  test('goes on where a page ended', async () => {
    const { err } = await dlq('list', '--limit', '1')
    expect(err).toContain(`There are more: --cursor '${JOB} item-0', or --all.`)
    expect(await listed('--cursor', `${JOB} item-0`)).toEqual(['item-2'])
    expect(await listed('--limit', '1', '--all')).toEqual(['item-0', 'item-2'])
  })

  test('fits the terminal, and nothing of a name reaches it raw', async () => {
    const world = { cwd, terminal: true, columns: 90, env: { NO_COLOR: '1' } }
    const { out } = await curfew(['dlq', 'list'], world)
    expect(out).toContain('\\x1b')
    expect(out).not.toContain('\x1b')
    for (const line of out.trimEnd().split('\n')) expect(line.length).toBeLessThanOrEqual(90)
  })

  test.each([
    [['--error-type', 'timeot'], 'usage'],
    [['--state', 'closed'], 'usage'],
    [['--cursor', 'x'], 'invalid_request'],
  ])('%j exits 2', async (args, code) => {
    expect(await errorOf('list', ...args)).toEqual([2, code])
  })
})

describe('dlq show', () => {
  test('H1: --json has the kind of error, which limit it was, and every attempt', async () => {
    const shown = await document<LetterDocument>('show', JOB, 'item-0')
    expect(shown).toMatchObject({
      ...{ jobId: JOB, itemId: 'item-0', state: 'open', errorType: 'timeout', eligible: true, attempts: 2 },
      timeout: { kind: 'agent', commandIndex: 1, limitMs: 4_000, elapsedMs: 4_005 },
      ...{ item: { path: 'a.md' }, partial: TIMED_OUT.partial, output: TIMED_OUT.output },
    })
    expect(shown.history).toHaveLength(shown.attempts)
    expect(shown).not.toHaveProperty('body')
  })

  test('E4: tells everything to people: limit and its source, attempts, commands, work, output', async () => {
    const { code, out } = await dlq('show', JOB, 'item-0')
    expect(code).toBe(0)
    for (const text of [
      `item-0 (a \\x1b[31mred.md) of ${JOB} is open\n`,
      /error +timeout: agent limit of 4s, stopped after 4s, in command 1 \(shell\)\n/,
      /limit set by +agent_timeout_secs\n/,
      /item +\{"path":"a.md"\}\n/,
      /\nAttempts\nSTARTED .*\n2027-\S+ +w_\S+ +2s +timed_out +2s +ForceTermination +sleep 600 .*\n2027-.* 4s /,
      /\nCommands of the last attempt\n.*\n0 +claude +completed +0 +90ms .* write it\n/,
      /\nCaptured\n {2}title +A\n/,
      new RegExp(`ref +${REF}\\n`),
      `git diff HEAD...${REF}\n`,
      /\n {3}a.md \| 1 \+\n/,
      /\nThe end of stdout\n {2}… 10 lines before\n {2}line 10\n/,
      'a \\x1b]0;x\\x07 bell\\x0dover\n',
      `curfew dlq retry ${JOB} item-0 --timeout 10m\n`,
      `curfew dlq discard ${JOB} item-0\n`,
    ])
      expect(out).toEqual(
        typeof text === 'string' ? expect.stringContaining(text) : expect.stringMatching(text),
      )
    expect(out).not.toContain('\x1b')
  })

  test('of one that is over there is nothing to do, and one that says little is shown too', async () => {
    const { out } = await dlq('show', JOB, 'item-10')
    expect(out).toMatch(/^item-10 of \w+ is resolved\n/)
    expect(out).toContain('failure: command_failed')
    expect(out).not.toContain('curfew dlq')
    expect((await document<LetterDocument>('show', JOB, 'item-10')).eligible).toBe(false)
  })

  test('exits 1 when there is none', async () => {
    expect(await errorOf('show', JOB, 'item-7')).toEqual([1, 'not_found'])
  })
})

describe('dlq discard', () => {
  test('those that are named, or all', async () => {
    expect(await document('discard', JOB, 'item-2', 'item-2')).toEqual({ jobId: JOB, discarded: 1, kept: [] })
    expect(await listed()).toEqual(['item-0'])
    expect((await dlq('discard', JOB)).out).toBe('1 was discarded.\n')
    expect(await listed('--state', 'discarded')).toEqual(['item-0', 'item-2'])
  })

  test('by type', async () => {
    await document('discard', JOB, '--error-type', 'failure')
    expect(await listed()).toEqual(['item-0'])
  })

  test('exits 1 when there is none of them, and discards nothing', async () => {
    expect(await errorOf('discard', JOB, 'item-0', 'item-7')).toEqual([1, 'not_found'])
    expect(await errorOf('discard', RETRY)).toEqual([1, 'not_found'])
    expect(await listed()).toEqual(['item-0', 'item-2'])
  })
})

describe('dlq export', () => {
  test('one object a line, as show has it', async () => {
    const { code, out, err } = await dlq('export', JOB, '--state', 'all')
    const lines = out.trimEnd().split('\n')
    expect([code, err, lines.length]).toEqual([0, '', 3])
    expect(JSON.parse(lines[0] as string)).toEqual(await document('show', JOB, 'item-0'))
  })

  test('into a file that only its owner reads', async () => {
    const file = path.join(cwd, 'letters.jsonl')
    const { out, err } = await dlq('export', JOB, '--output', 'letters.jsonl', '--error-type', 'timeout')
    expect([out, err]).toEqual(['', '1 written to letters.jsonl.\n'])
    expect(JSON.parse(await readFile(file, 'utf8'))).toMatchObject({ itemId: 'item-0' })
    expect((await stat(file)).mode & 0o777).toBe(0o600)
    expect(await document('export', JOB, '--output', 'letters.jsonl')).toEqual({
      file: 'letters.jsonl',
      count: 2,
    })
    expect(await errorOf('export', JOB, '--output', 'no/such/folder')).toEqual([2, 'no_such_file'])
  })
})

describe('dlq retry', () => {
  test.each([
    [['--timeout', 'soon']],
    [['--timeout', '0']],
    [['--max-parallel', '0']],
    [['--concurrency', '2']],
    [['--error-type', 'all']],
  ])('%j exits 2, and nothing is claimed', async (args) => {
    expect((await errorOf('retry', JOB, ...args))[0]).toBe(2)
    expect(await listed()).toEqual(['item-0', 'item-2'])
  })

  test('exits 1 where it is not known what the run was started with, and claims nothing', async () => {
    const io = await curfew(['dlq', 'retry', JOB, '--json'], { cwd, env: { CURFEW_STATE_DIR: cwd } })
    expect([io.code, JSON.parse(io.err).error.code]).toEqual([1, 'unknown_run'])
    const { letters } = await document<{ letters: { retryId: null }[] }>('list')
    expect(letters.map(({ retryId }) => retryId)).toEqual([null, null])
  })
  test('exits 1 where what it worked on was too large to be kept: it would work on something else', async () => {
    const cut = { ...FAILED, item: { cut: 'it is too large for a dead letter' }, eligible: false }
    await put([letter('item-0', cut)])
    await mkdir(path.join(cwd, 'runs', JOB), { recursive: true })
    await writeFile(path.join(cwd, 'runs', JOB, 'run.json'), '{}')
    const env = { CURFEW_STATE_DIR: cwd }
    const io = await curfew(['dlq', 'retry', JOB, 'item-0', '--json'], { cwd, env })
    expect([io.code, JSON.parse(io.err).error]).toMatchObject([
      1,
      { code: 'not_eligible', message: expect.stringContaining('item-0') },
    ])
    // It is not taken either: it can be discarded at once.
    const left = await document('show', JOB, 'item-0')
    expect(left).toMatchObject({ state: 'open', eligible: false, retryId: null })
  })
  test('H2: takes all others beside one that was too large, also where they are more than can be named', async () => {
    const others = Array.from({ length: 1_100 }, (_, i) => letter(`item-${i + 100}`, FAILED))
    await put([letter('item-0', { ...FAILED, eligible: false }), ...others])
    await mkdir(path.join(cwd, 'runs', JOB), { recursive: true })
    await writeFile(path.join(cwd, 'runs', JOB, 'run.json'), '{}')
    const io = await curfew(['dlq', 'retry', JOB, '--json'], { cwd, env: { CURFEW_STATE_DIR: cwd } })
    // What it was started with is of no known format: that is found out when they are taken.
    expect(io.err).toContain('unknown_format')
    const { letters } = await document<{ letters: { retryId: string | null }[] }>('list', '--limit', '1000')
    expect(letters.filter(({ retryId }) => retryId === null)).toHaveLength(1)
    expect(letters).toHaveLength(1_000)
  })
})

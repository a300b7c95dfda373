import { expect, test } from 'vitest'
import { MAX_LETTER_BYTES } from '../core/limits.ts'
import { letterOf } from './item-letter.ts'
import type { MapreduceRun } from './mapreduce-run.ts'
import type { ItemAttempt, ItemResult, RunItem } from './run-folder.ts'

const RUN = { jobId: 'w_1', folder: { record: { retryOf: null, file: 'a.yml' } } } as unknown as MapreduceRun
const KIB = 1024
const text = (kib: number) => 'x'.repeat(kib * KIB)

const attempt = (
  n: number,
  { kept = null, stdout = '' }: Partial<ItemAttempt> & { stdout?: string } = {},
) => ({
  ...{ attempt: n, startedAt: 0, tookMs: 1, status: 'failed', timeout: null, steps: [], kept },
  failure: { code: 'command_failed', message: 'it failed', stdout, stderr: '' },
})

interface Given {
  item?: unknown
  attempts?: object[]
  captures?: Record<string, unknown>
  history?: unknown[]
}

/** What is stored, and whether it can be. */
function letter({ item = { n: 1 }, attempts = [attempt(1)], captures = {}, history = [] }: Given) {
  const result = { id: 'item-0', name: 'one', status: 'failed', tookMs: 1, attempts, captures }
  const of = { id: 'item-0', name: 'one', item, history } as RunItem
  const body = letterOf(RUN, of, result as unknown as ItemResult, 'it failed')!.letter!
  expect(Buffer.byteLength(JSON.stringify(body))).toBeLessThanOrEqual(MAX_LETTER_BYTES)
  return body as unknown as {
    item: unknown
    eligible: boolean
    partial: { captures: unknown; kept: { changedFiles: string[] } | null }
    output: { stdout: string }
    history: { attempt: number; failure: { message: string; stdout?: string }; kept: unknown }[]
  }
}

const CUT = { cut: expect.any(String) }

test('a letter that fits says everything', () => {
  const captures = { said: text(100) }
  const { item, eligible, partial, history } = letter({
    captures,
    attempts: [attempt(1, { stdout: text(8) })],
  })
  expect([item, eligible, partial.captures]).toEqual([{ n: 1 }, true, captures])
  expect(history[0]?.failure.stdout).toBe(text(8))
})

test('the output of old attempts goes first, the oldest before the others, and not what was printed last', () => {
  const attempts = [1, 2, 3, 4].map((n) => attempt(n, { stdout: text(80) }))
  const { history, output, item, eligible } = letter({ attempts })
  expect(history.map(({ failure }) => failure.stdout?.length)).toEqual([
    undefined,
    undefined,
    80 * KIB,
    80 * KIB,
  ])
  expect(history.map(({ failure }) => failure.message)).toEqual(Array(4).fill('it failed'))
  expect([output.stdout, item, eligible]).toEqual([text(80), { n: 1 }, true])
})

test('then what was captured, and the item stays: it can be tried again', () => {
  const captures = { one: text(100), two: text(100), three: text(100) }
  const { partial, item, eligible } = letter({ captures })
  expect([partial.captures, item, eligible]).toEqual([CUT, { n: 1 }, true])
})

test('then the names of files that were changed', () => {
  const changedFiles = Array.from({ length: 1_000 }, (_, n) => `${n}/${'f'.repeat(300)}`)
  const kept = { ref: 'refs/curfew/w_1/item-0', commit: 'c', changedFiles, diffStat: '' }
  const { partial, item, eligible } = letter({ attempts: [attempt(1, { kept })] })
  expect([item, eligible]).toEqual([{ n: 1 }, true])
  expect(partial.kept).toMatchObject({ ref: kept.ref, changedFiles: changedFiles.slice(0, 50) })
})

test('then old attempts, as many as there are too many', () => {
  const history = Array.from({ length: 1_000 }, (_, n) => ({ attempt: n, note: text(1) }))
  const cut = letter({ history, attempts: [attempt(1_000)] })
  expect(cut.history.length).toBeGreaterThan(200)
  expect(cut.history.map((one) => one.attempt)).toEqual(
    cut.history.map((_, n) => 1_001 - cut.history.length + n),
  )
  expect([cut.item, cut.eligible]).toEqual([{ n: 1 }, true])
})

test('at last the item, and with it that it can be tried again; its old attempts stay', () => {
  const { item, eligible, history } = letter({ item: text(300), attempts: [attempt(1), attempt(2)] })
  expect([item, eligible, history.length]).toEqual([CUT, false, 2])
})

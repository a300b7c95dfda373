import { expect, test } from 'vitest'
import { MAX_BATCH_BYTES } from '../core/limits.ts'
import type { Assignment, DownMessage, Turn } from '../wire/worker-port.ts'
import { downParts } from './down-parts.ts'

const assignment = (taskId: string, bytes: number) =>
  ({ taskId, input: 'x'.repeat(bytes), details: null }) as Assignment
const idsOf = (parts: ReturnType<typeof downParts>) =>
  parts.map(({ message }) =>
    message.type === 'start' ? message.assignments.map(({ taskId }) => taskId).join('') : message.type,
  )

test('assignments travel in parts that are not too large, each once and in order', () => {
  const half = MAX_BATCH_BYTES / 2
  const start = (...bytes: number[]): DownMessage => ({
    type: 'start',
    assignments: bytes.map((count, i) => assignment('abcdef'[i] as string, count)),
  })
  expect(idsOf(downParts(start(1, 2, 3)))).toEqual(['abc'])
  expect(idsOf(downParts(start(half, half, 1, half)))).toEqual(['ab', 'cd'])
  // One that is too large alone goes alone.
  expect(idsOf(downParts(start(1, MAX_BATCH_BYTES + 1, 1)))).toEqual(['a', 'b', 'c'])
  expect(downParts(start())).toEqual([])
})

test('turns are weighed with the results they bring', () => {
  const output = 'x'.repeat(MAX_BATCH_BYTES / 2 + 1)
  const results = [
    [{ seq: 1, step: 0, type: 'work', outcome: { status: 'completed', output } }],
    [{ seq: 1, step: 0, type: 'ran', outcome: { output } }],
    [{ seq: 1, step: 0, type: 'signal', value: output }],
    [{ seq: 1, step: 0, type: 'time' }],
  ] as Turn['results'][]
  const turns = results.map((of, i) => ({ agentId: `g_${i}`, input: null, results: of }) as unknown as Turn)
  const parts = downParts({ type: 'turns', turns })
  const lengths = parts.map(({ message }) => (message.type === 'turns' ? message.turns.length : 0))
  expect(lengths).toEqual([1, 1, 2])
  expect(parts.map(({ bytes }) => bytes)).toEqual([output.length, output.length, output.length])
})

test('everything else is one part', () => {
  const news: DownMessage = { type: 'news', agentId: 'g_1', token: 'r_1', dropped: false }
  expect(downParts(news)).toEqual([{ message: news, bytes: 0 }])
})

/**
 * What the chaos run schedules, as plain data that is written into the journal with each call: the auditor's model
 * is made of these and knows nothing of the engine.
 */
import type { SeededRandom } from '../random.ts'

export interface Plan {
  /** The name of the task. */
  task: string
  input: { ms?: number; failures?: number; beats?: number; n: number }
  queue?: string
  key?: string
  delayMs?: number
  /** Total, from the start time. */
  timeoutMs?: number
  attemptTimeoutMs?: number
  queueTimeoutMs?: number
  heartbeatTimeoutMs?: number
  stuckAfterMs?: number
  retries?: number
  graceMs?: number
  atMostOnce?: boolean
}

/** Over all processes. */
export const NARROW_QUEUE = { name: 'narrow', concurrency: 3 }

type Make = (random: SeededRandom, n: number) => Plan

/** With their weights. */
const KINDS: readonly (readonly [number, Make])[] = [
  [20, (_, n) => ({ task: 'quick', input: { n } })],
  [12, (random, n) => ({ task: 'slow', input: { n, ms: random.between(50, 1_500) } })],
  [
    10,
    (random, n) => ({
      task: 'failing',
      input: { n, failures: random.between(0, 4) },
      retries: 3,
      timeoutMs: 60_000,
    }),
  ],
  [8, (random, n) => ({ task: 'hanging', input: { n }, timeoutMs: random.between(50, 1_500) })],
  [
    8,
    (random, n) => ({
      task: 'hanging',
      input: { n },
      attemptTimeoutMs: random.between(50, 600),
      retries: random.between(0, 2),
      graceMs: 200,
    }),
  ],
  [
    6,
    (random, n) => ({
      task: 'hanging',
      input: { n },
      attemptTimeoutMs: random.between(200, 500),
      timeoutMs: random.between(300, 900),
      retries: 5,
    }),
  ],
  [4, (random, n) => ({ task: 'unknown', input: { n }, queueTimeoutMs: random.between(50, 2_000) })],
  [
    8,
    (random, n) => ({
      task: 'slow',
      queue: NARROW_QUEUE.name,
      input: { n, ms: random.between(50, 500) },
      queueTimeoutMs: random.between(100, 3_000),
    }),
  ],
  [
    4,
    (random, n) => ({
      task: 'beating',
      input: { n, beats: random.between(0, 6) },
      heartbeatTimeoutMs: random.between(1_200, 1_600),
      retries: random.between(0, 1),
    }),
  ],
  [
    3,
    (random, n) => ({
      task: 'progressing',
      input: { n, beats: random.between(0, 6) },
      stuckAfterMs: random.between(1_200, 1_600),
    }),
  ],
  // Ends about when its limit does.
  [
    8,
    (random, n) => {
      const timeoutMs = random.between(50, 800)
      return { task: 'slow', input: { n, ms: Math.max(1, timeoutMs + random.between(-30, 10)) }, timeoutMs }
    },
  ],
  [8, (random, n) => ({ task: 'quick', input: { n }, delayMs: random.between(50, 2_500) })],
  [
    3,
    (random, n) => ({
      task: 'hanging',
      input: { n },
      delayMs: random.between(50, 1_000),
      timeoutMs: random.between(50, 500),
    }),
  ],
  [8, (random, n) => ({ task: 'slow', input: { n, ms: random.between(10, 400) }, atMostOnce: true })],
  [10, (random, n) => ({ task: 'quick', input: { n }, key: `key-${n}-${random.between(0, 1e9)}` })],
]

/** Processes are dear: these have a share of their own. */
const ISOLATED: readonly Make[] = [
  (random, n) => ({
    task: 'ignoring',
    input: { n },
    attemptTimeoutMs: random.between(500, 1_000),
    retries: random.between(0, 1),
    graceMs: 100,
  }),
  (random, n) => ({ task: 'ignoring', input: { n }, timeoutMs: random.between(500, 1_500), graceMs: 100 }),
  (random, n) => ({ task: 'isolated', input: { n, ms: random.between(10, 300) } }),
]

const TOTAL = KINDS.reduce((sum, [weight]) => sum + weight, 0)
const ISOLATED_SHARE = 0.02

export function nextPlan(random: SeededRandom, n: number): Plan {
  if (random.chance(ISOLATED_SHARE)) return random.pick(ISOLATED)(random, n)
  let left = random.next() * TOTAL
  for (const [weight, make] of KINDS) {
    left -= weight
    if (left < 0) return make(random, n)
  }
  return { task: 'quick', input: { n } }
}

/**
 * What the agents of a chaos run do, as plain data that is written into the journal with each start: the auditor's
 * model is made of these and knows nothing of the engine.
 */
import type { SeededRandom } from '../random.ts'

export type Op =
  /** A side effect that takes so long: a line in the journal of the run. */
  | { op: 'effect'; ms: number }
  | { op: 'sleep'; ms: number }
  /** What differs each time it is asked for: the time, a number and an id. */
  | { op: 'values' }
  | { op: 'task'; ms: number; fails: boolean }
  | { op: 'all' | 'any' | 'race'; ms: number[] }
  | { op: 'settled'; ms: number[]; timeoutMs: number }
  | { op: 'signal' }
  | { op: 'child'; ops: Op[] }
  /** Both at the same time, with native promises. */
  | { op: 'both'; left: Op[]; right: Op[] }

export interface Script {
  ops: Op[]
  end: 'return' | 'throw' | 'hang'
}

export interface AgentPlan extends Script {
  timeoutMs?: number
}

/** How many tasks an agent schedules that follows them all. */
export function taskCount(ops: readonly Op[]): number {
  return ops.reduce((sum, op) => {
    if (op.op === 'task') return sum + 1
    if ('ms' in op && Array.isArray(op.ms)) return sum + op.ms.length
    return op.op === 'both' ? sum + taskCount(op.left) + taskCount(op.right) : sum
  }, 0)
}

export function signalCount(ops: readonly Op[]): number {
  return ops.filter(({ op }) => op === 'signal').length
}

const MOST_OPS = 5
/** Ops that are made of others stand at the top alone: an agent has to end soon. */
const SIMPLE: readonly ((random: SeededRandom) => Op)[] = [
  effect,
  effect,
  effect,
  (random) => ({ op: 'sleep', ms: random.between(1, 60) }),
  (random) => ({ op: 'sleep', ms: random.between(100, 1_500) }),
  () => ({ op: 'values' }),
  (random) => ({ op: 'task', ms: random.between(1, 80), fails: random.chance(0.2) }),
]
const NESTED: readonly ((random: SeededRandom) => Op)[] = [
  (random) => ({ op: 'all', ms: durations(random) }),
  (random) => ({ op: 'any', ms: durations(random) }),
  (random) => ({ op: 'race', ms: durations(random) }),
  (random) => ({ op: 'settled', ms: durations(random), timeoutMs: random.between(5, 150) }),
  () => ({ op: 'signal' }),
  () => ({ op: 'signal' }),
  (random) => ({ op: 'child', ops: simple(random, 3) }),
  (random) => ({ op: 'both', left: simple(random, 3), right: simple(random, 3) }),
]

export function nextPlan(random: SeededRandom): AgentPlan {
  const ops = random.chance(0.2) ? signals(random) : mixed(random)
  const end = random.pick(['return', 'return', 'return', 'throw', 'hang'] as const)
  // One that hangs without a limit is cancelled in the end.
  const limited = random.chance(end === 'hang' ? 0.7 : 0.2)
  return { ops, end, ...(limited && { timeoutMs: random.between(50, 2_500) }) }
}

function mixed(random: SeededRandom): Op[] {
  return Array.from({ length: random.between(1, MOST_OPS) }, () =>
    random.chance(0.5) ? random.pick(SIMPLE)(random) : random.pick(NESTED)(random),
  )
}

/** Several in a row, of which some may have come before it asks. */
function signals(random: SeededRandom): Op[] {
  const waits = Array.from({ length: random.between(2, 4) }, (): Op => ({ op: 'signal' }))
  return [effect(random), { op: 'sleep', ms: random.between(1, 300) }, ...waits, effect(random)]
}

function effect(random: SeededRandom): Op {
  return { op: 'effect', ms: random.chance(0.7) ? random.between(0, 5) : random.between(20, 200) }
}

function durations(random: SeededRandom): number[] {
  return Array.from({ length: random.between(2, 5) }, () => random.between(1, 120))
}

function simple(random: SeededRandom, most: number): Op[] {
  return Array.from({ length: random.between(1, most) }, () => random.pick(SIMPLE)(random))
}

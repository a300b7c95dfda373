/**
 * The side effects of one agent, from the journal alone: what was followed by another step was journalled, and is
 * never done again; a replay comes to each with the same past; two processes never run it at the same time; its
 * clean-up comes last.
 */
import type { Fact } from '../journal.ts'
import type { AgentRecord } from './auditor.ts'

interface Effect {
  effect: string
  value: string
  path: unknown[]
  pid: number
  from: number
  to: number
}

/** Answers what its clean-up has seen, which is everything. */
export function auditEffects(
  { view, events }: AgentRecord,
  facts: readonly Fact[],
  killedAt: ReadonlyMap<number, number>,
  complain: (rule: string, taskId: string | null, text: string) => void,
): unknown[] | null {
  const { id } = view
  const effects = effectsOf(facts, killedAt)
  const last = new Map(effects.map((effect) => [effect.effect, effect]))
  for (const { effect, path } of effects) {
    if (JSON.stringify(path) !== JSON.stringify(last.get(effect)?.path))
      complain('same path again', id, `${effect} was done after ${JSON.stringify(path)}, then after another`)
  }
  const output = view.status === 'completed' ? view.output : []
  const kept = new Set([output, ...effects.map(({ path }) => path)].flatMap(texts))
  for (const { effect, value, from } of effects) {
    if (kept.has(value) && last.get(effect)?.value !== value)
      complain('once journalled', id, `${effect} was done again after ${value}, at ${from}`)
  }
  for (const text of overlaps(effects)) complain('one process at a time', id, text)
  const undone = effects.find(isUndo)
  for (const one of effects) {
    const { effect, from } = one
    if (undone && !isUndo(one) && from > undone.from)
      complain('clean-up', id, `${effect} was done after the clean-up had begun`)
  }
  const without = events.some(({ type }) => type === 'agent_parked' || type === 'cleanup_abandoned')
  if (!undone && view.attempts > 0 && !without) complain('clean-up', id, 'it was not cleaned up')
  return effects.findLast(isUndo)?.path ?? null
}

function isUndo({ effect }: Effect): boolean {
  return effect === 'undo' || effect === 'undo again'
}

function effectsOf(facts: readonly Fact[], killedAt: ReadonlyMap<number, number>): Effect[] {
  const ended = new Map(
    facts.flatMap(({ type, value, mono }) => (type === 'effect_ended' ? [[value as string, mono]] : [])),
  )
  return facts
    .filter(({ type }) => type === 'effect_started')
    .map(({ effect, value, path, pid, mono }) => ({
      effect: effect as string,
      value: value as string,
      path: path as unknown[],
      pid,
      from: mono,
      to: ended.get(value as string) ?? killedAt.get(pid) ?? mono,
    }))
}

/** Every text in it, at any depth. */
function texts(value: unknown): string[] {
  if (typeof value === 'string') return [value]
  if (Array.isArray(value)) return value.flatMap(texts)
  return typeof value === 'object' && value !== null ? Object.values(value).flatMap(texts) : []
}

/** Of different processes; within one it may do several things at once. */
function overlaps(effects: readonly Effect[]): string[] {
  const found: string[] = []
  for (const [i, one] of effects.entries()) {
    for (const other of effects.slice(i + 1)) {
      if (one.pid !== other.pid && one.from < other.to && other.from < one.to)
        found.push(`${one.effect} in process ${one.pid}, beside ${other.effect} in process ${other.pid}`)
    }
  }
  return found
}

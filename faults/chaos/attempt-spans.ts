/**
 * When each attempt surely ran, from the journal alone: from its start to its end, or, where its process was killed,
 * to the moment just before the kill, or to its last sign of life. Never longer than it really ran, so that an
 * overlap that is found is one.
 */
import type { Fact } from '../journal.ts'

export interface Span {
  taskId: string
  attempt: number
  pid: number
  from: number
  to: number
}

export function spansOf(facts: readonly Fact[]): Span[] {
  const killedAt = new Map<number, number>()
  for (const { type, victim, mono } of facts) if (type === 'killed') killedAt.set(victim as number, mono)
  const spans = new Map<string, Span & { ended: boolean; inline: boolean }>()
  for (const { type, taskId, attempt, pid, owner, mono } of facts) {
    if (taskId === undefined || attempt === undefined) continue
    const key = `${taskId} ${attempt} ${pid}`
    if (type === 'attempt_started') {
      spans.set(key, { taskId, attempt, pid, from: mono, to: mono, ended: false, inline: pid === owner })
    }
    const span = spans.get(key)
    if (!span) continue
    span.to = Math.max(span.to, mono)
    if (type === 'attempt_ended') span.ended = true
  }
  for (const span of spans.values()) {
    const killed = killedAt.get(span.pid)
    if (!span.ended && span.inline && killed !== undefined) span.to = Math.max(span.to, killed)
  }
  return [...spans.values()].map(({ taskId, attempt, pid, from, to }) => ({ taskId, attempt, pid, from, to }))
}

export function findOverlaps(spans: readonly Span[]): { taskId: string; text: string }[] {
  const found: { taskId: string; text: string }[] = []
  for (const [taskId, ofTask] of Map.groupBy(spans, (span) => span.taskId)) {
    const inOrder = ofTask.toSorted((a, b) => a.from - b.from)
    let latest: Span | null = null
    for (const span of inOrder) {
      if (latest && span.from < latest.to) {
        const ms = Math.round(Math.min(span.to, latest.to) - span.from)
        const who = `attempt ${span.attempt} (process ${span.pid})`
        const beside = `attempt ${latest.attempt} (process ${latest.pid})`
        found.push({ taskId, text: `${who} ran beside ${beside} for ${ms} ms` })
      }
      if (!latest || span.to > latest.to) latest = span
    }
  }
  return found
}

/** The most that ran at one moment. */
export function findOverload(spans: readonly Span[]): number {
  const changes = spans.flatMap(({ from, to }) => [
    { at: from, by: 1 },
    { at: to, by: -1 },
  ])
  let running = 0
  let most = 0
  for (const { by } of changes.toSorted((a, b) => a.at - b.at || a.by - b.by)) {
    running += by
    most = Math.max(most, running)
  }
  return most
}

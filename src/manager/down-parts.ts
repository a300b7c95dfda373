/** Messages to a worker in parts that a connection carries: inputs and results may be large, and there may be many. */
import { MAX_BATCH_BYTES } from '../core/limits.ts'
import type { DownMessage, Turn } from '../wire/worker-port.ts'

interface DownPart {
  message: DownMessage
  bytes: number
}

/** Each part is below the bound, unless it is a single piece of work. */
export function downParts(message: DownMessage): DownPart[] {
  if (message.type === 'start') {
    const parts = inParts(message.assignments, ({ input, details }) => input.length + (details?.length ?? 0))
    return parts.map(({ items, bytes }) => ({ message: { type: 'start', assignments: items }, bytes }))
  }
  if (message.type === 'turns') {
    const parts = inParts(message.turns, weightOfTurn)
    return parts.map(({ items, bytes }) => ({ message: { type: 'turns', turns: items }, bytes }))
  }
  return [{ message, bytes: 0 }]
}

function inParts<T>(all: readonly T[], weigh: (item: T) => number): { items: T[]; bytes: number }[] {
  const parts: { items: T[]; bytes: number }[] = []
  for (const item of all) {
    const bytes = weigh(item)
    const last = parts.at(-1)
    if (last && last.bytes + bytes <= MAX_BATCH_BYTES) {
      last.items.push(item)
      last.bytes += bytes
    } else parts.push({ items: [item], bytes })
  }
  return parts
}

function weightOfTurn({ input, results }: Turn): number {
  let weight = input?.length ?? 0
  for (const result of results) {
    if (result.type === 'signal') weight += result.value.length
    else if (result.type === 'work' && result.outcome.status === 'completed')
      weight += result.outcome.output.length
    else if (result.type === 'ran' && 'output' in result.outcome) weight += result.outcome.output.length
  }
  return weight
}

/** Messages to a worker in parts that a connection carries: inputs and results may be large, and there may be many. */
import { MAX_BATCH_BYTES } from '../core/limits.ts'
import type { DownMessage, Turn } from '../wire/worker-port.ts'

/** Each part is below the bound, unless it is a single piece of work. */
export function downParts(message: DownMessage): DownMessage[] {
  if (message.type === 'start') {
    const parts = inParts(message.assignments, ({ input, details }) => input.length + (details?.length ?? 0))
    return parts.map((assignments) => ({ type: 'start', assignments }))
  }
  if (message.type === 'turns')
    return inParts(message.turns, weightOfTurn).map((turns) => ({ type: 'turns', turns }))
  return [message]
}

function inParts<T>(items: T[], weigh: (item: T) => number): T[][] {
  const parts: T[][] = []
  let left = 0
  for (const item of items) {
    const weight = weigh(item)
    const last = parts.at(-1)
    if (last && weight <= left) last.push(item)
    else {
      parts.push([item])
      left = MAX_BATCH_BYTES
    }
    left -= weight
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

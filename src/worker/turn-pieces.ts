/**
 * A turn that brings more than one request carries, in pieces: steps first, then what was run, in their order. All but
 * the last leave the turn open. The manager answers each with what the code has not seen, so that only the last answer
 * counts.
 */
import type { TurnReport } from '../wire/worker-port.ts'

type Step = TurnReport['steps'][number]
type Ran = TurnReport['ran'][number]

/** About so many bytes of text. */
export function weightOfTurn({ steps, ran, state }: TurnReport): number {
  let bytes = 1_000 + (state.type === 'returned' ? state.output.length : 0)
  for (const step of steps) bytes += weightOfStep(step)
  for (const one of ran) bytes += weightOfRan(one)
  return bytes
}

export function turnPieces(report: TurnReport, maxBytes: number): TurnReport[] {
  const steps = report.steps.map((step) => ({ step, weight: weightOfStep(step) }))
  const ran = report.ran.map((one) => ({ ran: one, weight: weightOfRan(one) }))
  const all: ({ step: Step; weight: number } | { ran: Ran; weight: number })[] = [...steps, ...ran]
  if (weightOfTurn(report) <= maxBytes || all.length === 0) return [report]
  const open = { ...report, withdrawn: [], state: { type: 'open' } } as const
  const pieces: TurnReport[] = []
  let left = 0
  for (const item of all) {
    if (pieces.length === 0 || item.weight > left) {
      pieces.push({ ...open, steps: [], ran: [], withdrawn: [] })
      left = maxBytes
    }
    left -= item.weight
    const piece = pieces.at(-1) as TurnReport
    if ('step' in item) piece.steps.push(item.step)
    else piece.ran.push(item.ran)
  }
  const last = pieces.at(-1) as TurnReport
  pieces[pieces.length - 1] = { ...last, withdrawn: report.withdrawn, state: report.state }
  return pieces
}

function weightOfStep(step: Step): number {
  return 500 + ('input' in step ? step.input.length : 0)
}

function weightOfRan({ outcome }: Ran): number {
  return 100 + ('output' in outcome ? outcome.output.length : JSON.stringify(outcome.failure).length)
}

/** Reports on their way into the store, and what their workers are answered. */
import type { Answer, Command } from '../engine/command.ts'
import type { Weight } from '../engine/funnel.ts'
import type { Assignment, Report, ReportAnswer } from '../wire/worker-port.ts'

export const NOT_ITS: ReportAnswer = {
  type: 'stale',
  reason: { code: 'stale', message: 'it is the attempt of another worker' },
}

export function reportWeight(command: Command): Weight {
  const bytes =
    command.type === 'input' && command.input.type === 'completed' ? command.input.output.length : 0
  return { bytes, rows: 1 }
}

export function reportAnswer(answer: Answer): ReportAnswer {
  const { type } = answer
  if (type === 'accepted' || type === 'stale' || type === 'extension' || type === 'limits') return answer
  return { type: 'stale', reason: { code: 'stale', message: 'there is no such task any more' } }
}

/** Reports of attempts that run on. */
export const GOES_ON: readonly Report['type'][] = ['beat', 'extend', 'note', 'overdue']

/** For an attempt that was claimed for a worker which has gone meanwhile: back to where it came from. */
export function givenBack({ taskId, token, scope }: Assignment): Command {
  const reason = { code: 'closing', message: 'the worker it was meant for has gone' } as const
  return {
    ...{ type: 'input', taskId, scope },
    input: { type: 'stopped', token, reason, receipt: 'exited', late: null },
  }
}

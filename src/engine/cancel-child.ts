/**
 * A request to cancel one child of an agent, and others that wait for it: of a job, its workflows. The intent stands
 * in the agent's row: from that commit on no child with such a title starts, whatever the agent's code has not seen yet.
 */
import type { CancelAnswer, TaskStatus } from '../core/states.ts'
import { isEnded } from '../core/states.ts'
import type { TitledChild } from '../store/agent-statements.ts'
import type { AgentDraft } from './agent-draft.ts'
import type { AgentInput } from './agent-input.ts'
import type { TaskEventBody } from './task-event.ts'
import type { TaskAnswer } from './task-input.ts'

type CancelInput = Extract<AgentInput, { type: 'cancel_child' }>

/** `pass`: gives the agent's code its signal, with the event for it. */
export function cancelChild(
  draft: AgentDraft,
  input: CancelInput,
  pass: (event: TaskEventBody) => TaskAnswer,
): TaskAnswer {
  const { row, waits } = draft
  const { title, below, requestId } = input
  const known = waits.requests.find(([id, of]) => id === requestId && of === title)
  if (known) return { type: 'cancel', answer: known[2] }
  if (!draft.codeAlive || row.stopping === 1) return { type: 'unchanged', reason: `it is ${row.status}` }
  const children = new Map(input.children.map((child) => [child.title, child]))
  const cancelled = new Set(waits.cancelled)
  const answer = cancelAnswer(children.get(title)?.status ?? input.status, cancelled.has(title))
  const open = [...below, title].filter((one) => !cancelled.has(one) && isOpen(children.get(one)))
  if (answer === 'already_completed' || open.length === 0) return { type: 'cancel', answer }
  const dependents = open.filter((one) => one !== title)
  const passed = pass({ type: 'workflow_cancelling', workflow: title, dependents, requestId })
  if (passed.type !== 'accepted') return passed
  waits.cancelled.push(...open)
  if (requestId !== null) waits.requests.push([requestId, title, answer])
  for (const one of open) {
    const child = children.get(one)
    if (child) draft.cancels.push(child.id)
  }
  return { type: 'cancel', answer }
}

function isOpen(child: TitledChild | undefined): boolean {
  return !child || child.status === 'pending' || child.status === 'running'
}

function cancelAnswer(status: TaskStatus, asked: boolean): CancelAnswer {
  if (status === 'cancelled' || status === 'cancelling') return 'already_cancelled'
  if (isEnded(status)) return 'already_completed'
  if (asked) return 'already_cancelled'
  return status === 'pending' ? 'pending_cancelled' : 'cancelled'
}

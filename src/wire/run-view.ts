/** Runs of workflows and jobs, as plain data. */
import { CurfewError } from '../core/errors.ts'
import type { Failure } from '../core/failure.ts'
import type { TaskStatus, TimeoutKind } from '../core/states.ts'

export interface TokenView {
  id: number
  node: string
  status:
    | 'dispatched'
    | 'executing'
    | 'waiting_for_siblings'
    | 'waiting_for_subworkflow'
    | 'completed'
    | 'failed'
    | 'timed_out'
    | 'cancelled'
  /** Dispatches after the first. */
  retries: number
  /** Its branch in every fan-out it is in, the outermost first. */
  branches: { group: string; index: number }[]
  /** Of the task, agent or run that its node began last. */
  workId: string | null
  /** When its execution ends at the latest; of one that timed out, the deadline that was over. */
  deadlineAt: number | null
  /** Of one that timed out: which layer it was. */
  timeoutType: 'workflow' | 'execution' | 'synchronization' | null
}

export interface JoinView {
  transition: string
  group: string
  expected: number
  arrived: number
  fired: boolean
  timeoutMs: number | null
  /** When it stops waiting. */
  deadlineAt: number | null
}

export interface RunView {
  id: string
  workflow: string
  hash: string
  status: TaskStatus
  state: Record<string, unknown>
  tokens: TokenView[]
  joins: JoinView[]
}

export interface MemberView {
  id: string
  kind: 'workflow' | 'agent' | 'task' | 'mapreduce'
  name: string
  status: TaskStatus
  /** Of its run; null when it has none. */
  runId: string | null
  output: unknown
  failure: Failure | null
  timeoutKind: TimeoutKind | null
  dependsOn: string[]
}

/** Throws `not_found`. */
export function memberOf(jobId: string, id: string, members: readonly MemberView[]): MemberView {
  const member = members.find((one) => one.id === id)
  if (member) return member
  throw new CurfewError('not_found', `job ${jobId} has no workflow '${id}'`, {
    hint: `It has ${members.map((one) => one.id).join(', ')}.`,
    fields: { jobId, id },
  })
}

/**
 * The words of a graph run: what happens to it and what it asks for. Plain data on both sides, so that the same
 * happenings always lead to the same run.
 */
import type { Failure } from '../core/failure.ts'
import type { TimeoutKind } from '../core/states.ts'
import type { ExecutionLimits } from '../definitions/workflow-limits.ts'
import type { ActionModel, HttpMethod, NodeModel } from '../definitions/workflow-model.ts'

/** What a node runs, with every expression evaluated. */
export type WorkRequest =
  | { kind: 'task' | 'agent' | 'workflow'; name: string; input: unknown }
  | { kind: 'http_request'; input: HttpRequest }
  | { kind: 'shell'; input: ShellRequest }

export interface HttpRequest {
  method: HttpMethod
  url: string
  headers: Record<string, string>
  body: unknown
  expectedStatus: number[] | null
}

export interface ShellRequest {
  command: string | null
  argv: string[] | null
  env: Record<string, string>
  workingDir: string | null
}

export type WorkEnd =
  | { status: 'completed'; output: unknown }
  | {
      status: 'failed' | 'timed_out' | 'cancelled'
      failure: Failure
      timeoutKind: TimeoutKind | null
      /** How long that limit was. */
      timeoutMs?: number | null
      /** Not to be tried again: it never started, or still runs. */
      final?: boolean
    }

export type GraphHappening =
  | { type: 'ended'; token: number; end: WorkEnd }
  | { type: 'time'; timer: number }
  /** Its own timeout, or a cancel. `timeoutMs`: how long it had; its definition's unless said. */
  | { type: 'stopped'; reason: 'timed_out' | 'cancelled'; timeoutMs?: number | undefined }

export type GraphCommand =
  | {
      type: 'run'
      token: number
      node: NodeModel
      action: ActionModel
      work: WorkRequest
      limits: ExecutionLimits
    }
  | { type: 'timer'; timer: number; ms: number }
  | { type: 'clear'; timer: number }
  /** Nobody waits for it any more. */
  | { type: 'stop'; token: number }
  | { type: 'record'; event: GraphEvent }

export type TimeoutLayer = 'workflow' | 'execution' | 'synchronization'

export type PolicyApplied = 'cancel_all' | 'fail' | 'retry' | 'proceed_with_available'

/** The seed's names. */
export type GraphEvent =
  | {
      type: 'token_timed_out'
      tokenId: number
      nodeId: string
      attempt: number
      timeoutType: TimeoutLayer
      timeoutDurationMs: number | null
      policyApplied: PolicyApplied
    }
  | { type: 'token_failed'; tokenId: number; nodeId: string; code: string; message: string }
  | { type: 'join_fired'; transition: string; expected: number; arrived: number; timedOut: boolean }
  | { type: 'join_failed'; transition: string; code: string; message: string }
  | { type: 'join_warning'; transition: string; percent: number; remainingMs: number }

export type GraphEnd =
  | { status: 'completed'; output: unknown }
  | { status: 'failed'; failure: Failure }
  | { status: 'stopped'; reason: 'timed_out' | 'cancelled' }

export type TokenStatus =
  | 'dispatched'
  | 'waiting_for_siblings'
  | 'waiting_for_subworkflow'
  | 'completed'
  | 'failed'
  | 'timed_out'
  | 'cancelled'

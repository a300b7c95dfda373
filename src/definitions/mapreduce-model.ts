/**
 * A map-reduce as plain JSON data: what its file becomes, and what is stored with a run, so that changing the file
 * or the environment does not change a run in flight. Every key is there; `null` means "not set" or "none".
 */
import type { Backoff } from '../core/backoff.ts'

/** Raised when what is stored can no longer be read as it was. */
export const MAPREDUCE_FORMAT = 1

export const PHASES = ['setup', 'map', 'reduce', 'merge'] as const
export type Phase = (typeof PHASES)[number]

/** Which limits hold in an item: the agent's, those of its commands, or both, of which the first to fire wins. */
export const TIMEOUT_POLICIES = ['per_agent', 'per_command', 'hybrid'] as const
export type TimeoutPolicy = (typeof TIMEOUT_POLICIES)[number]

/** What becomes of an item that timed out. `graceful_terminate` is `dlq`: all of them stop it the same way. */
export const TIMEOUT_ACTIONS = ['dlq', 'skip', 'fail', 'retry', 'graceful_terminate'] as const
export type TimeoutAction = (typeof TIMEOUT_ACTIONS)[number]

export interface StepModel {
  /** `shell`, or a key of `runners`: what runs it, and what its limit is looked up by. */
  type: string
  /** A template: for a shell a script, for a runner the last of its arguments. */
  text: string
  /** Undefined: not written; `null`: none, also where a default exists. */
  timeoutMs?: number | null
  /** Tries after the first. */
  retries: number
  backoff: Backoff
  /** A CEL expression; the step is passed over where it is false. */
  when: string | null
  /** Templates by name. */
  env: Record<string, string>
  /** A template; relative to the folder of the item, or of the phase. */
  workingDir: string | null
  /** Under this name the steps that follow find what it printed, without line breaks at its end. */
  capture: string | null
  /** Handlers have none of their own. */
  onFailure: StepModel[]
  onSuccess: StepModel[]
  /** It has failed where it made no commit. */
  commitRequired: boolean
}

export interface PhaseModel {
  timeoutMs: number | null
  steps: StepModel[]
}

/** Templates, but for the items. */
export type InputModel =
  | { kind: 'file'; file: string }
  | { kind: 'command'; command: string; timeoutMs: number | null }
  | { kind: 'items'; items: unknown[] }

export interface SortKey {
  path: readonly (string | number)[]
  isDescending: boolean
}

export interface EscalationModel {
  /** Each attempt has this many times the limits of the one before. */
  multiplier: number
  /** No limit grows beyond it. */
  maxMs: number | null
  /** The first among them. */
  maxAttempts: number
}

export interface MapModel {
  input: InputModel
  /** RFC 9535; without it the input is the list of items. */
  jsonPath: string | null
  /** A CEL expression over `item`. */
  filter: string | null
  sortBy: SortKey[]
  offset: number
  maxItems: number | null
  maxParallel: number
  agentTimeoutMs: number | null
  policy: TimeoutPolicy
  /** By type (`shell`), or by type and place in the template (`claude_0`). `null`: no limit. */
  commandTimeouts: Record<string, number | null>
  graceMs: number
  action: TimeoutAction
  /** Whether agents and commands leave events and figures. Limits hold in any case. */
  monitoring: boolean
  /** Without any output. */
  idleTimeoutMs: number | null
  escalation: EscalationModel | null
  /** As it was written. */
  adaptive: unknown
  template: StepModel[]
}

/** `failedItems >= maxFailures`, or more of all items than `failureRate`, uses its tolerance up. */
export interface ErrorPolicyModel {
  maxFailures: number | null
  /** From 0 to 1. */
  failureRate: number | null
  /** Once it is used up the run has failed. Whether the other items still run: */
  onFailure: 'stop' | 'continue'
}

export interface MapreduceModel {
  format: number
  name: string
  timeoutMs: number | null
  /** Templates by name. */
  env: Record<string, string>
  /** Variables of the environment whose values are masked wherever they turn up. Values are not stored. */
  secrets: string[]
  setup: PhaseModel
  map: MapModel
  reduce: PhaseModel
  merge: PhaseModel
  errorPolicy: ErrorPolicyModel
  /** A program and its arguments, templates, by the type of the steps it runs. */
  runners: Record<string, string[]>
}

export const DEFAULT_MAX_PARALLEL = 10
export const DEFAULT_CLEANUP_GRACE_MS = 30_000
/** A timed-out item is tried once more with `retry`, unless `escalation` says how often. */
export const DEFAULT_MAX_ATTEMPTS = 2
/** The program is found on PATH; in print mode it ends when it has answered. */
export const DEFAULT_RUNNERS: Readonly<Record<string, string[]>> = { claude: ['claude', '--print'] }
export const SHELL_TYPE = 'shell'

/** Whether so many failed items are more than the policy tolerates. Skipped items have not failed. */
export function isToleranceUsedUp(policy: ErrorPolicyModel, failed: number, items: number): boolean {
  const { maxFailures, failureRate } = policy
  if (failed === 0) return false
  return (
    (maxFailures !== null && failed >= maxFailures) || (failureRate !== null && failed > failureRate * items)
  )
}

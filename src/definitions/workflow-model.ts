/**
 * A workflow graph as plain JSON data: what a definition in TypeScript or in a file becomes, and what is stored
 * with a run, so that changing the file does not change a run in flight. Keys that are not set are left out;
 * `null` is said by the user and means "none".
 */
import { createHash } from 'node:crypto'
import type { MergeStrategy } from './join-merge.ts'
import type { Mapping } from './mapping.ts'
import type { WorkKind } from './task-policy.ts'

/** Raised when what is stored can no longer be read as it was. */
export const MODEL_FORMAT = 1

/** The limits of a node or of an action; the node's win, one by one. */
export interface ExecutionModel {
  /** From the start of executing; `null`: none, also where the action has one. */
  timeoutMs?: number | null
  onTimeout?: 'fail' | 'retry'
  /** Tries after the first when `onTimeout` is `retry`; 3 unless set. */
  retryLimit?: number
  /** From the moment the token may be dispatched; the execution timeout unless set. */
  queueTimeoutMs?: number | null
  softStopMs?: number
  graceMs?: number
  warnAt?: number
}

interface ActionBase {
  execution: ExecutionModel
}

export interface TaskAction extends ActionBase {
  kind: 'task'
  task: string
  /** What it does, for advice on limits. */
  work?: WorkKind
}
export interface AgentAction extends ActionBase {
  kind: 'agent'
  agent: string
}
export interface WorkflowAction extends ActionBase {
  kind: 'workflow_call'
  workflow: string
}
export interface HttpAction extends ActionBase {
  kind: 'http_request'
  method: HttpMethod
  /** Expressions: the address, the headers by name, the body. */
  url: string
  headers: Record<string, string>
  body?: Mapping
  /** Statuses that are no failure; 200 to 299 unless set. */
  expectedStatus?: number[]
}
export interface ShellAction extends ActionBase {
  kind: 'shell'
  /** A line for the shell, as it stands: values come as environment variables. */
  command?: string
  /** Or a program and its arguments: templates. */
  argv?: string[]
  /** Expressions by name. */
  env: Record<string, string>
  /** A template. */
  workingDir?: string
}
export interface UpdateAction extends ActionBase {
  kind: 'update_context'
  updates: Record<string, Mapping>
}

export type ActionModel = TaskAction | AgentAction | WorkflowAction | HttpAction | ShellAction | UpdateAction

export const HTTP_METHODS = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'] as const
export type HttpMethod = (typeof HTTP_METHODS)[number]
export interface NodeModel extends ExecutionModel {
  id: string
  /** A key of `actions`; a node without one does nothing. */
  actionId: string | null
  /** What the action is given; the workflow's input unless set. */
  input?: Mapping
  /** What is written where once it completed: paths to expressions. See `node-output.ts` for the default. */
  output?: Record<string, Mapping>
  /** Clips its deadline to the workflow's, minus the reserve. */
  inherit?: boolean
  reserveMs?: number
}

export type JoinStrategy = 'all' | 'any' | { mOfN: number }

export interface SynchronizationModel {
  strategy: JoinStrategy
  /** The group of the fan-out whose branches are counted. */
  siblingGroup: string
  /** From the first arrival; left out: computed, `null`: none. */
  timeoutMs?: number | null
  onTimeout: 'proceed_with_available' | 'fail'
  onBranchFailure: 'fail' | 'settle'
  /** Of branches still running when the join has fired: they end their present node, or are stopped. */
  late: 'finish' | 'cancel'
  warnAt?: number
  merge?: { source: string; target: string; strategy: MergeStrategy }
  /** An expression over what arrives: a text fails the join with it, at once. Of compiled graphs alone. */
  failWith?: string
  /** It fires also when no branch arrives. Of compiled graphs alone. */
  firesEmpty?: boolean
  /** False: what the branches give is not wanted, and not kept. Of compiled graphs alone. */
  collects?: boolean
}

export interface TransitionModel {
  id: string
  from: string
  to: string
  /** Tiers, lowest first; the first tier with a match fires all its matches. */
  priority: number
  condition?: string
  /** One token per element of a list, or that many. */
  foreach?: { collection: string; itemVar: string }
  spawnCount?: number
  /** The scope it opens: branches that a join can count. Transitions of one node and tier share it by name. */
  group?: string
  maxParallel?: number
  loop?: { maxIterations: number }
  synchronization?: SynchronizationModel
}

export interface WorkflowModel {
  format: number
  name: string
  description?: string
  /** One hour unless set; `null`: none. */
  timeoutMs: number | null
  onTimeout: 'cancel_all' | 'fail'
  warnAt?: number
  /** For all nodes that do not say otherwise. */
  inherit: boolean
  reserveMs?: number
  start: string
  /** What the run gives back; without it see `runOutput`. */
  output?: Mapping
  /** Every action a node names is here: one that was not declared is a task of that name. */
  actions: Record<string, ActionModel>
  nodes: NodeModel[]
  transitions: TransitionModel[]
}

/** The same content has the same hash, whatever the order of keys. */
export function contentHash(model: object): string {
  return createHash('sha256').update(canonicalJson(model)).digest('hex')
}

function canonicalJson(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonicalJson).join(',')}]`
  if (typeof value !== 'object' || value === null) return JSON.stringify(value ?? null)
  const entries = Object.entries(value).filter(([, item]) => item !== undefined)
  entries.sort(([a], [b]) => (a < b ? -1 : 1))
  return `{${entries.map(([key, item]) => `${JSON.stringify(key)}:${canonicalJson(item)}`).join(',')}}`
}

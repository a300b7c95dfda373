/** A job as plain JSON data: what a definition in TypeScript or in a file becomes, and what is stored with a run. */
import type { MapreduceOutline } from './mapreduce-outline.ts'
import type { WorkflowModel } from './workflow-model.ts'

export const WORK_TYPES = ['workflow', 'agent', 'mapreduce', 'task'] as const
export type WorkType = (typeof WORK_TYPES)[number]

/** When a workflow runs, by how those it depends on ended: all completed, one did not, however. */
export const RUN_IF = ['completed', 'failed', 'always'] as const
export type RunIf = (typeof RUN_IF)[number]

export const DEFAULT_STUCK_AFTER_MS = 120_000

export interface JobWorkflowModel {
  id: string
  kind: WorkType
  /** Of the workflow, agent or task; of a map-reduce, its file. */
  name: string
  /** A graph that was given whole, and need not be registered. */
  definition?: WorkflowModel
  /** Of a map-reduce: what was made of its file by the process that runs it. */
  outline?: MapreduceOutline
  input?: unknown
  dependsOn: string[]
  runIf: RunIf
}

export interface JobModel {
  format: number
  name?: string
  /** The whole job, waiting in queues included; none unless set. */
  timeoutMs: number | null
  /** `null`: never. */
  stuckAfterMs: number | null
  failFast: boolean
  warnAt?: number
  workflows: JobWorkflowModel[]
}

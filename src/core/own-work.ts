/** Agents and tasks that are Curfew's own: what runs graphs and jobs, and the actions that need no code of a user. */
import type { IdPrefix } from './id.ts'

export const WORKFLOW = '$workflow'
export const JOB = '$job'
export const HTTP_REQUEST = '$http_request'
export const SHELL = '$shell'

/** The queue of one run, whose tasks only the process that runs it takes. */
export function mapreduceQueue(jobId: string): string {
  return `${MAPREDUCE_QUEUE}:${jobId}`
}

const MAPREDUCE_QUEUE = 'mapreduce'

export function isMapreduce({ queue }: { queue: string }): boolean {
  return queue.startsWith(`${MAPREDUCE_QUEUE}:`)
}

/** As it is counted: a label for every run would grow without end. */
export function queueLabel(queue: string): string {
  return isMapreduce({ queue }) ? MAPREDUCE_QUEUE : queue
}

/** Environment variables by which the processes of attempts are known. */
export const MARKS = {
  node: 'CURFEW_NODE',
  attempt: 'CURFEW_ATTEMPT',
  taskProcess: 'CURFEW_TASK_PROCESS',
} as const

export const WORK_KINDS = ['task', 'agent', 'workflow', 'job'] as const
export type WorkKind = (typeof WORK_KINDS)[number]

/** What a user calls it. */
export function workKind(row: { kind: 'task' | 'agent'; name: string }): WorkKind {
  if (row.name === WORKFLOW) return 'workflow'
  return row.name === JOB ? 'job' : row.kind
}

/** The name of a workflow or job is its definition's, which stands with its policy; the title is its place. */
export function workName({
  name,
  title,
  policy,
}: {
  name: string
  title: string | null
  policy: string
}): string {
  if (name !== WORKFLOW && name !== JOB) return name
  try {
    return (JSON.parse(policy) as { label?: string }).label ?? title ?? name
  } catch {
    return title ?? name // a damaged record is shown too
  }
}

/** Of a command or request of a node: what a user calls its kind, as its name is ours. */
export function actionKind(name: string): string | null {
  return name === SHELL || name === HTTP_REQUEST ? name.slice(1) : null
}

/** Which limit the timeout of an agent is; a task's is its total. */
export function ownLimit(row: {
  kind: 'task' | 'agent'
  name: string
}): 'agent' | 'workflow' | 'job' | 'total' {
  const kind = workKind(row)
  return kind === 'task' ? 'total' : kind
}

const PREFIXES = { task: 't', agent: 'g', workflow: 'w', job: 'j' } as const satisfies Record<
  WorkKind,
  IdPrefix
>

export function idPrefix(work: { kind: 'task' | 'agent'; name: string }): IdPrefix {
  return PREFIXES[workKind(work)]
}

/** Whether this is the id of a run of a workflow or job: Curfew's own agents drive it. */
export function isOwnRun(id: string): boolean {
  return id.startsWith(`${PREFIXES.workflow}_`) || id.startsWith(`${PREFIXES.job}_`)
}

/** Keys are unique per name, and all runs have one of two names: those of each definition are told apart. */
export function runKey(title: string, key: string): string {
  return `${title.length}:${title}:${key}`
}

/** As its caller wrote it. */
export function callersKey(title: string | null, key: string | null): string | null {
  return title === null ? key : (key?.slice(runKey(title, '').length) ?? null)
}

/** What makes two calls with one key the same: of a run what it was given, whatever its definition is by now. */
export function comparedInput(name: string, input: string): unknown {
  const value = JSON.parse(input) as never
  if (name === WORKFLOW) return (value as { input: unknown }).input
  if (name !== JOB) return value
  const { workflows } = (value as { model: { workflows: { id: string; input?: unknown }[] } }).model
  return workflows.map(({ id, input: own }) => [id, own])
}

/** What a replay has to ask for again: of a run its workflow and input; its definition is what was stored. */
export function matchedInput(name: string, input: string): string {
  if (name !== WORKFLOW) return input
  const { model, input: own } = JSON.parse(input) as { model: { name: string }; input: unknown }
  return JSON.stringify([model.name, own])
}

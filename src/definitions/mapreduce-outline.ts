/**
 * What a job keeps of a map-reduce among its workflows: enough for the graph of its run and the options of its tasks.
 * What its commands need is in the folder of the run, on the machine that runs it. Made by whoever runs the job, from
 * the file that the job names; in a text it stands where that name was.
 */
import { MAX_CONCURRENCY, MAX_RETRIES } from '../core/limits.ts'
import type { Field } from './definition-field.ts'
import { maxAttempts } from './mapreduce-limits.ts'
import type { MapreduceModel, Phase } from './mapreduce-model.ts'
import { PHASES } from './mapreduce-model.ts'

/** What its graph is made of. */
export interface MapreduceShape {
  name: string
  timeoutMs: number | null
  /** Those that have steps. */
  phases: Phase[]
  maxParallel: number
}

export interface MapreduceOutline extends MapreduceShape {
  /** Of its run: made before it, as its folder and its queue are named by it. */
  runId: string
  /** Where it came from, and the folder of its run: for people. */
  file: string | null
  folder: string
  graceMs: number
  /** Of one item, the first among them. */
  attempts: number
}

export function shapeOf(model: MapreduceModel): MapreduceShape {
  const { name, timeoutMs, map } = model
  const phases = PHASES.filter((phase) => phase === 'map' || model[phase].steps.length > 0)
  return { name, timeoutMs, phases, maxParallel: map.maxParallel }
}

export function outlineOf(
  model: MapreduceModel,
  run: Pick<MapreduceOutline, 'runId' | 'file' | 'folder'>,
): MapreduceOutline {
  return { ...run, ...shapeOf(model), graceMs: model.map.graceMs, attempts: maxAttempts(model.map) }
}

/** As a text of a job spells it. */
export function outlineValue(outline: MapreduceOutline): Record<string, unknown> {
  const { runId, timeoutMs, maxParallel, graceMs, ...rest } = outline
  return {
    ...{ run_id: runId, timeout_ms: timeoutMs, max_parallel: maxParallel, grace_ms: graceMs },
    ...rest,
  }
}

export function readOutline(field: Field): MapreduceOutline | null {
  const fields = field.object()
  const runId = fields?.get('runId')
  if (!fields || !runId) {
    const suggestion = 'It stands in a file of its own, which curfew run runs alone too.'
    return field.expected('the name of a file', suggestion)
  }
  const before = field.source.problems.length
  const file = fields.required('file')
  const folder = fields.required('folder')
  const phases = fields.required('phases')?.list(PHASES.length) ?? []
  if (!isRunId(runId.value)) runId.expected('the id of a run')
  const outline = {
    runId: runId.value,
    name: fields.required('name')?.name(),
    file: file?.value === null ? null : file?.text(),
    folder: folder?.text(),
    timeoutMs: fields.duration('timeout', { none: true }),
    phases: phases.map((phase) => phase.oneOf(PHASES)),
    maxParallel: fields.required('maxParallel')?.whole(1, MAX_CONCURRENCY),
    graceMs: fields.duration('grace', { zero: true }),
    attempts: fields.required('attempts')?.whole(1, MAX_RETRIES + 1),
  }
  fields.end()
  if (field.source.problems.length > before) return null
  if (outline.timeoutMs !== undefined && outline.graceMs !== undefined) return outline as MapreduceOutline
  field.problem('missing_key', 'its timeout or its grace is missing')
  return null
}

export function isRunId(value: unknown): value is string {
  return typeof value === 'string' && /^w_[0-9a-z]{26}$/.test(value)
}

/** What the `input` of a map-reduce in a job may say. */
export interface MapreduceInput {
  /** What `${params.NAME}` and `${args}` stand for. */
  params: Record<string, string>
  args: unknown
  worktrees: boolean
}

export function readMapreduceInput(field: Field): void {
  const fields = field.object()
  if (!fields) return
  for (const [name, param] of fields.get('params')?.object()?.entries(Infinity) ?? []) {
    if (!/^[\w-]+$/.test(name)) param.problem('invalid_name', `'${name}' cannot be the name of a parameter`)
    param.text()
  }
  fields.get('args')
  fields.get('worktrees')?.flag()
  fields.end()
}

/** Of one that was read. */
export function mapreduceInput(input: unknown): MapreduceInput {
  return { params: {}, args: '', worktrees: true, ...(input as Partial<MapreduceInput> | null | undefined) }
}

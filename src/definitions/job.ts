/** What users write to define a job: workflows that depend on each other, under one timeout. */
import type { Duration } from '../core/duration.ts'
import type { UsedDefinitions } from './action-reader.ts'
import type { AgentDefinition } from './agent.ts'
import type { Field } from './definition-field.ts'
import { DefinitionSource, objectField, textField } from './definition-field.ts'
import type { JobModel, RunIf } from './job-model.ts'
import { readJob } from './job-reader.ts'
import { placesOf } from './places.ts'
import type { Problem } from './problem.ts'
import { byPlace, DefinitionError, hasErrors } from './problem.ts'
import type { TaskDefinition } from './task.ts'
import type { LoadOptions, WorkflowDefinition } from './workflow.ts'
import { contentHash } from './workflow-model.ts'
import type { Registry } from './workflow-names.ts'
import { checkName } from './workflow-names.ts'

// biome-ignore lint/suspicious/noExplicitAny: its input stands beside it, as data
type Any = any

type WorkOptions =
  | {
      workflow: WorkflowDefinition<Any, Any> | string
      agent?: undefined
      mapreduce?: undefined
      task?: undefined
    }
  | {
      agent: AgentDefinition<Any, Any> | string
      workflow?: undefined
      mapreduce?: undefined
      task?: undefined
    }
  | { mapreduce: string; workflow?: undefined; agent?: undefined; task?: undefined }
  | {
      task: TaskDefinition<Any, Any> | string
      workflow?: undefined
      agent?: undefined
      mapreduce?: undefined
    }

export type JobWorkflowOptions<Id extends string = string> = WorkOptions & {
  id: Id
  input?: unknown
  dependsOn?: NoInfer<Id> | readonly NoInfer<Id>[]
  /** Default: completed. */
  runIf?: RunIf
}

export interface JobOptions<Id extends string = string> {
  name?: string
  /** From the submit to the end; none unless set. */
  timeout?: Duration | null
  /** Without any sign of life of what runs; default 2 minutes, `null`: never. */
  stuckAfter?: Duration | null
  /** Stops the others when one ends badly. */
  failFast?: boolean
  warnAt?: number
  workflows: readonly JobWorkflowOptions<Id>[]
}

export interface JobDefinition {
  readonly kind: 'job'
  /** Plain data, stored with the job. */
  readonly model: JobModel
  readonly hash: string
  readonly uses: Readonly<UsedDefinitions>
  readonly warnings: readonly Problem[]
}

export interface CheckedJob {
  /** Null when a problem is an error. */
  definition: JobDefinition | null
  problems: readonly Problem[]
}

/** Throws a `DefinitionError` that lists every problem. */
export function job<const Id extends string>(definition: JobOptions<Id>): JobDefinition {
  const name = typeof definition?.name === 'string' ? `job ${definition.name}` : 'the job'
  return orThrow(name, finish(objectField(definition), {}))
}

/** A job from YAML or JSON. Throws a `DefinitionError` that lists every problem with its line. */
export function loadJob(text: string, options: LoadOptions = {}): JobDefinition {
  return orThrow(options.file ?? 'the job', validateJob(text, options))
}

export function validateJob(text: string, options: LoadOptions = {}): CheckedJob {
  const field = textField(text, options.file ?? null)
  if (field instanceof DefinitionSource) return { definition: null, problems: byPlace(field.problems) }
  return finish(field, options.registry ?? {})
}

/** A single workflow, agent or task as a job of one. */
export function jobOf(
  work: WorkflowDefinition<Any, Any> | AgentDefinition<Any, Any> | TaskDefinition<Any, Any>,
  input?: unknown,
): JobDefinition {
  return job({
    name: work.name,
    workflows: [{ id: work.name, [work.kind]: work, input } as unknown as JobWorkflowOptions],
  })
}

/** What its workflows name and nobody knows. Graphs that were given whole are not looked into. */
export function validateJobNames(model: JobModel, registry: Registry): Problem[] {
  const places = placesOf(model)
  const { problems } = places.root.source
  const before = problems.length
  for (const workflow of model.workflows) {
    const { kind, name, definition } = workflow
    if (kind === 'mapreduce' || definition) continue
    checkName(places.of(workflow).at(kind), kind, name, registry[`${kind}s`])
  }
  return problems.splice(before)
}

function finish(field: Field, registry: Registry): CheckedJob {
  const draft = readJob(field, registry)
  const problems = byPlace(field.source.problems)
  if (!draft || hasErrors(problems)) return { definition: null, problems }
  const { model, uses } = draft
  return {
    definition: { kind: 'job', model, hash: contentHash(model), uses, warnings: problems },
    problems,
  }
}

function orThrow(what: string, { definition, problems }: CheckedJob): JobDefinition {
  if (!definition) throw new DefinitionError(what, problems)
  return definition
}

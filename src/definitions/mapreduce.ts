/** What users write to define a map-reduce: YAML or JSON text. */
import { DefinitionSource, textField } from './definition-field.ts'
import { checkMapreduce } from './mapreduce-check.ts'
import type { MapreduceModel } from './mapreduce-model.ts'
import { readMapreduce } from './mapreduce-reader.ts'
import type { Problem } from './problem.ts'
import { byPlace, DefinitionError, hasErrors } from './problem.ts'
import { asTimeoutProblem } from './timeout-config-reader.ts'
import { contentHash } from './workflow-model.ts'

export interface LoadMapreduceOptions {
  /** Stands in problems. */
  file?: string
  /** The environment: for numbers written as `$NAME`, and to tell which variables there are. */
  env?: Readonly<Record<string, string | undefined>>
  /** What `${params.name}` stands for; without it any name is taken to be there. */
  params?: Readonly<Record<string, string>>
}

export interface MapreduceDefinition {
  readonly kind: 'mapreduce'
  readonly name: string
  /** Plain data, stored with each run. */
  readonly model: MapreduceModel
  /** Of the model. */
  readonly hash: string
  readonly warnings: readonly Problem[]
}

export interface CheckedMapreduce {
  /** Null when a problem is an error. */
  definition: MapreduceDefinition | null
  problems: readonly Problem[]
}

/** Throws a `DefinitionError` that lists every problem with its line. */
export function loadMapreduce(text: string, options: LoadMapreduceOptions = {}): MapreduceDefinition {
  const { definition, problems } = validateMapreduce(text, options)
  if (!definition) throw new DefinitionError(options.file ?? 'the map-reduce', problems)
  return definition
}

/** The same without an exception: for programs that show problems. */
export function validateMapreduce(text: string, options: LoadMapreduceOptions = {}): CheckedMapreduce {
  const field = textField(text, options.file ?? null)
  if (field instanceof DefinitionSource) return { definition: null, problems: byPlace(field.problems) }
  const draft = readMapreduce(field, options.env ?? {})
  if (draft) checkMapreduce(draft.model, draft.places, options)
  const problems = byPlace(field.source.problems).map(asTimeoutProblem)
  if (!draft || hasErrors(problems)) return { definition: null, problems }
  const { model } = draft
  return {
    definition: { kind: 'mapreduce', name: model.name, model, hash: contentHash(model), warnings: problems },
    problems,
  }
}

/** Reads a map-reduce into its model, gathering every problem of form on the way. What it means is checked later. */
import { MAX_BRANCHES, MAX_CONCURRENCY, MAX_DEFINITION_TOKENS, MAX_MAPPING_KEYS } from '../core/limits.ts'
import type { Field, Fields } from './definition-field.ts'
import { readExpression, readJson } from './mapping-reader.ts'
import type { ErrorPolicyModel, InputModel, MapModel, MapreduceModel, SortKey } from './mapreduce-model.ts'
import { DEFAULT_MAX_PARALLEL, MAPREDUCE_FORMAT, SHELL_TYPE } from './mapreduce-model.ts'
import { MapreduceValues, readChoice } from './mapreduce-values.ts'
import { Places } from './places.ts'
import type { StepReading } from './step-reader.ts'
import { readEnvironment, readPhase, readRunners, readSecrets, readSteps, readText } from './step-reader.ts'
import { isTemplateFault, readReference } from './template-path.ts'
import { readTimeouts } from './timeout-config-reader.ts'

export interface MapreduceDraft {
  model: MapreduceModel
  places: Places
}

/** `environment`: where numbers that are named are looked up, after the file's own `env`. */
export function readMapreduce(
  field: Field,
  environment: Readonly<Record<string, string | undefined>>,
): MapreduceDraft | null {
  const fields = field.object()
  if (!fields) return null
  const places = new Places(field)
  const name = fields.required('name')?.name() ?? ''
  const mode = fields.get('mode')
  // The seed's own name is one word; in the spelling of its enums it is two.
  if (mode && mode.value !== 'MapReduce') readChoice(mode, ['mapreduce'])
  const envField = fields.get('env')
  const env = envField ? readEnvironment(envField) : {}
  const values = new MapreduceValues(env, environment)
  const runners = readRunners(fields.get('runners'))
  const types = [SHELL_TYPE, ...Object.keys(runners)]
  const reading: StepReading = { values, places, types }
  const model: MapreduceModel = {
    format: MAPREDUCE_FORMAT,
    name,
    timeoutMs: values.duration(fields, 'timeout') ?? null,
    env,
    secrets: readSecrets(fields.get('secrets')),
    setup: readPhase(fields.get('setup'), reading),
    map: readMap(fields, reading),
    reduce: readPhase(fields.get('reduce'), reading),
    merge: readPhase(fields.get('merge'), reading),
    errorPolicy: readErrorPolicy(fields.get('errorPolicy'), values),
    runners,
  }
  fields.end(
    Object.fromEntries(
      ['agentTimeout', 'agentTemplate', 'input', 'jsonPath', 'maxParallel', 'timeoutConfig'].map((key) => [
        field.source.spell(key),
        "'map'",
      ]),
    ),
  )
  return { model, places }
}

function readMap(outer: Fields, reading: StepReading): MapModel {
  const { values, types } = reading
  const fields = outer.required('map', 'What to do with each item: { input, agent_template }.')?.object()
  const inputField = fields?.required('input', 'A file, { command } or { items }.')
  const pathField = fields?.get('jsonPath')
  const filterField = fields?.get('filter')
  const sortField = fields?.get('sortBy')
  const templateField = fields?.required('agentTemplate', 'The steps that are run for each item.')
  const model: MapModel = {
    input: (inputField && readInput(inputField, values)) ?? { kind: 'items', items: [] },
    jsonPath: (pathField && readText(pathField)) ?? null,
    filter: (filterField && readExpression(filterField)) ?? null,
    sortBy: sortField ? readSortKeys(sortField) : [],
    offset: values.whole(fields?.get('offset') ?? null, 0, Number.MAX_SAFE_INTEGER) ?? 0,
    maxItems: values.whole(fields?.get('maxItems') ?? null, 1, MAX_BRANCHES),
    maxParallel: values.whole(fields?.get('maxParallel') ?? null, 1, MAX_CONCURRENCY) ?? DEFAULT_MAX_PARALLEL,
    ...readTimeouts(fields ?? outer, values, types),
    template: templateField ? readSteps(templateField, reading) : [],
  }
  if (templateField && Array.isArray(templateField.value) && templateField.value.length === 0)
    templateField.problem('no_steps', 'a map needs at least one step')
  fields?.end({
    [outer.field.source.spell('commandTimeouts')]: "'timeout_config'",
    reduce: 'the file, beside map',
  })
  return model
}

function readInput(field: Field, values: MapreduceValues): InputModel | null {
  if (typeof field.value !== 'object') {
    const file = readText(field)
    return file === null ? null : { kind: 'file', file }
  }
  if (Array.isArray(field.value)) {
    field.problem('invalid_value', 'must be a file, { command } or { items }', {
      suggestion: 'Write { items: […] }.',
    })
    return null
  }
  const fields = field.object()
  if (!fields) return null
  const given = (['file', 'command', 'items'] as const).flatMap((kind) => {
    const entry = fields.get(kind)
    return entry ? [{ kind, entry }] : []
  })
  const [first, second] = given
  const timeoutMs = first?.kind === 'command' ? (values.duration(fields, 'timeout') ?? null) : null
  fields.end()
  if (!first || second) {
    const got = first ? given.map(({ kind }) => kind).join(' and ') : 'none'
    field.problem('invalid_value', `needs exactly one of file, command, items, got ${got}`)
    return null
  }
  const { kind, entry } = first
  if (kind === 'items') {
    const items = entry.list(MAX_DEFINITION_TOKENS) ? readJson(entry) : undefined
    return items === undefined ? null : { kind, items: items as unknown[] }
  }
  const text = readText(entry)
  if (text === null) return null
  return kind === 'file' ? { kind, file: text } : { kind, command: text, timeoutMs }
}

/** `priority desc, name`, `-priority`, or a list of such. */
function readSortKeys(field: Field): SortKey[] {
  const entries = Array.isArray(field.value) ? (field.list(MAX_MAPPING_KEYS) ?? []) : [field]
  return entries.flatMap((entry) => {
    const text = readText(entry)
    return (text?.split(',') ?? []).flatMap((part) => {
      const key = parseSortKey(part)
      if (!key) {
        const suggestion = "Write a path into the item: 'priority', 'owner.name desc' or '-priority'."
        entry.problem('invalid_path', `'${part.trim()}' is no path to sort by`, { suggestion })
      }
      return key ?? []
    })
  })
}

function parseSortKey(text: string): SortKey | null {
  const found = /^\s*(-?)(?:item(?=[.[\s]|$)\.?)?(.*?)(?:\s+(asc|desc))?\s*$/i.exec(text)
  if (!found) return null
  const [, minus, written = '', order] = found
  const isDescending = order?.toLowerCase() === 'desc'
  if (text.trim() === '' || (minus === '-' && order !== undefined)) return null
  const dotted = written === '' || written.startsWith('[') ? written : `.${written}`
  const reference = `\${item${dotted}}`
  const parsed = readReference(reference, 0)
  if (isTemplateFault(parsed) || parsed.end !== reference.length) return null
  const [, ...path] = parsed.path
  return { path, isDescending: isDescending || minus === '-' }
}

/** `on_failure: stop` alone stops at the first item that fails. */
function readErrorPolicy(field: Field | null, values: MapreduceValues): ErrorPolicyModel {
  const fields = field?.object()
  if (!fields) return { maxFailures: null, failureRate: null, onFailure: 'continue' }
  const maxFailures = values.whole(fields.get('maxFailures'), 1, MAX_BRANCHES)
  const failureRate = values.between(fields.get('failureRate'), 0, 1)
  const choice = fields.get('onFailure')
  const onFailure = choice && readChoice(choice, ['stop', 'continue'])
  fields.end()
  const isBounded = maxFailures !== null || failureRate !== null
  return {
    maxFailures: !isBounded && onFailure === 'stop' ? 1 : maxFailures,
    failureRate,
    onFailure: onFailure ?? (isBounded ? 'stop' : 'continue'),
  }
}

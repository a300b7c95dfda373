/** Reads the steps of a map-reduce, and what stands around any command: environment, runners. */
import type { Backoff } from '../core/backoff.ts'
import { DEFAULT_BACKOFF } from '../core/backoff.ts'
import { MAX_COMMAND_TEXT, MAX_MAPPING_KEYS, MAX_RETRIES, MAX_STEPS_OF_PHASE } from '../core/limits.ts'
import { MARKS } from '../core/own-work.ts'
import type { DefinitionSource, Field, Fields } from './definition-field.ts'
import { readExpression } from './mapping-reader.ts'
import type { PhaseModel, StepModel } from './mapreduce-model.ts'
import { DEFAULT_RUNNERS, SHELL_TYPE } from './mapreduce-model.ts'
import type { MapreduceValues } from './mapreduce-values.ts'
import type { Places } from './places.ts'
import { nearest } from './problem.ts'

/** No runner can have the name of one. */
const STEP_KEYS = [
  'timeout',
  'retry',
  'when',
  'env',
  'workingDir',
  'capture',
  'onFailure',
  'onSuccess',
  'commitRequired',
]
const NAME = /^[A-Za-z_][A-Za-z0-9_]*$/

export interface StepReading {
  values: MapreduceValues
  places: Places
  /** What may run a step. */
  types: readonly string[]
}

/** A list of steps, or `{ timeout, commands }`. */
export function readPhase(field: Field | null, reading: StepReading): PhaseModel {
  if (!field) return { timeoutMs: null, steps: [] }
  if (Array.isArray(field.value)) return { timeoutMs: null, steps: readSteps(field, reading) }
  if (typeof field.value !== 'object' || field.value === null) {
    field.expected('a list of steps, or { timeout, commands }')
    return { timeoutMs: null, steps: [] }
  }
  const fields = field.object()!
  const timeoutMs = reading.values.duration(fields, 'timeout') ?? null
  const commands = fields.required('commands', 'A list of steps.')
  const steps = commands ? readSteps(commands, reading) : []
  fields.end(Object.fromEntries(reading.types.map((type) => [type, "a step: 'commands' is a list of them"])))
  return { timeoutMs, steps }
}

export function readSteps(field: Field, reading: StepReading): StepModel[] {
  const list = field.list(MAX_STEPS_OF_PHASE) ?? []
  return list.flatMap((entry) => readStep(entry, reading, true) ?? [])
}

function readStep(field: Field, reading: StepReading, mayHandle: boolean): StepModel | null {
  if (typeof field.value === 'string') return field.expected('an object', 'Write shell: in front of it.')
  const fields = field.object()
  if (!fields) return null
  const { values, places } = reading
  const command = readCommand(fields, reading)
  const timeoutMs = values.duration(fields, 'timeout')
  const retry = readRetry(fields.get('retry'), values)
  const whenField = fields.get('when')
  const envField = fields.get('env')
  const dirField = fields.get('workingDir')
  const captureField = fields.get('capture')
  const step: StepModel = {
    type: command?.type ?? SHELL_TYPE,
    text: command?.text ?? '',
    ...(timeoutMs !== undefined && { timeoutMs }),
    ...retry,
    when: whenField && readExpression(whenField),
    env: envField ? readEnvironment(envField) : {},
    workingDir: dirField && readText(dirField),
    capture: captureField && readCapture(captureField),
    onFailure: readHandlers(fields.get('onFailure'), reading, mayHandle),
    onSuccess: readHandlers(fields.get('onSuccess'), reading, mayHandle),
    commitRequired: fields.get('commitRequired')?.flag() ?? false,
  }
  fields.end()
  places.set(step, field)
  // One that cannot be run is told above; those behind it may need its place and what it captures.
  return step
}

/** The one key that says what runs it. */
function readCommand(fields: Fields, { types }: StepReading): { type: string; text: string } | null {
  const given = types.flatMap((type) => {
    const field = fields.get(type)
    return field ? [{ type, field }] : []
  })
  const [first, second] = given
  if (first && !second) {
    const text = readText(first.field)
    return text === null ? null : { type: first.type, text }
  }
  // A word beside one of them is told as the unknown key that it is.
  const isMisspelt = Object.keys(fields.field.value as object).some((key) => nearest(key, types) !== null)
  if (first || !isMisspelt) {
    const got = first ? given.map(({ type }) => type).join(' and ') : 'none'
    const message = `needs exactly one of ${types.join(', ')}, got ${got}`
    fields.field.problem('invalid_value', message, {
      suggestion: first ? 'Make a step of each.' : 'Another program is named in runners.',
    })
  }
  return null
}

/** `retry: 2`, or `{ retries, backoff: { initial, factor, max, jitter } }`. */
function readRetry(field: Field | null, values: MapreduceValues): { retries: number; backoff: Backoff } {
  const none = { retries: 0, backoff: DEFAULT_BACKOFF }
  if (!field) return none
  if (typeof field.value !== 'object' || field.value === null)
    return { ...none, retries: values.whole(field, 0, MAX_RETRIES) ?? 0 }
  const fields = field.object()
  if (!fields) return none
  const retries = values.whole(fields.required('retries'), 0, MAX_RETRIES) ?? 0
  const backoffFields = fields.get('backoff')?.object()
  fields.end()
  if (!backoffFields) return { ...none, retries }
  const initialMs = values.duration(backoffFields, 'initial', { zero: true }) ?? DEFAULT_BACKOFF.initialMs
  const maxMs =
    values.duration(backoffFields, 'max', { zero: true }) ?? Math.max(DEFAULT_BACKOFF.maxMs, initialMs)
  if (maxMs < initialMs) backoffFields.field.problem('invalid_value', 'max is shorter than initial')
  const factor = values.between(backoffFields.get('factor'), 1, 100) ?? DEFAULT_BACKOFF.factor
  const jitter = values.between(backoffFields.get('jitter'), 0, 1) ?? DEFAULT_BACKOFF.jitter
  backoffFields.end()
  return { retries, backoff: { initialMs, factor, maxMs, jitter } }
}

/** One step, or a list of them. */
function readHandlers(field: Field | null, reading: StepReading, mayHandle: boolean): StepModel[] {
  if (!field) return []
  if (!mayHandle) {
    field.problem('invalid_value', 'a handler has no handlers of its own', { atKey: true })
    return []
  }
  const entries = Array.isArray(field.value) ? (field.list(MAX_STEPS_OF_PHASE) ?? []) : [field]
  return entries.flatMap((entry) => readStep(entry, reading, false) ?? [])
}

function readCapture(field: Field): string | null {
  const name = field.name()
  if (name === null || NAME.test(name)) return name
  return field.expected('a name of letters, digits and _')
}

/** Not empty, no NUL, not long. */
export function readText(field: Field): string | null {
  const text = field.text()
  if (text === null) return null
  if (text.trim() === '' || text.includes('\u0000')) return field.expected('a text that is not empty')
  if (text.length <= MAX_COMMAND_TEXT) return text
  field.problem('too_big', `has ${text.length} characters; at most ${MAX_COMMAND_TEXT} are allowed`, {
    suggestion: 'Put it into a file, and run that.',
  })
  return null
}

/** Templates by name. Numbers and flags are texts here. */
export function readEnvironment(field: Field): Record<string, string> {
  const env: Record<string, string> = {}
  for (const [name, entry] of field.object()?.entries(MAX_MAPPING_KEYS) ?? []) {
    checkVariableName(entry, name)
    const { value } = entry
    if (typeof value === 'number' || typeof value === 'boolean') env[name] = String(value)
    else if (value === '') env[name] = ''
    else {
      const text = readText(entry)
      if (text !== null) env[name] = text
    }
  }
  return env
}

function checkVariableName(field: Field, name: string): void {
  const problem = (message: string) => field.problem('invalid_name', message, { atKey: true })
  if (!NAME.test(name)) problem('is not the name of an environment variable')
  else if (Object.values<string>(MARKS).includes(name)) problem("is a variable of Curfew's own")
}

/** Names alone: what stands in a file is no secret. */
export function readSecrets(field: Field | null): string[] {
  if (!field) return []
  if (!Array.isArray(field.value)) {
    field.expected(
      'a list of names',
      'Names of environment variables; their values are masked, and not stored.',
    )
    return []
  }
  const names = (field.list(MAX_MAPPING_KEYS) ?? []).flatMap((entry) => {
    const name = entry.name()
    if (name !== null && !NAME.test(name)) entry.expected('the name of an environment variable')
    return name ?? []
  })
  return [...new Set(names)]
}

export function readRunners(field: Field | null): Record<string, string[]> {
  const runners: Record<string, string[]> = { ...DEFAULT_RUNNERS }
  for (const [name, entry] of field?.object()?.entries(MAX_MAPPING_KEYS) ?? []) {
    const wrong = wrongRunnerName(name, entry.source)
    if (wrong !== null) {
      entry.problem('invalid_name', wrong, { atKey: true, suggestion: 'Give the runner another name.' })
      continue
    }
    const list = entry.list(MAX_MAPPING_KEYS)
    if (!list) continue
    const argv = list.map((part) => (part.value === '' ? '' : (readText(part) ?? '')))
    if (argv.length === 0) entry.expected('a program and its arguments')
    else if (list[0]!.value === '') list[0]!.expected('the name of a program')
    runners[name] = argv
  }
  return runners
}

function wrongRunnerName(name: string, source: DefinitionSource): string | null {
  if (!/^[A-Za-z][\w-]*$/.test(name)) return 'must be a name of letters, digits, _ and -'
  if (name === SHELL_TYPE) return 'cannot be replaced'
  if (STEP_KEYS.some((key) => source.spell(key) === name)) return 'is a key of every step'
  // In `command_timeouts` it would be one command of a type.
  return /_\d+$/.test(name) ? 'cannot end with a number behind _' : null
}

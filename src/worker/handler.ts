/** One handler run, from the input's text to an end that can be stored: the same inline and in a process. */
import { CurfewError } from '../core/errors.ts'
import type { Failure } from '../core/failure.ts'
import { failureOf, isThrown } from '../core/failure.ts'
import { decodeJson, encodeJson } from '../core/json.ts'
import { parseInput } from '../definitions/input-schema.ts'
import type { TaskDefinition } from '../definitions/task.ts'
import type { Assignment } from '../wire/worker-port.ts'
import type { AttemptEnd } from './attempt.ts'
import type { OpenTaskContext } from './task-context.ts'

/** Never rejects. A handler that was told to stop before it began is not begun. */
export async function runHandler(
  definition: TaskDefinition,
  assignment: Assignment,
  open: OpenTaskContext,
): Promise<AttemptEnd> {
  let input: unknown
  try {
    input = decodeJson(assignment.input)
  } catch (thrown) {
    return failed(thrown, { code: 'invalid_input', retryable: false })
  }
  if (definition.schema) {
    try {
      input = await parseInput(definition.kind, definition.name, definition.schema, input)
    } catch (thrown) {
      // The schema's own code may fail for a passing reason; an input that does not fit never will.
      const invalid = isThrown(thrown, CurfewError) && thrown.code === 'invalid_input'
      return failed(thrown, invalid ? { retryable: false, details: thrown.fields.issues } : {})
    }
  }
  if (open.stopped) return failed(open.stopped)
  let output: unknown
  try {
    output = definition.run(input as never, open.context)
    // Waiting for what is there already costs as much as all the rest.
    if (isThenable(output)) output = await output
  } catch (thrown) {
    return failed(thrown)
  }
  try {
    return { type: 'completed', output: encodeJson(output, `output of task ${definition.name}`) }
  } catch (thrown) {
    return failed(thrown, { retryable: false })
  }
}

function isThenable(value: unknown): boolean {
  const isObject = (typeof value === 'object' && value !== null) || typeof value === 'function'
  return isObject && 'then' in value
}

function failed(thrown: unknown, over: Partial<Failure> = {}): AttemptEnd {
  return { type: 'failed', failure: { ...failureOf(thrown), ...over } }
}

/** An input against its schema: checked when it is scheduled, transformed again where it runs. */
import type { StandardSchemaV1 } from '@standard-schema/spec'
import { CurfewError } from '../core/errors.ts'

export async function parseInput(
  kind: 'task' | 'agent' | 'workflow',
  name: string,
  schema: StandardSchemaV1 | null,
  input: unknown,
): Promise<unknown> {
  if (!schema) return input
  return checkedValue(kind, name, await schema['~standard'].validate(input))
}

/** Where nothing may be awaited: a schema that answers later is asked again where the work runs. */
export function checkInputNow(
  kind: 'task' | 'agent' | 'workflow',
  name: string,
  schema: StandardSchemaV1,
  input: unknown,
): void {
  const result = schema['~standard'].validate(input)
  if (!(result instanceof Promise)) checkedValue(kind, name, result)
}

function checkedValue(kind: string, name: string, result: StandardSchemaV1.Result<unknown>): unknown {
  if (!result.issues) return result.value
  const issues = result.issues.map(({ path, message }) => ({ path: pathText(path), message }))
  throw new CurfewError(
    'invalid_input',
    `input of ${kind} ${name}: ${issues.map(({ path, message }) => (path ? `${path}: ${message}` : message)).join('; ')}`,
    { fields: { issues, retryable: false } },
  )
}

function pathText(path: StandardSchemaV1.Issue['path']): string {
  return (path ?? []).map((part) => String(typeof part === 'object' ? part.key : part)).join('.')
}

/** Definitions in files: read, told apart, and checked. */
import { readFile } from 'node:fs/promises'
import path from 'node:path'
import { CurfewError } from '../core/errors.ts'
import { definitionKind } from '../definitions/definition-kind.ts'
import type { JobDefinition } from '../definitions/job.ts'
import { validateJob } from '../definitions/job.ts'
import type { Problem } from '../definitions/problem.ts'
import { DefinitionError } from '../definitions/problem.ts'
import type { WorkflowDefinition } from '../definitions/workflow.ts'
import { validateWorkflow } from '../definitions/workflow.ts'
import type { Registry } from '../definitions/workflow-names.ts'
import { usageError } from './exit-code.ts'
import type { Io } from './io.ts'

export interface CheckedFile {
  file: string
  text: string
  kind: 'workflow' | 'job'
  /** Null when a problem is an error. */
  definition: WorkflowDefinition | JobDefinition | null
  problems: readonly Problem[]
}

/** `registry`: the names it may refer to; without it every name is taken for known. */
export async function checkFile(io: Io, file: string, registry?: Registry): Promise<CheckedFile> {
  const text = await readTextFile(io, file)
  const kind = kindOf(file, text)
  const options = { file, ...(registry && { registry }) }
  const checked = kind === 'job' ? validateJob(text, options) : validateWorkflow(text, options)
  return { file, text, kind, ...checked }
}

export type ValidFile = CheckedFile & { definition: WorkflowDefinition | JobDefinition }

/** Throws what is wrong with it. */
export function definitionOf(checked: CheckedFile): ValidFile {
  const { file, definition, problems } = checked
  if (!definition) throw new DefinitionError(file, problems)
  return { ...checked, definition }
}

/** A job is stored as it stands in its file. */
export function refuseForJob(
  { kind, file }: CheckedFile,
  { input, timeout }: { input: string | undefined; timeout: string | undefined },
): void {
  if (kind !== 'job') return
  if (input !== undefined)
    throw usageError(`--input: ${file} is a job; the inputs of its workflows stand in it`)
  if (timeout !== undefined) throw usageError(`--timeout: ${file} is a job; its timeout stands in it`)
}

function kindOf(file: string, text: string): 'workflow' | 'job' {
  const kind = definitionKind(text)
  if (kind !== 'mapreduce') return kind
  throw new CurfewError('not_yet', `${file} is a map-reduce file: these cannot be run or checked yet`, {
    hint: 'A workflow with foreach and a join does the same for tasks, agents and shell commands.',
    fields: { file },
  })
}

export async function readTextFile(io: Io, file: string): Promise<string> {
  try {
    return await readFile(path.resolve(io.cwd, file), 'utf8')
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException
    const why = code === 'ENOENT' ? 'there is no such file' : code === 'EISDIR' ? 'it is a folder' : message
    throw new CurfewError('no_such_file', `${file} cannot be read: ${why}`, {
      fields: { file },
      cause: error,
    })
  }
}

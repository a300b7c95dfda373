/** Definitions in files: read, told apart, and checked. */
import { readFile } from 'node:fs/promises'
import path from 'node:path'
import { CurfewError } from '../core/errors.ts'
import type { DefinitionKind } from '../definitions/definition-kind.ts'
import { definitionKind } from '../definitions/definition-kind.ts'
import { parseText } from '../definitions/definition-text.ts'
import type { JobDefinition } from '../definitions/job.ts'
import { validateJob } from '../definitions/job.ts'
import type { MapreduceDefinition } from '../definitions/mapreduce.ts'
import { validateMapreduce } from '../definitions/mapreduce.ts'
import type { MapreduceOutline } from '../definitions/mapreduce-outline.ts'
import { outlineValue } from '../definitions/mapreduce-outline.ts'
import type { Problem } from '../definitions/problem.ts'
import { DefinitionError, hasErrors } from '../definitions/problem.ts'
import type { WorkflowDefinition } from '../definitions/workflow.ts'
import { validateWorkflow } from '../definitions/workflow.ts'
import type { Registry } from '../definitions/workflow-names.ts'
import type { MemberFile } from '../mapreduce/member-files.ts'
import { readMemberFiles } from '../mapreduce/member-files.ts'
import { usageError } from './exit-code.ts'
import type { Io } from './io.ts'

type GraphDefinition = WorkflowDefinition | JobDefinition

export interface CheckedFile {
  file: string
  text: string
  kind: DefinitionKind
  /** Null when a problem is an error. */
  definition: GraphDefinition | MapreduceDefinition | null
  problems: readonly Problem[]
  /** Of a job: the map-reduces among its workflows. */
  members: readonly MemberFile[]
}

export interface CheckOptions {
  /** The names it may refer to; without it every name is taken for known. */
  registry?: Registry | undefined
  /** Of a map-reduce; without them every `${params.name}` is taken for known. */
  params?: Readonly<Record<string, string>>
}

export async function checkFile(io: Io, file: string, options: CheckOptions = {}): Promise<CheckedFile> {
  return checkText(io, file, await readTextFile(io, file), options)
}

/** The environment matters to a map-reduce alone, whose numbers may stand there. */
export function checkText(
  io: Io,
  file: string,
  text: string,
  { registry, params }: CheckOptions = {},
): CheckedFile {
  const kind = definitionKind(text)
  if (kind === 'mapreduce') {
    const options = { file, env: io.env, ...(params && { params }) }
    return { file, text, kind, ...validateMapreduce(text, options), members: [] }
  }
  const options = { file, ...(registry && { registry }) }
  if (kind === 'workflow') return { file, text, kind, ...validateWorkflow(text, options), members: [] }
  const { definition, problems: own } = validateJob(text, options)
  if (!definition) return { file, text, kind, definition, problems: own, members: [] }
  const { members, problems: others } = readMemberFiles(definition.model, io)
  const problems = [...own, ...others]
  return { file, text, kind, definition: hasErrors(problems) ? null : definition, problems, members }
}

/** The text of a job, with what was made of the map-reduces that it names. */
export function textWithOutlines(
  { text }: CheckedFile,
  outline: (workflow: string) => MapreduceOutline | null,
): string {
  const job = parseText(text).root?.value as { workflows: { id: string }[] }
  const workflows = job.workflows.map((one) => {
    const made = outline(one.id)
    return made ? { ...one, mapreduce: outlineValue(made) } : one
  })
  return JSON.stringify({ ...job, workflows })
}

export type ValidFile = CheckedFile & { definition: GraphDefinition | MapreduceDefinition }
export type GraphFile = CheckedFile & { definition: GraphDefinition }
export type MapreduceFile = CheckedFile & { definition: MapreduceDefinition }

/** Throws what is wrong with it. */
export function definitionOf(checked: CheckedFile): ValidFile {
  const { file, definition, problems } = checked
  if (!definition) throw new DefinitionError(file, problems)
  return { ...checked, definition }
}

export function isMapreduceFile(valid: ValidFile): valid is MapreduceFile {
  return valid.definition.kind === 'mapreduce'
}

/** For what takes workflows and jobs alone. */
export function refuseMapreduce(valid: ValidFile, what: string): GraphFile {
  const { file, definition } = valid
  if (definition.kind !== 'mapreduce') return { ...valid, definition }
  throw new CurfewError('not_yet', `${file} is a map-reduce, which cannot be ${what}`, {
    hint: `curfew run ${file} runs it here; with --dry-run it prints what it would do.`,
    fields: { file },
  })
}

/** For what leaves a job to others: its commands would have nowhere to run. */
export function refuseMembers({ file, members: [first] }: CheckedFile, what: string): void {
  if (!first) return
  const message = `${file}: workflow ${first.id} is a map-reduce, and a job with one cannot be ${what}`
  throw new CurfewError('not_yet', message, {
    hint: `curfew run ${file} runs its commands here; with --manager URL it is led by that manager.`,
    fields: { file, workflow: first.id },
  })
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

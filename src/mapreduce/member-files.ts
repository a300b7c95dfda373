/** The files that a job names for the map-reduces among its workflows: read, and checked with what the job gives them. */
import { readFileSync } from 'node:fs'
import path from 'node:path'
import { definitionKind } from '../definitions/definition-kind.ts'
import type { JobModel, JobWorkflowModel } from '../definitions/job-model.ts'
import { validateMapreduce } from '../definitions/mapreduce.ts'
import type { MapreduceModel } from '../definitions/mapreduce-model.ts'
import type { MapreduceInput } from '../definitions/mapreduce-outline.ts'
import { mapreduceInput } from '../definitions/mapreduce-outline.ts'
import { placesOf } from '../definitions/places.ts'
import type { Problem } from '../definitions/problem.ts'

export interface MemberFile {
  /** Of the workflow in its job. */
  id: string
  file: string
  model: MapreduceModel
  input: MapreduceInput
  /** Others run before it, and may bring what it needs. */
  waits: boolean
}

export interface MemberFiles {
  members: MemberFile[]
  problems: Problem[]
}

/** A file is relative to that of the job; in a job without one, to the folder this process was started in. */
export function readMemberFiles(
  job: JobModel,
  { cwd, env }: { cwd: string; env: Readonly<Record<string, string | undefined>> },
): MemberFiles {
  const places = placesOf(job)
  const { source } = places.root
  const before = source.problems.length
  const members: MemberFile[] = []
  const others: Problem[] = []
  for (const workflow of job.workflows.filter(isFile)) {
    const { id, name } = workflow
    const file = path.join(path.dirname(source.file ?? ''), name)
    const place = places.of(workflow).at('mapreduce')
    const text = readText(path.isAbsolute(name) ? name : path.resolve(cwd, file))
    if ('why' in text) {
      place.problem('no_such_file', `${file} cannot be read: ${text.why}`)
      continue
    }
    const kind = definitionKind(text.text)
    if (kind !== 'mapreduce') {
      const suggestion = 'A map-reduce has mode: mapreduce.'
      place.problem('invalid_value', `${file} is no map-reduce but a ${kind}`, { suggestion })
      continue
    }
    const input = mapreduceInput(workflow.input)
    const { definition, problems } = validateMapreduce(text.text, { file, env, params: input.params })
    others.push(...problems)
    const waits = workflow.dependsOn.length > 0
    if (definition) members.push({ id, file, model: definition.model, input, waits })
  }
  return { members, problems: [...source.problems.splice(before), ...others] }
}

function isFile({ kind, outline }: JobWorkflowModel): boolean {
  return kind === 'mapreduce' && outline === undefined
}

function readText(file: string): { text: string } | { why: string } {
  try {
    return { text: readFileSync(file, 'utf8') }
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException
    return {
      why: code === 'ENOENT' ? 'there is no such file' : code === 'EISDIR' ? 'it is a folder' : message,
    }
  }
}

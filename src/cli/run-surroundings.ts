/** What a map-reduce would find around it: git, and the programs of its runners. Looks, and changes nothing. */
import { constants } from 'node:fs'
import { access, stat } from 'node:fs/promises'
import path from 'node:path'
import { stepsOf } from '../definitions/mapreduce-limits.ts'
import type { MapreduceModel, StepModel } from '../definitions/mapreduce-model.ts'
import { PHASES, SHELL_TYPE } from '../definitions/mapreduce-model.ts'
import type { TemplateValues } from '../definitions/step-template.ts'
import { Git } from '../mapreduce/git.ts'
import { findRepository } from '../mapreduce/repository.ts'
import type { Io } from './io.ts'
import { knownText } from './known-text.ts'

export interface FolderPlan {
  /** Items work in worktrees, or in plain folders that are empty. */
  kind: 'worktree' | 'plain'
  /** What worktrees begin from. */
  commit: string | null
  /** Why there are no worktrees. */
  note: string | null
}

/** Throws where there is a repository that cannot be worked with. */
export async function planFolders(
  { clock, env, cwd }: Pick<Io, 'clock' | 'env' | 'cwd'>,
  useGit: boolean,
): Promise<FolderPlan> {
  if (!useGit) return { kind: 'plain', commit: null, note: 'worktrees are off' }
  const found = await findRepository(new Git({ clock, env }), cwd)
  if (found.type === 'none') return { kind: 'plain', commit: null, note: found.why }
  return { kind: 'worktree', commit: found.head, note: null }
}

export interface ProgramPlan {
  /** Of the steps it runs. */
  type: string
  /** As it is written. */
  program: string
  path: string | null
  /** Null: that cannot be told before it runs. */
  isFound: boolean | null
}

/** Of the runners that some step needs. */
export async function planPrograms(
  cwd: string,
  model: MapreduceModel,
  values: TemplateValues,
): Promise<ProgramPlan[]> {
  const steps = PHASES.flatMap((phase) => stepsOf(model, phase).flatMap(withHandlers))
  const types = new Set(steps.map(({ type }) => type).filter((type) => type !== SHELL_TYPE))
  return Promise.all(
    Array.from(types, async (type) => {
      const program = model.runners[type]![0]!
      const name = knownText(program, values)
      // Where a step has folders or a PATH of its own, it is looked for elsewhere.
      const isPlain = steps.every((step) => step.type !== type || !Object.hasOwn(step.env, 'PATH'))
      const searched = knownText('${PATH}', values)
      if (name === null || (name.includes('/') && !path.isAbsolute(name)) || !isPlain || searched === null)
        return { type, program, path: null, isFound: null }
      const found = await findProgram(cwd, name, searched)
      return { type, program, path: found, isFound: found !== null }
    }),
  )
}

function withHandlers(step: StepModel): StepModel[] {
  return [step, ...step.onFailure, ...step.onSuccess]
}

async function findProgram(cwd: string, name: string, searched: string): Promise<string | null> {
  const folders = path.isAbsolute(name) ? [''] : searched.split(path.delimiter)
  for (const folder of folders) {
    const file = path.isAbsolute(name) ? name : path.resolve(cwd, folder, name)
    if (await isProgram(file)) return file
  }
  return null
}

async function isProgram(file: string): Promise<boolean> {
  try {
    await access(file, constants.X_OK)
    return (await stat(file)).isFile()
  } catch (error) {
    // Whatever hinders looking at it hinders running it.
    if (error instanceof Error && 'code' in error) return false
    throw error
  }
}

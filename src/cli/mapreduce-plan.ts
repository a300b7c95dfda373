/**
 * What a map-reduce would do, from its file and what lies around it: plain data, also what `--dry-run --json` prints.
 * A file of items is read; no command is run, also none that would list the items.
 */
import { readFile, stat } from 'node:fs/promises'
import path from 'node:path'
import { CurfewError } from '../core/errors.ts'
import { MAX_ITEMS_BYTES } from '../core/limits.ts'
import { parseItems, selectItems } from '../definitions/item-selection.ts'
import type { WorstCase } from '../definitions/mapreduce-limits.ts'
import { worstCase } from '../definitions/mapreduce-limits.ts'
import type { ErrorPolicyModel, MapreduceModel } from '../definitions/mapreduce-model.ts'
import type { TemplateValues } from '../definitions/step-template.ts'
import type { MapreduceFile } from './definition-file.ts'
import type { Io } from './io.ts'
import { knownText, knownValues } from './known-text.ts'
import type { LimitPlan } from './limit-plan.ts'
import { planLimits } from './limit-plan.ts'
import type { MapreduceValuesGiven } from './mapreduce-flags.ts'
import type { FolderPlan, ProgramPlan } from './run-surroundings.ts'
import { planFolders, planPrograms } from './run-surroundings.ts'

const NAMES_SHOWN = 10

export interface ItemPlan {
  from: 'file' | 'command' | 'items'
  /** The file or command as it is written. */
  source: string | null
  /** What `json_path` finds, what of it passes `filter`, and what is left of it. Null: not known. */
  found: number | null
  matched: number | null
  chosen: number | null
  /** The first of those that are chosen. */
  first: { id: string; name: string }[]
  /** Why they are not known, or what may change them. */
  note: string | null
  warnings: string[]
}

export interface MapreducePlan extends LimitPlan {
  items: ItemPlan
  maxParallel: number
  errorPolicy: ErrorPolicyModel
  /** Null where it would be refused. */
  folders: FolderPlan | null
  programs: ProgramPlan[]
  /** Reckoned with so many items; null: with one, since their number is not known. */
  worstCase: WorstCase & { items: number | null }
  /** Why it would not run to its end as things are. */
  obstacles: string[]
}

export async function planMapreduce(
  io: Io,
  checked: MapreduceFile,
  given: MapreduceValuesGiven,
  { useGit }: { useGit: boolean },
): Promise<MapreducePlan> {
  const { model } = checked.definition
  const values = knownValues(io, model, given)
  const { items, obstacle } = await planItems(io.cwd, model, values)
  const programs = await planPrograms(io.cwd, model, values)
  const missing = programs.flatMap(({ type, program, isFound }) =>
    isFound === false ? [`${program}, which runs ${type} steps, is not found on PATH`] : [],
  )
  const folders = await unlessRefused(planFolders(io, useGit))
  return {
    ...planLimits(checked),
    items,
    maxParallel: model.map.maxParallel,
    errorPolicy: model.errorPolicy,
    folders: folders.value,
    programs,
    worstCase: planWorstCase(model, items.chosen),
    obstacles: [obstacle, folders.obstacle, ...missing].filter((one) => one !== null),
  }
}

/** Before anything is begun: a program that is missing would be missed by every item. */
export async function checkPrograms(
  io: Io,
  model: MapreduceModel,
  given: MapreduceValuesGiven,
): Promise<void> {
  const programs = await planPrograms(io.cwd, model, knownValues(io, model, given))
  const missing = programs.find(({ isFound }) => isFound === false)
  if (!missing) return
  const { program, type } = missing
  throw new CurfewError('program_not_found', `${program}, which runs ${type} steps, is not found on PATH`, {
    hint: `Install it, or name another program: runners: { ${type}: [PROGRAM, …] }`,
    fields: { program, type },
  })
}

/** The rest of the plan is worth reading all the same. */
async function unlessRefused<T>(planned: Promise<T>): Promise<{ value: T | null; obstacle: string | null }> {
  try {
    return { value: await planned, obstacle: null }
  } catch (error) {
    if (error instanceof CurfewError) return { value: null, obstacle: error.message }
    throw error
  }
}

async function planItems(
  cwd: string,
  model: MapreduceModel,
  values: TemplateValues,
): Promise<{ items: ItemPlan; obstacle: string | null }> {
  const { map, setup } = model
  const { input } = map
  const source = input.kind === 'file' ? input.file : input.kind === 'command' ? input.command : null
  const unknown: ItemPlan = {
    ...{ from: input.kind, source, found: null, matched: null, chosen: null },
    ...{ first: [], note: null, warnings: [] },
  }
  const notKnown = (note: string) => ({ items: { ...unknown, note }, obstacle: null })
  try {
    if (input.kind === 'command') return notKnown('a command lists them, which is not run now')
    let list: unknown = input.kind === 'items' ? input.items : null
    if (input.kind === 'file') {
      const file = knownText(input.file, values)
      if (file === null) return notKnown('the name of the file is known only once setup has run')
      const text = await readItems(path.resolve(cwd, file), input.file)
      if (text === 'stream') return notKnown('it is a pipe or a device, which is not read now')
      if (text === null && setup.steps.length > 0)
        return notKnown('the file is not there; setup may make it, and is not run now')
      if (text === null) throw new CurfewError('no_such_file', `${input.file}: there is no such file`)
      list = parseItems(text, 'file', file)
    }
    const { items, found, matched, warnings } = selectItems(map, list)
    const mayChange = input.kind === 'file' && setup.steps.length > 0
    const note = mayChange ? 'as the file is now; setup may change it' : null
    const first = items.slice(0, NAMES_SHOWN).map(({ id, name }) => ({ id, name }))
    return {
      items: { ...unknown, found, matched, chosen: items.length, first, note, warnings },
      obstacle: null,
    }
  } catch (error) {
    if (!(error instanceof CurfewError)) throw error
    // The rest of the plan is worth reading all the same.
    return { items: { ...unknown, note: 'they cannot be read' }, obstacle: error.message }
  }
}

/** Null: there is no such file. `stream`: a pipe or a device, which can be read once, and may have no end. */
async function readItems(file: string, written: string): Promise<Uint8Array | 'stream' | null> {
  try {
    const found = await stat(file)
    const { size } = found
    if (!found.isFile() && !found.isDirectory()) return 'stream'
    if (size > MAX_ITEMS_BYTES) {
      throw new CurfewError('too_big', `${written} has ${size} bytes; at most ${MAX_ITEMS_BYTES} are read`)
    }
    return await readFile(file)
  } catch (error) {
    if (error instanceof CurfewError) throw error
    const { code, message } = error as NodeJS.ErrnoException
    if (code === 'ENOENT') return null
    const why = code === 'EISDIR' ? 'it is a folder' : message
    throw new CurfewError('no_such_file', `${written} cannot be read: ${why}`, { cause: error })
  }
}

/** Without a number of items, at most `max_items` of them. */
function planWorstCase(model: MapreduceModel, chosen: number | null): MapreducePlan['worstCase'] {
  const items = chosen ?? model.map.maxItems
  if (items !== null) return { ...worstCase(model, items), items }
  const one = worstCase(model, 1)
  const totalMs = model.timeoutMs === null ? null : model.timeoutMs + model.map.graceMs
  return { ...one, mapMs: null, totalMs, items }
}

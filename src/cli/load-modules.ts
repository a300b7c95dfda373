/**
 * Modules a user names: every task, agent, workflow and job they export, by name, by default or in a list, and what
 * their jobs were given. Two definitions of one name are an error, wherever they stand.
 */
import { existsSync, readdirSync } from 'node:fs'
import path from 'node:path'
import { pathToFileURL } from 'node:url'
import { CurfewError } from '../core/errors.ts'
import type { AgentDefinition } from '../definitions/agent.ts'
import type { JobDefinition } from '../definitions/job.ts'
import { nearest } from '../definitions/problem.ts'
import type { TaskDefinition } from '../definitions/task.ts'
import type { WorkflowDefinition } from '../definitions/workflow.ts'

export interface Definitions {
  tasks: TaskDefinition[]
  agents: AgentDefinition[]
  workflows: WorkflowDefinition[]
  jobs: JobDefinition[]
}

type Definition = TaskDefinition | AgentDefinition | WorkflowDefinition | JobDefinition

/** What is known by now: each definition, and where the first of its name stands. */
type Found = Map<string, { definition: Definition; place: string }>

export async function loadModules(files: readonly string[], cwd: string): Promise<Definitions> {
  const found: Found = new Map()
  for (const file of files) {
    const exported = exportsOf(await importModule(file, cwd))
    const definitions = exported.filter(({ value }) => isDefinition(value))
    if (definitions.length === 0) throw noDefinitions(file, exported)
    for (const { name, value } of definitions) add(found, value as Definition, `${file}, export ${name}`)
  }
  const all = Array.from(found.values(), ({ definition }) => definition)
  return {
    tasks: all.filter((one) => one.kind === 'task'),
    agents: all.filter((one) => one.kind === 'agent'),
    workflows: all.filter((one) => one.kind === 'workflow'),
    jobs: all.filter((one) => one.kind === 'job'),
  }
}

function add(found: Found, definition: Definition, place: string): void {
  const name = definition.kind === 'job' ? definition.model.name : definition.name
  // Tasks and agents share their names. A job needs none, and then it is only the same as itself.
  const kind = definition.kind === 'agent' ? 'task' : definition.kind
  const key = name === undefined ? `job at ${place}` : `${kind} ${name}`
  const known = found.get(key)
  if (known?.definition === definition) return
  if (known) {
    throw new CurfewError(
      'invalid_module',
      `there are two definitions of the ${known.definition.kind} '${name}': in ${known.place}, and in ${place}`,
      { hint: 'Give one of them another name.', fields: { name, places: [known.place, place] } },
    )
  }
  found.set(key, { definition, place })
  if (definition.kind !== 'job') return
  const { tasks, agents, workflows } = definition.uses
  for (const used of [...tasks, ...agents, ...workflows]) add(found, used, `${place}, which uses it`)
}

interface Exported {
  name: string
  value: unknown
}

/** Lists are looked into, and so is an object that is exported by default, as CommonJS does it; it may hold itself. */
function exportsOf(module: Readonly<Record<string, unknown>>, seen = new Set<unknown>()): Exported[] {
  seen.add(module)
  return Object.entries(module).flatMap(([name, value]): Exported[] => {
    if (seen.has(value)) return []
    if (Array.isArray(value)) return value.map((entry, i) => ({ name: `${name}[${i}]`, value: entry }))
    if (name !== 'default' || typeof value !== 'object' || value === null || isDefinition(value)) {
      return [{ name, value }]
    }
    return exportsOf(value as Record<string, unknown>, seen)
  })
}

async function importModule(file: string, cwd: string): Promise<Record<string, unknown>> {
  const full = path.resolve(cwd, file)
  if (/\.ya?ml$/.test(full)) {
    throw new CurfewError('invalid_module', `${file} is a definition, not a module`, {
      hint: 'Run it with curfew run, or export it from a module with loadWorkflow or loadJob.',
      fields: { file },
    })
  }
  if (!existsSync(full)) throw noSuchModule(file, full)
  try {
    return (await import(pathToFileURL(full).href)) as Record<string, unknown>
  } catch (error) {
    throw cannotLoad(file, error)
  }
}

/** The stack says where in the user's code; Node's own frames say nothing to anybody. */
export function cannotLoad(file: string, error: unknown, code = 'invalid_module'): CurfewError {
  const text = error instanceof Error ? (error.stack ?? error.message) : String(error)
  const lines = text.split('\n').filter((line) => !/^\s+at .*(node:internal|\(internal)/.test(line))
  const hint =
    (error as { code?: unknown } | null)?.code === 'ERR_UNSUPPORTED_TYPESCRIPT_SYNTAX'
      ? 'Node runs TypeScript that only needs its types removed: no enums, namespaces or parameter properties.'
      : undefined
  return new CurfewError(code, `${file} cannot be loaded: ${lines.join('\n')}`, {
    cause: error,
    fields: { file },
    ...(hint && { hint }),
  })
}

function noSuchModule(file: string, full: string): CurfewError {
  const folder = path.dirname(full)
  const names = existsSync(folder) ? readdirSync(folder) : []
  const stem = path.parse(full).name
  const meant = names.find((name) => path.parse(name).name === stem) ?? nearest(path.basename(full), names)
  return new CurfewError('no_such_file', `there is no module ${file}`, {
    fields: { file: full },
    ...(meant && { hint: `Did you mean ${path.join(path.dirname(file), meant)}?` }),
  })
}

function noDefinitions(file: string, exported: readonly Exported[]): CurfewError {
  const names = exported.map(({ name, value }) => `${name} (${describe(value)})`)
  const what = names.length === 0 ? 'it exports nothing' : `it exports ${names.slice(0, 20).join(', ')}`
  return new CurfewError('invalid_module', `${file} exports no task, agent, workflow or job: ${what}`, {
    hint: "Export what is to run: export const resize = task({ name: 'resize', … }).",
    fields: { file, exports: exported.map(({ name }) => name) },
  })
}

function describe(value: unknown): string {
  if (value === null || typeof value === 'undefined') return String(value)
  return typeof value === 'object' ? 'an object' : `a ${typeof value}`
}

function isDefinition(value: unknown): value is Definition {
  if (typeof value !== 'object' || value === null) return false
  const { kind, name, run, policy, model, uses } = value as Record<string, unknown>
  switch (kind) {
    case 'task':
    case 'agent':
      return typeof name === 'string' && typeof run === 'function' && typeof policy === 'object'
    case 'workflow':
      return typeof name === 'string' && typeof model === 'object' && typeof uses === 'object'
    case 'job':
      return typeof model === 'object' && typeof uses === 'object'
    default:
      return false
  }
}

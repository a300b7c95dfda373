/** The configuration file: found in the working directory or named, and loaded. What it may hold is config.ts's. */
import { existsSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import path from 'node:path'
import { pathToFileURL } from 'node:url'
import { CurfewError } from '../core/errors.ts'
import { withoutByteOrderMark } from '../core/json.ts'
import { cannotLoad } from './load-modules.ts'

export const FILE_NAMES = ['ts', 'mts', 'js', 'mjs', 'json'].map((ending) => `curfew.config.${ending}`)

export interface ConfigFile {
  /** As it was named, or by its name alone. */
  name: string
  path: string
  value: Readonly<Record<string, unknown>>
}

/** `named`: by a flag or variable, and then it has to be there. */
export async function loadConfigFile(cwd: string, named: string | undefined): Promise<ConfigFile | null> {
  const name = named ?? findConfigFile(cwd)
  if (name === null) return null
  const full = path.resolve(cwd, name)
  if (!existsSync(full)) {
    throw invalid(`there is no configuration file ${name}`, full)
  }
  const value = full.endsWith('.json') ? await readJson(name, full) : await importFile(name, full)
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    const got = value === null ? 'null' : Array.isArray(value) ? 'a list' : `a ${typeof value}`
    throw invalid(`${name} must hold an object of settings, and not ${got}`, full)
  }
  return { name, path: full, value: value as Record<string, unknown> }
}

function findConfigFile(cwd: string): string | null {
  const [name, second] = FILE_NAMES.filter((candidate) => existsSync(path.join(cwd, candidate)))
  if (second !== undefined) {
    throw new CurfewError('invalid_config', `there are two configuration files, ${name} and ${second}`, {
      hint: 'Keep one, or name it with --config.',
    })
  }
  return name ?? null
}

async function readJson(name: string, full: string): Promise<unknown> {
  try {
    return JSON.parse(withoutByteOrderMark(await readFile(full, 'utf8'))) as unknown
  } catch (error) {
    throw invalid(`${name} cannot be read: ${(error as Error).message}`, full)
  }
}

async function importFile(name: string, full: string): Promise<unknown> {
  let module: { default?: unknown }
  try {
    module = (await import(pathToFileURL(full).href)) as { default?: unknown }
  } catch (error) {
    throw cannotLoad(name, error, 'invalid_config')
  }
  if (module.default !== undefined) return module.default
  throw new CurfewError('invalid_config', `${name} has no default export`, {
    hint: "Write export default { store: './curfew.db' }.",
    fields: { file: full },
  })
}

function invalid(message: string, file: string): CurfewError {
  return new CurfewError('invalid_config', message, { fields: { file } })
}

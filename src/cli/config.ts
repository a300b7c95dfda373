/**
 * The one loader of settings: a flag wins over the environment, that over the configuration file, that over the
 * default. Everything that is wrong is told at once, each with its place.
 */
import path from 'node:path'
import type { Command } from 'commander'
import { Option } from 'commander'
import { CurfewError } from '../core/errors.ts'
import { MARKS } from '../core/own-work.ts'
import { nearest } from '../definitions/problem.ts'
import { STATE_VARIABLE } from '../mapreduce/run-folder.ts'
import type { ConfigFile } from './config-file.ts'
import { loadConfigFile } from './config-file.ts'
import type { Io } from './io.ts'
import type { Kind, Source } from './setting-kind.ts'
import { WrongValue } from './setting-kind.ts'
import type { Setting, SettingName, Settings, User } from './settings.ts'
import { CONFIG_VARIABLE, SETTING_NAMES, SETTINGS } from './settings.ts'

export interface Origin {
  from: 'flag' | 'argument' | 'environment' | 'file' | 'default'
  /** The flag, the variable, or the name of the file. */
  place: string
}

export interface Config {
  /** The file that was read. */
  file: string | null
  settings: Settings
  origins: Record<SettingName, Origin>
}

/** What commander makes of the flags. `modules` holds the arguments of a command that takes modules. */
export type Flags = Readonly<Record<string, unknown>> & { modules?: readonly string[] }

const CONFIG_OPTION = new Option(
  '--config <file>',
  'the configuration file; without it curfew.config.ts, where there is one',
)
const PREFIX = 'CURFEW_'
/** Kubernetes sets these in every container for a service named curfew or curfew-…: nobody wrote them. */
const SERVICE_LINK = /_SERVICE_HOST$|_SERVICE_PORT(_\w+)?$|_PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?$/
const NOT_SETTINGS: readonly string[] = [CONFIG_VARIABLE, STATE_VARIABLE, ...Object.values(MARKS)]

/** Adds the flags of every setting that the command uses. `except`: those it takes in another way. */
export function addSettings(
  command: Command,
  user: User | 'all',
  except: readonly SettingName[] = [],
): Command {
  command.addOption(CONFIG_OPTION)
  for (const name of SETTING_NAMES) {
    const { kind, flag, help, usedBy, requiredBy } = SETTINGS[name]
    if (except.includes(name) || (user !== 'all' && !usedBy.includes(user))) continue
    const needed = user !== 'all' && requiredBy?.includes(user)
    const option = new Option(flag, `${help}${needed ? ' (required)' : defaultText(name)}`)
    if (kind.many) option.argParser(joined)
    command.addOption(option)
  }
  return command
}

/** `--x a --x b` is `--x a,b`. */
export function joined(value: string, before?: string): string {
  return before ? `${before},${value}` : value
}

function defaultText(name: SettingName): string {
  const shown = shownSetting(name, SETTINGS[name].default)
  return shown === '' ? '' : ` (default: ${shown})`
}

/** A setting as people read it, secrets masked; empty where there is nothing. */
export function shownSetting(name: SettingName, value: Settings[SettingName]): string {
  return value === null ? '' : (SETTINGS[name].kind as Kind<unknown>).show(value)
}

/** The same for programs. */
export function plainSetting(name: SettingName, value: Settings[SettingName]): unknown {
  const { plain, show } = SETTINGS[name].kind as Kind<unknown>
  if (value === null) return null
  if (plain) return plain(value)
  return typeof value === 'string' ? show(value) : value
}

export async function loadConfig(
  io: Pick<Io, 'env' | 'cwd'>,
  user: User | 'all',
  flags: Flags,
): Promise<Config> {
  const named = (flags[CONFIG_OPTION.attributeName()] as string | undefined) || io.env[CONFIG_VARIABLE]
  const file = await loadConfigFile(io.cwd, named || undefined)
  const reader = new SettingsReader(file, io)
  const settings: Partial<Record<SettingName, unknown>> = {}
  const origins = {} as Record<SettingName, Origin>
  for (const name of SETTING_NAMES) {
    const read = reader.read(name, flags)
    if (user !== 'all' && !read.isGiven && SETTINGS[name].requiredBy?.includes(user)) {
      reader.missing(name, user)
    }
    settings[name] = read.value
    origins[name] = read.origin
  }
  reader.findUnknownKeys()
  reader.findUnknownVariables()
  reader.throwProblems()
  return { file: file?.path ?? null, settings: settings as Settings, origins }
}

interface Read {
  value: unknown
  origin: Origin
}

class SettingsReader {
  readonly #file: ConfigFile | null
  readonly #fileSource: Source
  readonly #env: Io['env']
  readonly #problems: { place: string; message: string; suggestion: string | null }[] = []

  constructor(file: ConfigFile | null, { env, cwd }: Pick<Io, 'env' | 'cwd'>) {
    this.#file = file
    this.#env = env
    const folder = file && path.dirname(file.path)
    this.#fileSource = {
      folder: folder === null || folder === path.resolve(cwd) ? null : folder,
      json: file?.path.endsWith('.json') ?? false,
    }
  }

  /** Every layer is read, so that a mistake in one that does not count today is told too. */
  read(name: SettingName, flags: Flags): Read & { isGiven: boolean } {
    const { key, env, kind, default: value } = SETTINGS[name] as Setting<unknown>
    const layers: (Read | null)[] = []
    if (name === 'modules' && flags.modules && flags.modules.length > 0) {
      layers.push({ value: flags.modules, origin: { from: 'argument', place: 'arguments' } })
    }
    const option = new Option(SETTINGS[name].flag)
    const flag = flags[option.attributeName()]
    if (typeof flag === 'string') {
      layers.push(this.#text(kind, flag, { from: 'flag', place: option.long as string }))
    }
    // An empty variable is one that was not set: compose files and service units make such.
    const variable = this.#env[env]
    if (variable) layers.push(this.#text(kind, variable, { from: 'environment', place: env }))
    const inFile = this.#fileValue(key)
    if (inFile !== undefined) {
      const origin = { from: 'file', place: this.#file?.name ?? '' } as const
      layers.push(
        this.#guarded(`${origin.place}: ${key}`, origin, () => kind.fromValue(inFile, this.#fileSource)),
      )
    }
    const read = layers.find((layer) => layer !== null)
    const byDefault = { value, origin: { from: 'default', place: 'default' } } as const
    // One that is wrong is not missing.
    return { ...(read ?? byDefault), isGiven: layers.length > 0 }
  }

  missing(name: SettingName, user: User): void {
    const { key, flag, env } = SETTINGS[name]
    const byFlag = name === 'modules' ? 'as an argument' : `with ${flag}`
    this.#problems.push({
      place: `curfew ${user}`,
      message: `${key} ${key.endsWith('s') ? 'are' : 'is'} missing`,
      suggestion: `Give it ${byFlag}, ${env}, or ${key} in a configuration file.`,
    })
  }

  findUnknownKeys(): void {
    if (!this.#file) return
    const keys = SETTING_NAMES.map((name) => SETTINGS[name].key)
    const groups = new Set(keys.filter((key) => key.includes('.')).map((key) => key.split('.')[0] as string))
    for (const [key, value] of Object.entries(this.#file.value)) {
      if (!groups.has(key)) {
        if (!keys.includes(key)) this.#unknown(`${this.#file.name}: ${key}`, key, keys)
        continue
      }
      if (value === undefined) continue
      if (typeof value !== 'object' || value === null || Array.isArray(value)) {
        const inner = keys.filter((known) => known.startsWith(`${key}.`)).map((known) => known.split('.')[1])
        this.#problems.push({
          place: `${this.#file.name}: ${key}`,
          message: `must be an object: { ${inner.join(', ')} }`,
          suggestion: null,
        })
        continue
      }
      for (const inner of Object.keys(value)) {
        const whole = `${key}.${inner}`
        if (!keys.includes(whole)) this.#unknown(`${this.#file.name}: ${whole}`, whole, keys)
      }
    }
  }

  findUnknownVariables(): void {
    const known = [...SETTING_NAMES.map((name) => SETTINGS[name].env), ...NOT_SETTINGS]
    for (const [name, value] of Object.entries(this.#env)) {
      if (!name.startsWith(PREFIX) || value === undefined) continue
      if (known.includes(name) || SERVICE_LINK.test(name)) continue
      this.#unknown(name, name, known)
    }
  }

  throwProblems(): void {
    const lines = this.#problems.map(
      ({ place, message, suggestion }) => `${place}: ${message}${suggestion ? `\n  ${suggestion}` : ''}`,
    )
    if (lines.length === 0) return
    const message =
      lines.length === 1
        ? (lines[0] as string)
        : [`the configuration has ${lines.length} problems:`, ...lines].join('\n')
    throw new CurfewError('invalid_config', message, { fields: { problems: this.#problems } })
  }

  #unknown(place: string, name: string, known: readonly string[]): void {
    const last = name.split('.').at(-1) as string
    const meant = nearest(name, known) ?? known.find((key) => key.endsWith(`.${last}`)) ?? null
    const suggestion = meant ? `Did you mean ${meant}?` : `There are ${known.join(', ')}.`
    this.#problems.push({ place, message: 'is not a setting', suggestion })
  }

  #text(kind: Kind<unknown>, text: string, origin: Origin): Read | null {
    return this.#guarded(origin.place, origin, () => {
      const trimmed = text.trim()
      if (trimmed === '') throw new WrongValue('must not be empty')
      return kind.fromText(trimmed, { folder: null, json: false })
    })
  }

  #guarded(place: string, origin: Origin, read: () => unknown): Read | null {
    try {
      return { value: read(), origin }
    } catch (error) {
      if (!(error instanceof WrongValue)) throw error
      const { inner, message, suggestion } = error
      this.#problems.push({ place: `${place}${inner}`, message, suggestion })
      return null
    }
  }

  #fileValue(key: string): unknown {
    const [first = '', second] = key.split('.')
    const value = this.#own(this.#file?.value, first)
    return second === undefined ? value : this.#own(value, second)
  }

  #own(value: unknown, key: string): unknown {
    if (typeof value !== 'object' || value === null || Array.isArray(value)) return undefined
    return Object.hasOwn(value, key) ? (value as Record<string, unknown>)[key] : undefined
  }
}

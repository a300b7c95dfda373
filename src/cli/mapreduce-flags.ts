/** The options of `curfew run` that a map-reduce alone takes, and what they make of its definition. */
import type { Command } from 'commander'
import { durationMs } from '../core/duration.ts'
import { CurfewError } from '../core/errors.ts'
import { checkJsonText, decodeExactly, decodeJson } from '../core/json.ts'
import { MAX_BRANCHES } from '../core/limits.ts'
import type { DefinitionKind } from '../definitions/definition-kind.ts'
import { UNSAFE_KEYS } from '../definitions/definition-text.ts'
import type { MapreduceDefinition } from '../definitions/mapreduce.ts'
import { contentHash } from '../definitions/workflow-model.ts'
import { usageError } from './exit-code.ts'
import type { Flags } from './options.ts'
import { wholeNumber } from './options.ts'

export interface MapreduceFlags {
  args?: string
  param?: string[]
  maxItems?: string
  dryRun?: boolean
  timeout?: string
  /** False where worktrees were refused. */
  worktrees?: boolean
}

/** What the texts of a map-reduce find under `args` and `params`. */
export interface MapreduceValuesGiven {
  /** A list or an object, else a text; the empty text when it was not given. */
  args: unknown
  params: Readonly<Record<string, string>>
}

export function mapreduceOptions(command: Command): Command {
  return command
    .option('--args <value>', `of a map-reduce: what \${args} stands for; a JSON list or object, or a text`)
    .option(
      '--param <name=value>',
      `of a map-reduce: what \${params.NAME} stands for; may be repeated`,
      append,
    )
    .option('--max-items <number>', 'of a map-reduce: instead of max_items in the file')
    .option('--no-worktrees', 'of a map-reduce: items work in plain folders, also in a git repository')
    .option('--dry-run', 'of a map-reduce: print items, limits and the worst case; nothing is run')
}

/** Values hold commas: each option is one. */
function append(value: string, before: string[] = []): string[] {
  return [...before, value]
}

export function refuseMapreduceFlags(file: string, kind: DefinitionKind, flags: MapreduceFlags): void {
  const given: Record<string, unknown> = {
    ...{ '--args': flags.args, '--param': flags.param, '--max-items': flags.maxItems },
    ...{ '--dry-run': flags.dryRun, '--no-worktrees': flags.worktrees === false || undefined },
  }
  const name = Object.keys(given).find((one) => given[one] !== undefined)
  if (name !== undefined) throw usageError(`${name}: ${file} is a ${kind}, and this is for a map-reduce`)
}

export function givenValues(flags: MapreduceFlags): MapreduceValuesGiven {
  return { args: readArgs(flags.args ?? ''), params: readParams(flags.param ?? []) }
}

/** Numbers stay texts: they reach a command as they were written. */
function readArgs(text: string): unknown {
  if (!/^\s*[[{]/.test(text)) return text
  try {
    checkJsonText(text, '--args')
  } catch (error) {
    if (error instanceof CurfewError && error.code === 'invalid_json' && !isJson(text)) return text
    throw error
  }
  return decodeExactly(text, '--args')
}

function isJson(text: string): boolean {
  try {
    decodeJson(text)
    return true
  } catch (error) {
    if (error instanceof SyntaxError) return false
    throw error
  }
}

function readParams(given: readonly string[]): Record<string, string> {
  const params: Record<string, string> = {}
  for (const text of given) {
    const [, name, value] = /^([\w-]+)=(.*)$/s.exec(text) ?? []
    if (name === undefined || value === undefined || UNSAFE_KEYS.includes(name))
      throw usageError(`--param must be NAME=VALUE, got '${text}'`)
    if (Object.hasOwn(params, name)) throw usageError(`--param ${name} is given twice`)
    params[name] = value
  }
  return params
}

/** It is for tasks that any process may run. */
export function refuseConcurrency({ concurrency }: Flags, instead: string): void {
  if (concurrency !== undefined) throw usageError(`--concurrency: how many items run at once ${instead}`)
}

/** A number alone is seconds, as in the file. */
export function limitOf(text: string, option: string): number {
  return durationMs(/^\d+$/.test(text) ? `${text}s` : text, option)
}

/** As the file says, but for what the call says otherwise: that is what is stored with the run. */
export function withFlags(
  definition: MapreduceDefinition,
  { maxItems, timeout }: MapreduceFlags,
): MapreduceDefinition {
  const { model } = definition
  if (maxItems === undefined && timeout === undefined) return definition
  const changed = {
    ...model,
    ...(timeout !== undefined && { timeoutMs: limitOf(timeout, '--timeout') }),
    map: {
      ...model.map,
      ...(maxItems !== undefined && { maxItems: wholeNumber(maxItems, '--max-items', 1, MAX_BRANCHES) }),
    },
  }
  return { ...definition, model: changed, hash: contentHash(changed) }
}

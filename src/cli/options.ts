/** Options that several commands share, spelled and read in one way. */
import type { Command } from 'commander'
import { durationMs } from '../core/duration.ts'
import { CurfewError } from '../core/errors.ts'
import { decodeExactly, withoutByteOrderMark } from '../core/json.ts'
import { didYouMean } from '../definitions/problem.ts'
import { addSettings } from './config.ts'
import { readTextFile } from './definition-file.ts'
import { usageError } from './exit-code.ts'
import type { Io } from './io.ts'

/** What commander makes of the flags; settings are read from them by `config.ts`. */
export type Flags = Record<string, unknown> & { json?: boolean }

export function jsonOption(command: Command): Command {
  return command.option('--json', 'print JSON on stdout')
}

/** For commands that ask whoever works on the store, or look at it when nobody does. */
export function clientOptions(command: Command): Command {
  return jsonOption(addSettings(command, 'client'))
}

/** `--x a --x b` and `--x a,b` are the same. */
export function collect(value: string, before: string[] = []): string[] {
  const names = value.split(',').map((part) => part.trim())
  return [...before, ...names.filter((name) => name !== '')]
}

export function wholeNumber(text: string, option: string, least: number, most: number): number {
  const number = Number(text)
  if (/^\d+$/.test(text) && number >= least && number <= most) return number
  throw usageError(`${option} must be a whole number from ${least} to ${most}, got '${text}'`)
}

export function oneOf<T extends string>(text: string, option: string, allowed: readonly T[]): T {
  const found = allowed.find((one) => one === text)
  if (found !== undefined) return found
  const hint = didYouMean(text, allowed) ?? undefined
  throw usageError(`${option} '${text}' is none of ${allowed.join(', ')}`, hint)
}

/** Checked here, so that what is wrong is told before anything is asked. */
export function checkDuration(text: string | undefined, option: string): string | undefined {
  if (text !== undefined) durationMs(text, option)
  return text
}

/** JSON on the command line, `@file`, or `-` for stdin. `undefined` when it was not given. */
export async function readInput(io: Io, text: string | undefined, option = '--input'): Promise<unknown> {
  if (text === undefined) return undefined
  const [source, json] = await inputText(io, text, option)
  try {
    return decodeExactly(withoutByteOrderMark(json), source)
  } catch (error) {
    if (error instanceof CurfewError) throw error
    throw new CurfewError('invalid_json', `${source} is not JSON: ${(error as Error).message}`, {
      hint: `A text needs quotes of its own: ${option} '"text"'. @FILE reads a file, - reads stdin.`,
      cause: error,
    })
  }
}

async function inputText(io: Io, text: string, option: string): Promise<[source: string, json: string]> {
  if (text === '-') return ['stdin', await readStdin(io)]
  if (!text.startsWith('@')) return [option, text]
  const file = text.slice(1)
  return [file, await readTextFile(io, file)]
}

async function readStdin(io: Io): Promise<string> {
  const parts: Buffer[] = []
  for await (const part of io.stdin) parts.push(Buffer.from(part))
  return Buffer.concat(parts).toString('utf8')
}

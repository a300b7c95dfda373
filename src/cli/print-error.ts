/** Errors as people and programs read them: what, and what to try. */
import { CommanderError } from 'commander'
import { CurfewError } from '../core/errors.ts'
import { Colours } from './colours.ts'
import { EXIT, errorExitCode } from './exit-code.ts'
import type { Io } from './io.ts'
import { printable } from './plain-text.ts'

interface Told {
  code: string
  message: string
  hint: string | null
}

/** Prints it on stderr and answers what to exit with. */
export function printError(io: Io, error: unknown, { json }: { json: boolean }): number {
  // Help and version were asked for, and have been printed.
  if (error instanceof CommanderError && error.exitCode === 0) return EXIT.completed
  if (error instanceof CommanderError && error.code === 'commander.help') return EXIT.usage
  const told = tell(error)
  if (json) io.stderr.write(`${JSON.stringify({ error: told })}\n`)
  else {
    const colours = new Colours(io, io.stderr)
    io.stderr.write(`${colours.style('red', 'error:')} ${printable(told.message)}\n`)
    if (told.hint !== null) io.stderr.write(`  ${colours.dim(printable(told.hint))}\n`)
  }
  return error instanceof CommanderError ? EXIT.usage : errorExitCode(error)
}

function tell(error: unknown): Told {
  if (error instanceof CommanderError) return tellUsage(error.message)
  if (error instanceof CurfewError) {
    const { code, hint = null } = error
    // The message of an error carries its hint, for those who print it as it is.
    const appended = hint === null ? '' : `\n  ${hint}`
    const message = error.message.endsWith(appended)
      ? error.message.slice(0, error.message.length - appended.length)
      : error.message
    return { code, message, hint }
  }
  const message = error instanceof Error ? (error.stack ?? error.message) : String(error)
  return { code: 'internal', message: `something unexpected happened: ${message}`, hint: null }
}

/** `error: unknown option '--jsn'`, then, on a line of its own, `(Did you mean --json?)`. */
function tellUsage(text: string): Told {
  const [first = '', ...rest] = text.replace(/^error: /, '').split('\n')
  const hint = rest
    .join(' ')
    .trim()
    .replace(/^\((.*)\)$/, '$1')
  return { code: 'usage', message: first, hint: hint === '' ? 'Add --help to see how it is called.' : hint }
}

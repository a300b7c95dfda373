/** The log of an engine that a command opens, on stderr: lines of JSON, or lines to read where that is a terminal. */
import { inspect } from 'node:util'
import pino from 'pino'
import type { Logger } from '../core/logger.ts'
import { guardedLogger } from '../core/logger.ts'
import { Colours } from './colours.ts'
import type { Io } from './io.ts'
import { oneLine } from './plain-text.ts'
import type { LogLevel } from './settings.ts'
import { LOG_LEVELS } from './settings.ts'

type Line = keyof Logger

const STYLES = { debug: 'dim', info: 'cyan', warn: 'yellow', error: 'red' } as const

export function storeLogger(io: Io, level: LogLevel): Logger {
  if (io.stderr.isTerminal) return new TerminalLogger(io, level)
  return guardedLogger(pino({ name: 'curfew', level }, pino.destination({ fd: 2, sync: true })))
}

class TerminalLogger implements Logger {
  readonly debug = this.#line('debug')
  readonly info = this.#line('info')
  readonly warn = this.#line('warn')
  readonly error = this.#line('error')
  readonly #io: Io
  readonly #upTo: number
  readonly #colours: Colours

  constructor(io: Io, level: LogLevel) {
    this.#io = io
    this.#upTo = LOG_LEVELS.indexOf(level)
    this.#colours = new Colours(io, io.stderr)
  }

  #line(level: Line): Logger[Line] {
    return (fields, message) => {
      if (LOG_LEVELS.indexOf(level) > this.#upTo) return
      const time = new Date(this.#io.clock.wall()).toTimeString().slice(0, 8)
      const known = Object.entries(fields).flatMap(([name, value]) =>
        value === undefined || value === null ? [] : [`${name}: ${textOf(value)}`],
      )
      const rest = known.length === 0 ? '' : this.#colours.dim(` (${known.join(', ')})`)
      const head = this.#colours.style(STYLES[level], level)
      this.#io.stderr.write(`${this.#colours.dim(time)} ${head} ${oneLine(message)}${rest}\n`)
    }
  }
}

function textOf(value: unknown): string {
  if (value instanceof Error) return oneLine(value.message)
  return oneLine(typeof value === 'string' ? value : inspect(value, { breakLength: Infinity, depth: 4 }))
}

/** The log of an engine that a command opens: lines of JSON on stderr. */
import pino from 'pino'
import type { Logger } from '../core/logger.ts'
import type { LogLevel } from './settings.ts'

export function storeLogger(level: LogLevel): Logger {
  return pino({ name: 'curfew', level }, pino.destination({ fd: 2, sync: true }))
}

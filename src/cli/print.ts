/** What several commands print: JSON, lines, records, times. */
import { formatDuration } from '../core/duration.ts'
import type { Progress } from '../core/states.ts'
import type { Io } from './io.ts'

/** One document. */
export function printJson(io: Io, value: unknown): void {
  io.stdout.write(`${JSON.stringify(value, null, 2)}\n`)
}

/** One object of a stream: one line. */
export function printJsonLine(io: Io, value: unknown): void {
  io.stdout.write(`${JSON.stringify(value)}\n`)
}

export function printLines(io: Io, lines: readonly string[]): void {
  if (lines.length > 0) io.stdout.write(`${lines.join('\n')}\n`)
}

/** As wide as the terminal; a pipe takes any width. */
export function outputWidth(io: Io): number | null {
  return io.stdout.isTerminal ? io.columns : null
}

export function timeText(ms: number | null): string {
  return ms === null ? '' : new Date(ms).toISOString()
}

/** For reading, not for sums: the longer, the rounder. */
export function roughDuration(ms: number): string {
  const step = ms < 1_000 ? 1 : ms < 10_000 ? 100 : ms < 86_400_000 ? 1_000 : 60_000
  return formatDuration(Math.round(ms / step) * step)
}

/** What is left, counted down in whole seconds; it ends at zero. */
export function countdown(ms: number): string {
  return ms <= 0 ? 'now' : formatDuration(Math.ceil(ms / 1_000) * 1_000)
}

export function progressText({ fraction, completed, total }: Progress): string {
  const share = fraction ?? (completed !== undefined && total ? completed / total : undefined)
  const percent = share === undefined ? '' : `${Math.floor(share * 100)}%`
  if (completed === undefined) return percent
  const count = total === undefined ? `${completed}` : `${completed}/${total}`
  return percent === '' ? count : `${percent} (${count})`
}

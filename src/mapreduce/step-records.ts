/** What is kept of commands: how each ended, and why one did not end well. */

import type { NotedLimit } from '../core/note.ts'
import { evaluateCondition } from '../definitions/mapping.ts'
import { SecretMask } from '../worker/secret-mask.ts'

export interface StepTimeout extends Omit<NotedLimit, 'isTold'> {
  resolution: 'GracefulTermination' | 'ForceTermination'
  stdout: string
  stderr: string
}

export interface StepFailure {
  code: string
  command: number
  commandType: string
  text: string
  exitCode: number | null
  message: string
  stdout: string
  stderr: string
}

/** What became of one command. */
export interface StepRecord {
  command: number
  commandType: string
  text: string
  status: 'completed' | 'failed' | 'timed_out' | 'skipped' | 'handled'
  exitCode: number | null
  tookMs: number
  limitMs: number | null
  source: string
}

/** For the store, should it have to end the attempt. */
export function notedLimit(
  { stdout: _, stderr: __, resolution: ___, text, ...timeout }: StepTimeout,
  isTold: boolean,
): NotedLimit {
  return { ...timeout, text: text.slice(0, 200), isTold }
}

/** Of each stream. */
const SHOWN_BYTES = 8 * 1024

export function firstLine(text: string): string {
  const [first = '', ...more] = text.trim().split('\n')
  return more.length > 0 || first.length > 100 ? `${first.slice(0, 100)}…` : first
}

export function shown({ stdout, stderr }: { stdout: string; stderr: string }) {
  return { stdout: endOf(stdout), stderr: endOf(stderr) }
}

export function failureValue(
  kind: 'failed' | 'timed_out',
  { message, stdout, stderr }: { message: string; stdout: string; stderr: string },
  exitCode: number | null,
) {
  return { kind, message, exit_code: exitCode === null ? '' : String(exitCode), output: stderr || stdout }
}

/** Of a condition that cannot be told. It shows values, and cuts them: of a secret that was cut nobody would know. */
export function whyNotTold(
  when: string | null,
  values: Record<string, unknown>,
  secrets: readonly string[],
  place: string,
): string {
  const mask = new SecretMask(secrets)
  const maskedValue = (value: unknown) => (typeof value === 'string' ? mask.text(value) : value)
  const masked = Object.entries(values).map(([name, value]) => [name, maskedValue(value)])
  const again = evaluateCondition(when, Object.fromEntries(masked), place)
  return again.ok ? `${place}: it fails for the value of a secret` : mask.text(again.failure.message)
}

/** By whoever watches over a worker that stood still. */
export function isKilledLate(
  { signal }: { signal: string | null },
  limitMs: number | null,
  tookMs: number,
): boolean {
  return signal === 'SIGKILL' && limitMs !== null && tookMs >= limitMs
}

/** Cut, it begins with an ellipsis. */
function endOf(text: string): string {
  return text.length <= SHOWN_BYTES ? text : `…${text.slice(1 - SHOWN_BYTES)}`
}

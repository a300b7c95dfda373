/**
 * What a command has of the world around it: streams, environment, folder, time and signals. Tests give it another
 * world. Results go to `stdout`, everything else to `stderr`.
 */
import type { Clock } from '../core/clock.ts'
import { CurfewError } from '../core/errors.ts'
import { SystemClock } from '../core/system-clock.ts'

export interface Output {
  write(text: string): void
  readonly isTerminal: boolean
}

/** The last: the terminal was closed. */
export type Signal = 'SIGINT' | 'SIGTERM' | 'SIGHUP'

export interface Io {
  readonly stdout: Output
  readonly stderr: Output
  readonly stdin: AsyncIterable<Uint8Array | string>
  readonly env: Readonly<Record<string, string | undefined>>
  readonly cwd: string
  /** Of the terminal; 80 and 24 where there is none. */
  readonly columns: number
  readonly rows: number
  readonly clock: Clock
  /** Aborts when nobody reads `stdout` any more: `curfew events --follow | head`. */
  readonly outputClosed: AbortSignal
  /**
   * Calls back with SIGINT or SIGTERM, or with those that are named, until the answer is called; with nobody listening
   * they end the process.
   */
  onSignal(listener: (signal: Signal) => void, signals?: readonly Signal[]): () => void
  /** What a command ends with; see `exit-code.ts`. */
  exitCode: number
  /** Ends the process as it is, whatever still runs. */
  exitNow(code: number): void
}

/** Whether stdout is for a document alone. */
export function asksForJson(args: readonly string[]): boolean {
  const end = args.indexOf('--')
  return (end === -1 ? args : args.slice(0, end)).includes('--json')
}

/** The process itself. `lostOutput`: not all results could be written, for example on a full disk. */
export function processIo(args: readonly string[]): Io & { readonly lostOutput: boolean } {
  const { stdout, stderr } = process
  // What the code of modules prints is no part of the document.
  if (asksForJson(args)) Object.defineProperty(process, 'stdout', { value: stderr })
  const closed = new AbortController()
  let lostOutput = false
  let cwd: string | null = null
  for (const stream of [stdout, stderr]) {
    // Whatever runs goes on: it is not for a log to end it.
    stream.on('error', (error: NodeJS.ErrnoException) => {
      // A terminal that was closed answers with EIO.
      if (error.code === 'EPIPE' || error.code === 'EIO') return closed.abort()
      if (stream === stderr) return
      lostOutput = true
      if (stderr.writable) stderr.write(`error: stdout cannot be written: ${error.message}\n`)
    })
  }
  const output = (stream: NodeJS.WriteStream): Output => ({
    write: (text) => void (stream.writable && stream.write(text)),
    isTerminal: stream.isTTY === true,
  })
  return {
    stdout: output(stdout),
    stderr: output(stderr),
    stdin: process.stdin,
    env: process.env,
    // Where it was started: code of modules may go elsewhere.
    get cwd() {
      cwd ??= workingFolder()
      return cwd
    },
    get columns() {
      return stdout.columns ?? stderr.columns ?? 80
    },
    get rows() {
      return stdout.rows ?? stderr.rows ?? 24
    },
    clock: new SystemClock(),
    outputClosed: closed.signal,
    get lostOutput() {
      return lostOutput
    },
    onSignal(listener, signals = ['SIGINT', 'SIGTERM']) {
      for (const signal of signals) process.on(signal, listener)
      return () => {
        for (const signal of signals) process.off(signal, listener)
      }
    },
    exitCode: 0,
    exitNow: (code) => process.exit(code),
  }
}

function workingFolder(): string {
  try {
    return process.cwd()
  } catch (error) {
    throw new CurfewError('no_such_folder', 'the folder this was started in is not there any more', {
      ...{ cause: error, hint: 'Start it in another folder.' },
    })
  }
}

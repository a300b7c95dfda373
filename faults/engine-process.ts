/** A process with an engine, as a test holds it: calls go through, and it can be killed, stopped and continued. */
import type { ChildProcess } from 'node:child_process'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import path from 'node:path'
import type { EngineOptions, Methods, Reply, Request } from './engine-program.ts'
import type { Fact } from './journal.ts'
import { monotonicMs, note, readJournal } from './journal.ts'
import type { Scratch } from './scratch.ts'
import { until, within } from './wait.ts'

/** What a call in another process failed with. */
export class CallFailed extends Error {
  readonly code: string
  readonly tookMs: number

  constructor(error: { code: string; message: string }, tookMs: number) {
    super(error.message)
    this.code = error.code
    this.tookMs = tookMs
  }
}

type Calls = {
  [Name in keyof Methods]: (...args: Parameters<Methods[Name]>) => Promise<Awaited<ReturnType<Methods[Name]>>>
}

const PROGRAM = path.join(import.meta.dirname, 'engine-program.ts')
const CALL_WITHIN_MS = 90_000

export class EngineProcess {
  readonly call: Calls
  readonly exited: Promise<unknown>
  readonly #child: ChildProcess
  readonly #journal: string
  readonly #waiting = new Map<number, { resolve(value: unknown): void; reject(error: Error): void }>()
  readonly #said: string[] = []
  #calls = 0

  /** Opens an engine in a new process. `fileSizeKiB`: the largest file it may write. */
  static async open(
    scratch: Scratch,
    options: EngineOptions,
    limits: { fileSizeKiB?: number } = {},
  ): Promise<EngineProcess> {
    const engine = new EngineProcess(scratch, limits)
    await engine.call.open(options)
    return engine
  }

  private constructor(scratch: Scratch, { fileSizeKiB }: { fileSizeKiB?: number }) {
    this.#journal = journalOf(scratch)
    const node = [process.execPath, PROGRAM]
    // SIGXFSZ is ignored by Node: a write beyond the limit fails with EFBIG.
    const command = fileSizeKiB
      ? ['sh', '-c', `ulimit -f ${fileSizeKiB * 2}; exec "$@"`, 'sh', ...node]
      : node
    this.#child = spawn(command[0] as string, command.slice(1), {
      stdio: ['ignore', 'inherit', 'pipe', 'ipc'],
      env: {
        ...scratch.environment(),
        FAULTS_JOURNAL: this.#journal,
        CURFEW_LOG: process.env.CURFEW_LOG ?? 'silent',
      },
    })
    this.#child.stderr?.setEncoding('utf8').on('data', (text: string) => {
      this.#said.push(text)
      if (process.env.CURFEW_LOG) process.stderr.write(text)
    })
    this.exited = once(this.#child, 'exit')
    this.#child.on('message', (reply: Reply) => this.#answered(reply))
    this.#child.on('exit', (code, signal) => {
      const text = `the process ended with ${signal ?? code}\n${this.#said.join('')}`
      for (const { reject } of this.#waiting.values())
        reject(new CallFailed({ code: 'process_ended', message: text }, 0))
      this.#waiting.clear()
    })
    this.call = new Proxy({} as Calls, {
      get:
        (_, method: keyof Methods) =>
        (...args: unknown[]) =>
          this.#ask(method, args),
    })
  }

  get pid(): number {
    return this.#child.pid as number
  }

  get alive(): boolean {
    return this.#child.exitCode === null && this.#child.signalCode === null
  }

  /** kill -9; answers the monotonic time just before it. */
  async kill(): Promise<number> {
    const at = monotonicMs()
    note(this.#journal, { type: 'killed', victim: this.pid })
    this.#child.kill('SIGKILL')
    await this.exited
    return at
  }

  stop(): void {
    this.#child.kill('SIGSTOP')
  }

  continue(): void {
    this.#child.kill('SIGCONT')
  }

  async end(): Promise<void> {
    if (!this.alive) return
    this.#child.kill('SIGKILL')
    await this.exited
  }

  #ask(method: keyof Methods, args: unknown[]): Promise<unknown> {
    if (!this.#child.connected) {
      return Promise.reject(new CallFailed({ code: 'process_ended', message: 'the process has ended' }, 0))
    }
    const id = ++this.#calls
    const answer = new Promise((resolve, reject) => this.#waiting.set(id, { resolve, reject }))
    const request: Request = { id, method, args }
    this.#child.send(request)
    return within(`${method} is answered`, CALL_WITHIN_MS, answer)
  }

  #answered(reply: Reply): void {
    const waiting = this.#waiting.get(reply.id)
    this.#waiting.delete(reply.id)
    if ('value' in reply) waiting?.resolve(reply.value)
    else if ('error' in reply) waiting?.reject(new CallFailed(reply.error, reply.tookMs))
    else waiting?.resolve(undefined)
  }
}

export function journalOf(scratch: Scratch): string {
  return scratch.path('journal.jsonl')
}

/** What the journal says of these, in order. */
export function factsOf(scratch: Scratch, type: string, ids?: readonly string[]): Fact[] {
  return readJournal(journalOf(scratch)).filter(
    (fact) => fact.type === type && (!ids || ids.includes(fact.taskId ?? '')),
  )
}

/** Waits until this attempt of each of these has started, or any; answers when the last did. */
export async function started(
  scratch: Scratch,
  ids: readonly string[],
  attempt: number | 'any',
  timeoutMs: number,
): Promise<{ lastAt: number; facts: Fact[] }> {
  const facts = await until(`attempt ${attempt} of ${ids.length} tasks has started`, timeoutMs, () => {
    const found = factsOf(scratch, 'attempt_started', ids).filter(
      (fact) => attempt === 'any' || fact.attempt === attempt,
    )
    return new Set(found.map(({ taskId }) => taskId)).size === ids.length ? found : null
  })
  return { lastAt: Math.max(...facts.map(({ mono }) => mono)), facts }
}

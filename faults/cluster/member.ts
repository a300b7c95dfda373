/** A process of the cluster, as a test holds it: it can be killed, stopped, continued and asked to close. */
import type { ChildProcess } from 'node:child_process'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readdirSync, readFileSync } from 'node:fs'
import path from 'node:path'
import { journalOf } from '../engine-process.ts'
import { monotonicMs, note } from '../journal.ts'
import type { Scratch } from '../scratch.ts'
import { within } from '../wait.ts'

const START_MS = 40_000
const CLOSE_MS = 20_000

export class Member {
  readonly #child: ChildProcess
  readonly #journal: string
  readonly #exited: Promise<unknown>
  readonly #said: string[] = []

  /** Loaded, and open only when `open` is called: that takes no time then. */
  static async prepare(scratch: Scratch, program: string, options: object): Promise<Member> {
    const member = new Member(scratch, program, options)
    await member.#says('loaded')
    return member
  }

  private constructor(scratch: Scratch, program: string, options: object) {
    this.#journal = journalOf(scratch)
    const file = path.join(import.meta.dirname, program)
    this.#child = spawn(process.execPath, [file, JSON.stringify(options)], {
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
    this.#exited = once(this.#child, 'exit')
  }

  async open(): Promise<this> {
    this.#child.send('open')
    await this.#says('opened')
    return this
  }

  async #says(word: 'loaded' | 'opened'): Promise<void> {
    const ended = this.#exited.then(() => {
      throw new Error(`process ${this.pid} ended before it had ${word}:\n${this.#said.join('')}`)
    })
    // It may end at any time after that.
    void ended.catch((error: Error) => error)
    await within(`the process has ${word}`, START_MS, Promise.race([once(this.#child, 'message'), ended]))
  }

  get pid(): number {
    return this.#child.pid as number
  }

  get alive(): boolean {
    return this.#child.exitCode === null && this.#child.signalCode === null
  }

  /** kill -9; answers the monotonic time just before it. `withSupervisor`: nobody is left to tell. */
  async kill({ withSupervisor = false } = {}): Promise<number> {
    const supervisors = withSupervisor ? this.#supervisors() : []
    // Neither may act on the death of the other.
    for (const pid of [...supervisors, this.pid]) process.kill(pid, 'SIGSTOP')
    const at = monotonicMs()
    note(this.#journal, { type: 'killed', victim: this.pid })
    for (const pid of supervisors) process.kill(pid, 'SIGKILL')
    this.#child.kill('SIGKILL')
    await this.#exited
    return at
  }

  stop(): number {
    this.#child.kill('SIGSTOP')
    return monotonicMs()
  }

  continue(): number {
    const at = monotonicMs()
    this.#child.kill('SIGCONT')
    return at
  }

  /** As a user would end it; rejects when it does not end by itself. */
  async close(): Promise<void> {
    if (!this.alive) return
    this.#child.send('close')
    await within(`process ${this.pid} closes`, CLOSE_MS, this.#exited)
    if (this.#child.exitCode !== 0) {
      const how = this.#child.signalCode ?? this.#child.exitCode
      throw new Error(`process ${this.pid} ended with ${how}:\n${this.#said.join('')}`)
    }
  }

  #supervisors(): number[] {
    const children = readdirSync('/proc')
      .map(Number)
      .filter((pid) => pid > 0 && parentOf(pid) === this.pid)
    return children.filter((pid) => readProc(pid, 'cmdline').includes('supervisor-process'))
  }
}

function parentOf(pid: number): number {
  const stat = readProc(pid, 'stat')
  return Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[1])
}

function readProc(pid: number, name: string): string {
  try {
    return readFileSync(`/proc/${pid}/${name}`, 'latin1')
  } catch {
    return '' // it is gone
  }
}

/**
 * A git repository in which map-reduces are run by `curfew` as a real process, with a store, a state folder and
 * programs of its own. Nothing of it, no process and no folder, outlives its test.
 */
import { execFileSync } from 'node:child_process'
import {
  appendFileSync,
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  writeFileSync,
} from 'node:fs'
import path from 'node:path'
import { test as base, expect } from 'vitest'
import { CliProcess, isAlive } from '../../src/cli/fixtures/cli-process.ts'
import type { MapreduceSummary } from '../../src/cli/mapreduce-snapshot.ts'
import type { DeadLetter, TaskEventView } from '../../src/curfew.ts'
import { Curfew } from '../../src/curfew.ts'
import type { ItemOutput } from '../../src/mapreduce/item-work.ts'
import { Scratch } from '../scratch.ts'
import { until } from '../wait.ts'

/** A step that says who it is, prints, and does not end; neither does its child. */
export const HANG =
  'echo $$ >> "$MARKS/pids"; echo partial; sleep 600 & echo $! >> "$MARKS/pids"; sleep 600; echo late >> "$MARKS/late"'

/** Limits fire never early, and at most so late, as the scenarios have it. */
export const TOLERANCE_MS = 2_000

type Client = Awaited<ReturnType<typeof Curfew.connect>>

const MARKED_MS = 40_000

export type Summary = MapreduceSummary

export interface Ran {
  code: number | NodeJS.Signals
  stdout: string
  stderr: string
  /** What `--json` printed; null where it was refused. */
  json: Summary | null
}

/** What the store has of an item: how it ended, and what was noted of its commands, in order. */
export interface StoredItem extends ItemOutput {
  taskId: string
  events: TaskEventView[]
}

export class World {
  readonly scratch = new Scratch()
  /** The repository. Its name holds a space. */
  readonly top = this.scratch.path('the repository')
  /** Where steps leave what a test looks at: `$MARKS`. */
  readonly marks = this.scratch.path('marks')
  /** First on PATH. */
  readonly bin = this.scratch.path('bin')
  readonly state = this.scratch.path('state')
  readonly #started: CliProcess[] = []
  readonly #clients: Client[] = []

  constructor({ git = true }: { git?: boolean } = {}) {
    for (const folder of [this.top, this.marks, this.bin, this.state]) mkdirSync(folder)
    if (!git) return
    this.git('init', '--quiet', '--initial-branch=main')
    this.git('config', 'user.name', 'Ada')
    this.git('config', 'user.email', 'ada@example.org')
    appendFileSync(path.join(this.top, '.git/info/exclude'), '/curfew.db*\n/manager.db*\n/*.pipeline.json\n')
    this.write('shared.txt', 'one\ntwo\nthree\n')
    this.commit('First')
  }

  get env(): Record<string, string> {
    return {
      ...(this.scratch.environment() as Record<string, string>),
      PATH: `${this.bin}:${process.env.PATH}`,
      HOME: this.scratch.folder,
      MARKS: this.marks,
      XDG_STATE_HOME: this.state,
      GIT_CONFIG_GLOBAL: '/dev/null',
      GIT_CONFIG_NOSYSTEM: '1',
    }
  }

  git(...args: string[]): string {
    const { top: cwd, env } = this
    return execFileSync('git', args, { cwd, env, encoding: 'utf8', stdio: 'pipe' }).trim()
  }

  /** Relative to the repository. */
  write(file: string, text: string): void {
    mkdirSync(path.dirname(path.join(this.top, file)), { recursive: true })
    writeFileSync(path.join(this.top, file), text)
  }

  commit(message: string): void {
    this.git('add', '--all')
    this.git('commit', '--quiet', '--no-verify', '--message', message)
  }

  /** A program on PATH. */
  program(name: string, script: string): void {
    const file = path.join(this.bin, name)
    writeFileSync(file, script)
    chmodSync(file, 0o755)
  }

  /** What steps wrote to this file of `$MARKS`; null: nothing. */
  mark(name: string): string | null {
    const file = path.join(this.marks, name)
    return existsSync(file) ? readFileSync(file, 'utf8') : null
  }

  /** Its lines without the last line break. */
  lines(name: string): string[] {
    return (this.mark(name) ?? '').split('\n').slice(0, -1)
  }

  /** For steps that wait for it. */
  setMark(name: string, text = ''): void {
    writeFileSync(path.join(this.marks, name), text)
  }

  /** Until steps have written so many lines. */
  untilMarked(name: string, count = 1): Promise<string[]> {
    return until(`${count} lines in ${name}`, MARKED_MS, () => {
      const lines = this.lines(name)
      return lines.length >= count && lines
    })
  }

  /** Writes a pipeline to a file, and answers its name. Its `mode` need not be given. */
  pipeline(pipeline: object, name = 'main'): string {
    const file = `${name}.pipeline.json`
    this.write(file, JSON.stringify({ name, mode: 'mapreduce', ...pipeline }))
    return file
  }

  /** `curfew …` in the repository. */
  start(args: readonly string[], env: Record<string, string> = {}, cwd = this.top): CliProcess {
    const started = new CliProcess(args, { cwd, env: { ...this.env, ...env } })
    this.#started.push(started)
    return started
  }

  curfew(args: readonly string[], env?: Record<string, string>): Promise<Ran> {
    return this.ended(this.start(args, env))
  }

  async ended(started: CliProcess): Promise<Ran> {
    const code = await started.exited
    const { stdout, stderr } = started
    return { code, stdout, stderr, json: stdout.startsWith('{\n') ? (JSON.parse(stdout) as Summary) : null }
  }

  /** `curfew run`, which goes on while the test does. */
  launch(
    pipeline: object,
    { args = [], env = {}, name }: { args?: string[]; env?: Record<string, string>; name?: string } = {},
  ): CliProcess {
    return this.start(['run', this.pipeline(pipeline, name), '--json', ...args], env)
  }

  /** `curfew run` to its end. */
  run(pipeline: object, args: readonly string[] = [], env?: Record<string, string>): Promise<Ran> {
    return this.curfew(['run', this.pipeline(pipeline), '--json', ...args], env)
  }

  /** `curfew manager` with a store of its own, and somebody who asks it. */
  async manager(): Promise<{ args: string[]; client: Client }> {
    const started = this.start(['manager', '--store', 'manager.db', '--listen', '127.0.0.1:0', '--json'])
    const { addresses } = await started.ready()
    const client = await Curfew.connect(addresses)
    this.#clients.push(client)
    return { args: ['--manager', addresses[0]!], client }
  }

  /** While nobody else has the store. */
  async read<T>(look: (client: Awaited<ReturnType<typeof Curfew.read>>) => Promise<T>): Promise<T> {
    const client = await Curfew.read(path.join(this.top, 'curfew.db'))
    try {
      return await look(client)
    } finally {
      await client.close()
    }
  }

  /** By their ids. */
  items(jobId: string): Promise<Record<string, StoredItem>> {
    return this.read(async (client) => {
      const found: Record<string, StoredItem> = {}
      let cursor: string | null = null
      do {
        const page: Awaited<ReturnType<typeof client.list>> = await client.list({
          ...{ parent: jobId, name: '$item', limit: 100, ...(cursor !== null && { cursor }) },
        })
        for (const { id: taskId, output } of page.tasks) {
          if (output === null) continue
          const item = output as unknown as ItemOutput
          found[item.id] = { ...item, taskId, events: await client.task(taskId).events() }
        }
        cursor = page.cursor
      } while (cursor !== null)
      return found
    })
  }

  letters(jobId: string): Promise<DeadLetter[]> {
    return this.read(async (client) => {
      const letters: DeadLetter[] = []
      for await (const letter of client.deadLetters.read(jobId)) letters.push(letter)
      return letters
    })
  }

  /** Of the processes that steps wrote to `$MARKS/pids`, those that still run. */
  alive(): number[] {
    return this.lines('pids').map(Number).filter(isAlive)
  }

  /** Worktrees of the repository beside the main one. */
  worktrees(): string[] {
    return this.git('worktree', 'list', '--porcelain')
      .split('\n')
      .filter((line) => line.startsWith('worktree '))
      .slice(1)
  }

  refs(prefix: string): string[] {
    return this.git('for-each-ref', '--format=%(refname)', prefix).split('\n').filter(Boolean)
  }

  get runs(): string {
    return path.join(this.state, 'curfew/runs')
  }

  /** Runs that can be resumed, or left something. */
  runFolders(): string[] {
    return existsSync(this.runs) ? readdirSync(this.runs) : []
  }

  /** Also what no step told of, and what curfew started for itself. */
  async nothingLeft(): Promise<void> {
    await until('no process is left', 20_000, () => this.scratch.processes().length === 0)
  }

  async end(): Promise<void> {
    for (const client of this.#clients) await client.close()
    for (const started of this.#started) if (started.alive) started.kill('SIGKILL')
    await this.scratch.remove()
  }
}

/** Of one that ran to its end, well or not. */
export function summaryOf(ran: Ran): Summary {
  expect(ran.json, ran.stderr).not.toBeNull()
  return ran.json as Summary
}

/** A test with a world of its own. */
export const worldTest = base.extend<{ world: World }>({
  // biome-ignore lint/correctness/noEmptyPattern: vitest reads what a fixture needs from its pattern
  world: async ({}, use) => {
    const world = new World()
    await use(world).finally(() => world.end())
  },
})

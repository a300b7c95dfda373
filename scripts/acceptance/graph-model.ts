// What a run of random graphs must come to: their machines driven in memory, without a store, a journal or a process
// that could die. Time is a list of moments. What has no order (two moments closer than `gapMs`) is reported as tied.

import { isDeepStrictEqual } from 'node:util'
import type { WorkflowDefinition } from '../../src/curfew.ts'
import { childTimeout } from '../../src/definitions/workflow-limits.ts'
import { planWorkflow } from '../../src/definitions/workflow-plan.ts'
import { GRAPH_INPUT } from '../../src/graph/fixtures/graph-arbitraries.ts'
import { GraphDriver } from '../../src/graph/graph-driver.ts'
import { GraphRun } from '../../src/graph/graph-run.ts'
import type { GraphCommand, GraphEnd, GraphHappening, WorkEnd } from '../../src/graph/graph-types.ts'

export interface GraphTrial {
  /** The first is started; others are called. */
  workflows: readonly WorkflowDefinition[]
  /** What the tasks do. */
  seed: number
  longestMs: number
  /** Of the task `limited`, over all its attempts. */
  totalMs: number
  /** It is cancelled then, whatever it does. */
  cancelAt: number
}

/** A run and those it called last, in the words of both the model and the store. */
export interface RunOutcome {
  status: string
  /** The output, the code of a failure, the kind of a timeout. */
  detail: unknown
  tokens: string[]
  joins: string[]
  events: object[]
  called: Record<number, RunOutcome>
}

export interface ExpectedRun {
  outcome: RunOutcome
  overAt: number
  /** When something happens. */
  moments: number[]
  tokens: number
  tied: boolean
}

/** More than this is for other tests. */
const MOST_MOMENTS = 2_000

/** `exact`: times are told too. */
export function expectedRun(trial: GraphTrial, gapMs: number, exact: boolean): ExpectedRun {
  // Nobody promises in which order things come that happen at the same moment.
  const [one, other] = [false, true].map((last) => play(trial, new Timeline(gapMs, last), exact))
  const tied = !one || !other || one.tied || !isDeepStrictEqual(one.outcome, other.outcome)
  return { ...(one as ExpectedRun), tied }
}

function play(trial: GraphTrial, timeline: Timeline, exact: boolean): ExpectedRun {
  const world = { trial, timeline, exact, tokens: 0 }
  const [root] = trial.workflows as [WorkflowDefinition]
  const run = new ModelRun(world, root, GRAPH_INPUT, root.model.timeoutMs, () => forget())
  const forget = timeline.at(trial.cancelAt, () => run.stop('cancelled'))
  timeline.run()
  const { now: overAt, moments, tied } = timeline
  return { outcome: run.outcome(), overAt, moments, tokens: world.tokens, tied }
}

export interface Doing {
  ms: number
  end: 'ok' | 'fail' | 'hang'
  output: unknown
}

/** What a task does with its input, the same whenever it is asked. */
export function doingOf({ seed, longestMs }: GraphTrial, input: unknown): Doing {
  const number = hash(`${seed} ${JSON.stringify(input)}`)
  const ends = ['fail', 'hang', ...Array.from({ length: 22 }, () => 'ok')] as Doing['end'][]
  return {
    // Limits that are seldom met, so that runs get somewhere.
    ms: 1 + (number % Math.ceil(longestMs / 8)),
    end: ends[hash(`${number} end`) % ends.length] as Doing['end'],
    output: { n: hash(`${number} output`) % 4 },
  }
}

function hash(text: string): number {
  let value = 0x811c9dc5
  for (let i = 0; i < text.length; i++) value = Math.imul(value ^ text.charCodeAt(i), 0x01000193) >>> 0
  value = Math.imul(value ^ (value >>> 16), 0x45d9f3b) >>> 0
  return (value ^ (value >>> 13)) >>> 0
}

interface Moment {
  at: number
  happen: () => void
}

class Timeline {
  now = 0
  tied = false
  readonly moments: number[] = []
  readonly #gapMs: number
  readonly #last: boolean
  readonly #moments = new Set<Moment>()
  readonly #soon: (() => void)[] = []

  /** `last`: of what comes at the same moment, the last goes first. */
  constructor(gapMs: number, last: boolean) {
    this.#gapMs = gapMs
    this.#last = last
  }

  at(at: number, happen: () => void): () => void {
    const moment = { at, happen }
    if (at < Infinity) this.#moments.add(moment)
    return () => this.#moments.delete(moment)
  }

  soon(happen: () => void): void {
    this.#soon.push(happen)
  }

  run(): void {
    for (let count = 0; count < MOST_MOMENTS; count++) {
      const now = this.#last ? this.#soon.pop() : this.#soon.shift()
      if (now) {
        now()
        continue
      }
      const [next, second] = [...this.#moments].sort((a, b) => a.at - b.at)
      if (!next) return
      if (second && second.at - next.at < this.#gapMs) this.tied = true
      this.#moments.delete(next)
      this.now = next.at
      this.moments.push(next.at)
      next.happen()
    }
    this.tied = true
  }
}

interface ModelWorld {
  trial: GraphTrial
  timeline: Timeline
  exact: boolean
  tokens: number
}

type RunCommand = Extract<GraphCommand, { type: 'run' }>

class ModelRun {
  readonly #world: ModelWorld
  readonly #graph: GraphRun
  readonly #driver: GraphDriver
  readonly #definition: WorkflowDefinition
  readonly #tell: (end: WorkEnd) => void
  readonly #timeoutMs: number | null
  readonly #events: object[] = []
  readonly #called = new Map<number, ModelRun>()
  /** How to stop what a token does. */
  readonly #works = new Map<number, () => void>()
  readonly #timers = new Map<number, () => void>()
  readonly #forget: () => void

  constructor(
    world: ModelWorld,
    definition: WorkflowDefinition,
    input: unknown,
    timeoutMs: number | null,
    tell: (end: WorkEnd) => void,
  ) {
    this.#world = world
    this.#definition = definition
    this.#tell = tell
    this.#timeoutMs = timeoutMs
    this.#graph = new GraphRun(planWorkflow(definition.model), input)
    const { timeline } = world
    this.#driver = new GraphDriver(this.#graph, {
      run: (command) => this.#run(command),
      timer: (timer, ms) => {
        const forget = timeline.at(timeline.now + ms, () => this.#happen({ type: 'time', timer }))
        this.#timers.set(timer, forget)
      },
      clear: (timer) => this.#timers.get(timer)?.(),
      stop: (token) => this.#works.get(token)?.(),
      record: (event) => this.#events.push(told(event, world.exact ? timeline.now : 0)),
    })
    this.#forget = timeline.at(timeline.now + (timeoutMs ?? Infinity), () => this.stop('timed_out'))
    timeline.soon(() => this.#begin())
  }

  #begin(): void {
    if (this.#graph.end) return // stopped before it had a turn
    this.#driver.start()
    if (this.#graph.end) this.#over(this.#graph.end)
  }

  stop(reason: 'timed_out' | 'cancelled'): void {
    this.#happen({ type: 'stopped', reason, ...(this.#timeoutMs !== null && { timeoutMs: this.#timeoutMs }) })
  }

  outcome(): RunOutcome {
    const { tokens, scopes, end } = this.#graph
    const called = [...this.#called].map(([token, run]) => [token, run.outcome()])
    return {
      // Without an end it was too large to be played, and is tied.
      ...(end ? this.#end(end) : { status: 'running', detail: null }),
      tokens: tokens.map(({ node, status, retries, scopes: at, timeoutType }) => {
        const branches = at.map(({ scope, branch }) => ({ group: scope.group, index: branch.index }))
        return describeToken({ node: node.id, status, retries, branches, timeoutType })
      }),
      joins: scopes.flatMap((scope) =>
        scope.joins.map(({ transition, arrived, fired, timeoutMs }) => {
          const { group, total: expected } = scope
          const counts = { expected, arrived: arrived.size }
          return describeJoin({ transition: transition.id, group, ...counts, fired, timeoutMs })
        }),
      ),
      events: this.#events,
      called: Object.fromEntries(called),
    }
  }

  #end(end: GraphEnd): Pick<RunOutcome, 'status' | 'detail'> {
    if (end.status === 'completed') return { status: 'completed', detail: end.output }
    if (end.status === 'failed') return { status: 'failed', detail: end.failure.code }
    if (end.reason === 'cancelled') return { status: 'cancelled', detail: null }
    if (this.#definition.model.onTimeout === 'fail') return { status: 'failed', detail: 'workflow_timeout' }
    return { status: 'timed_out', detail: 'workflow' }
  }

  #happen(happening: GraphHappening): void {
    if (this.#graph.end) return
    this.#driver.happen(happening)
    if (this.#graph.end) this.#over(this.#graph.end)
  }

  /** What it left open stops with it. */
  #over(end: GraphEnd): void {
    this.#forget()
    this.#world.tokens += this.#graph.tokens.length
    for (const forget of this.#timers.values()) forget()
    for (const stop of this.#works.values()) stop()
    const { detail } = this.#end(end)
    const failure = { code: String(detail), message: '', retryable: false }
    this.#world.timeline.soon(() => {
      if (end.status === 'completed') this.#tell({ status: 'completed', output: end.output })
      else if (end.status === 'failed') this.#tell({ status: 'failed', failure, timeoutKind: null })
      else if (end.reason === 'cancelled') this.#tell({ status: 'cancelled', failure, timeoutKind: null })
      else {
        const timeout = { timeoutKind: 'workflow' as const, timeoutMs: this.#timeoutMs }
        this.#tell({ status: 'timed_out', failure: { ...failure, code: 'workflow_timeout' }, ...timeout })
      }
    })
  }

  #run({ token, node, action, work, limits }: RunCommand): void {
    const { trial, timeline } = this.#world
    const { now } = timeline
    const tell = (end: WorkEnd) => {
      this.#works.delete(token)
      this.#happen({ type: 'ended', token, end })
    }
    if (work.kind === 'workflow') {
      const called = trial.workflows.find(({ name }) => name === work.name) as WorkflowDefinition
      const { ms } = childTimeout(node, action, called.model)
      const run = new ModelRun(this.#world, called, work.input, ms, tell)
      this.#called.set(token, run)
      this.#works.set(token, () => run.stop('cancelled'))
      return
    }
    const failed = (status: 'failed' | 'timed_out' | 'cancelled', code: string): WorkEnd => ({
      status,
      failure: { code, message: '', retryable: false },
      timeoutKind: null,
    })
    const doing = doingOf(trial, work.input)
    const end: WorkEnd =
      doing.end === 'ok' ? { status: 'completed', output: doing.output } : failed('failed', 'broken')
    const forgets: (() => void)[] = []
    const over = (with_: WorkEnd) => {
      for (const forget of forgets) forget()
      tell(with_)
    }
    const timesOut = (kind: 'execution' | 'total', timeoutMs: number | null) => {
      const timedOut = { ...failed('timed_out', `${kind}_timeout`), timeoutKind: kind, timeoutMs } as WorkEnd
      forgets.push(timeline.at(now + (timeoutMs ?? Infinity), () => over(timedOut)))
    }
    forgets.push(timeline.at(doing.end === 'hang' ? Infinity : now + doing.ms, () => over(end)))
    timesOut('execution', limits.timeout.ms)
    if (work.kind === 'task' && work.name === 'limited') timesOut('total', trial.totalMs)
    this.#works.set(token, () => {
      for (const forget of forgets) forget()
      timeline.soon(() => tell(failed('cancelled', 'cancelled')))
    })
  }
}

/** An event without its words. */
export function told(event: { type: string }, at: number): object {
  const { message: _message, ...rest } = event as { type: string; message?: string }
  return { at, ...rest }
}

export function describeToken(token: {
  node: string
  status: string
  retries: number
  branches: readonly { group: string; index: number }[]
  timeoutType: string | null
}): string {
  const branches = token.branches.map(({ group, index }) => `${group}[${index}]`)
  const how = token.status === 'timed_out' ? `${token.timeoutType} ` : ''
  return `${[token.node, ...branches].join(' ')}: ${how}${token.status}, again ${token.retries}`
}

export function describeJoin(join: {
  transition: string
  group: string
  expected: number
  arrived: number
  fired: boolean
  timeoutMs: number | null
}): string {
  const { transition, group, expected, arrived, fired, timeoutMs } = join
  return `${transition} of ${group}: ${arrived} of ${expected}${fired ? ', fired' : ''}, ${timeoutMs} ms`
}

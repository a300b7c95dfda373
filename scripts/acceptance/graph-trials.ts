// Random graphs through the public API, on the virtual clock, while their process is killed, closed and opened again,
// and their runs are evicted.

import { DatabaseSync } from 'node:sqlite'
import { isEnded } from '../../src/core/states.ts'
import type { Curfew, JoinView, TaskContext, TaskEventView, TaskView } from '../../src/curfew.ts'
import { task } from '../../src/curfew.ts'
import { decodeWaits } from '../../src/engine/agent-waits.ts'
import { GRAPH_INPUT } from '../../src/graph/fixtures/graph-arbitraries.ts'
import type { Generation } from './agent-outside.ts'
import { Outside } from './agent-outside.ts'
import type { Disturbances } from './disturbed-engine.ts'
import { DisturbedEngine } from './disturbed-engine.ts'
import type { GraphTrial, RunOutcome } from './graph-model.ts'
import { describeJoin, describeToken, doingOf, told } from './graph-model.ts'
import type { World } from './world.ts'

export interface EndedRun {
  outcome: RunOutcome
  /** What must not be. */
  problems: string[]
  transactions: number
}

/** Of those in a journal; others are plain. */
const EVENTS = ['token_timed_out', 'token_failed', 'join_fired', 'join_failed', 'join_warning']
const LIVE = ['dispatched', 'executing', 'waiting_for_siblings', 'waiting_for_subworkflow']

export class GraphTrialRun {
  readonly #world: World
  readonly #trial: GraphTrial
  readonly #engine: DisturbedEngine
  readonly #outside = new Outside()
  readonly #problems: string[] = []
  /** When it is looked at while it runs. */
  readonly #probes: readonly number[]
  /** When its joins have to be looked at, as it was told last, and when that was. */
  #due: { toldAt: number; times: number[] } = { toldAt: -1, times: [] }
  #rootId = ''

  constructor(world: World, trial: GraphTrial, disturbances: Disturbances) {
    this.#world = world
    this.#trial = trial
    this.#probes = disturbances.restarts.map(({ at }) => at)
    this.#engine = new DisturbedEngine(
      world,
      disturbances,
      (generation) => this.#code(generation),
      (file) => this.#autopsy(file),
    )
  }

  run(overAt: number): Promise<EndedRun> {
    return this.#engine.watch(async () => {
      const engine = this.#engine
      const { workflows, cancelAt } = this.#trial
      const curfew = await engine.alive()
      const [root] = workflows as [(typeof workflows)[number]]
      this.#rootId = (await curfew.start(root, GRAPH_INPUT)).id
      engine.counting = true
      const cancel = () => engine.call((alive) => alive.workflow(this.#rootId).cancel())
      const probes = this.#probes.map((at) => ({ at, act: () => engine.call((alive) => this.#probe(alive)) }))
      const cancels = cancelAt <= overAt ? [{ at: cancelAt, act: cancel }] : []
      await engine.perform([...cancels, ...probes], overAt + 1)
      return this.#ended()
    })
  }

  #code(generation: Generation) {
    const { workflows, totalMs } = this.#trial
    const run = (input: unknown, ctx: TaskContext) => this.#work(generation, input, ctx)
    const work = task({ name: 'work', retention: '400d', run })
    const limited = task({ name: 'limited', retention: '400d', timeout: totalMs, run })
    return { tasks: [work, limited], workflows }
  }

  async #work(generation: Generation, input: unknown, ctx: TaskContext): Promise<unknown> {
    const { ms, end, output } = doingOf(this.#trial, input)
    await this.#outside.work(generation, { ms, end, flaky: 0 }, ctx)
    return output
  }

  /** At rest: whoever is live does something, and has its deadline. */
  async #probe(curfew: Curfew): Promise<void> {
    const { status, tokens, joins } = await curfew.workflow(this.#rootId).run()
    const live = tokens.filter((token) => LIVE.includes(token.status))
    if (status === 'running' && live.length === 0) this.#problems.push('it runs without a live token')
    if (isEnded(status) && live.length > 0) this.#problems.push(`it is ${status} with a live token`)
    for (const { id, node, status: now, workId, deadlineAt } of live) {
      if (now === 'waiting_for_siblings') continue
      const work = workId === null ? null : await curfew.task(workId).view()
      if (!work || work.settled) this.#problems.push(`token ${id} (${node}) is ${now}, and nobody is at it`)
      if (!work || work.status === 'pending') continue // a queue has limits of its own
      const isLimited = work.deadlineAt !== null || work.attemptDeadlineAt !== null
      if (isLimited !== (deadlineAt !== null)) this.#problems.push(`token ${id} (${node}) has a deadline`)
    }
    const times = isEnded(status) ? [] : joins.flatMap((join) => this.#dueOf(join))
    this.#due = { toldAt: this.#world.now, times }
    for (const { transition, arrived, fired, timeoutMs, deadlineAt } of joins) {
      const waits = arrived > 0 && !fired && timeoutMs !== null
      if (deadlineAt !== null && !waits)
        this.#problems.push(`join ${transition} has a deadline, and waits for nobody`)
    }
  }

  /** Its limit, and the warning of it. */
  #dueOf({ transition, timeoutMs, deadlineAt }: JoinView): number[] {
    if (timeoutMs === null || deadlineAt === null) return []
    const [root] = this.#trial.workflows
    const { synchronization } = root?.model.transitions.find(({ id }) => id === transition) ?? {}
    const warnAt = deadlineAt - timeoutMs + Math.ceil(timeoutMs * (synchronization?.warnAt ?? 1))
    return warnAt > this.#world.now && warnAt < deadlineAt ? [warnAt, deadlineAt] : [deadlineAt]
  }

  /** What was on disk when a process died. */
  #autopsy(file: string): void {
    const database = new DatabaseSync(file, { readOnly: true })
    const rows = database
      .prepare(
        `select id, status, due_at, deadline_at, attempt_deadline_at from tasks
         where (settled_at is not null and due_at is not null)
         or (status in ('pending', 'running') and parked is null and coalesce(due_at, 9e15) >
           min(coalesce(deadline_at, 9e15), coalesce(attempt_deadline_at, 9e15)))`,
      )
      .all()
    const [root] = database.prepare('select waits from tasks where id = ?').all(this.#rootId)
    database.close()
    const timers = decodeWaits((root?.waits ?? null) as string | null).timers.map(([, at]) => at)
    if (this.#due.toldAt === this.#world.now) {
      const [onDisk, told] = [timers, this.#due.times].map((times) => times.toSorted((a, b) => a - b).join())
      if (onDisk !== told) this.#problems.push(`on disk: timers at ${onDisk}, joins at ${told}`)
    }
    for (const row of rows) this.#problems.push(`on disk: ${JSON.stringify(row)}`)
  }

  async #ended(): Promise<EndedRun> {
    const curfew = await this.#engine.alive()
    this.#engine.counting = false
    const views = new Map((await allOf(curfew)).map((view) => [view.id, view]))
    for (const { id, status, settled, parked } of views.values()) {
      if (!settled) this.#problems.push(`${id} is ${status}, not settled ${parked ?? ''}`)
    }
    const outcome = await this.#outcome(curfew, views, this.#rootId)
    const { transactions, lines } = this.#engine
    await this.#auditStore(curfew)
    const problems = [...this.#problems, ...this.#outside.problems, ...lines]
    return { outcome, problems, transactions }
  }

  async #outcome(curfew: Curfew, views: Map<string, TaskView>, id: string): Promise<RunOutcome> {
    const handle = curfew.workflow(id)
    const { status, failure, timeoutKind, output } = views.get(id) as TaskView
    const { tokens, joins } = await handle.run()
    for (const { id: token, status: now, deadlineAt } of tokens) {
      if (LIVE.includes(now)) this.#problems.push(`${id}: token ${token} is ${now} after the end`)
      // One that timed out says which deadline it was.
      if (deadlineAt !== null && now !== 'timed_out')
        this.#problems.push(`${id}: token ${token} has a deadline after the end`)
    }
    for (const { transition, deadlineAt } of joins) {
      if (deadlineAt !== null) this.#problems.push(`${id}: join ${transition} has a deadline after the end`)
    }
    const events = (await handle.events()).filter(({ type }) => EVENTS.includes(type))
    this.#auditEvents(events, joins)
    const called: RunOutcome['called'] = {}
    for (const { id: token, workId } of tokens) {
      const work = workId === null ? undefined : views.get(workId)
      if (work && work.kind === 'workflow') called[token] = await this.#outcome(curfew, views, work.id)
    }
    return {
      status,
      detail: status === 'completed' ? output : status === 'failed' ? failure?.code : timeoutKind,
      tokens: tokens.map(describeToken),
      joins: joins.map(describeJoin),
      events: events.map((event) => this.#told(event)),
      called,
    }
  }

  #auditEvents(events: readonly TaskEventView[], joins: readonly JoinView[]): void {
    const seen = new Set<string>()
    for (const { type, tokenId, attempt } of events) {
      if (type !== 'token_timed_out') continue
      const what = `token ${tokenId}, attempt ${attempt}`
      if (seen.has(what)) this.#problems.push(`${what} has timed out twice`)
      seen.add(what)
    }
    for (const { transition } of joins) {
      const told = events.filter((event) => event.type === 'join_fired' && event.transition === transition)
      const fired = joins.filter((join) => join.transition === transition && join.fired)
      if (told.length !== fired.length)
        this.#problems.push(`join ${transition} has fired ${told.length} times`)
    }
  }

  #told({ taskId: _taskId, seq: _seq, at, ...event }: TaskEventView): object {
    return told(event as { type: string }, this.#engine.isExact ? at - this.#engine.startedAt : 0)
  }

  /** An ended row has no deadline. */
  async #auditStore(curfew: Curfew): Promise<void> {
    if (this.#world.kind === 'memory') return
    if (this.#world.kind === 'file') await this.#world.close(curfew)
    const rows = await this.#world.sql('select id, status, due_at from curfew.tasks where due_at is not null')
    for (const { id, status } of rows) this.#problems.push(`${id} is ${status}, and something of it is due`)
  }
}

async function allOf(curfew: Curfew): Promise<TaskView[]> {
  const views: TaskView[] = []
  let cursor: string | null = null
  do {
    const page: { tasks: TaskView[]; cursor: string | null } = await curfew.list({
      limit: 1_000,
      ...(cursor !== null && { cursor }),
    })
    views.push(...page.tasks)
    cursor = page.cursor
  } while (cursor !== null)
  return views
}

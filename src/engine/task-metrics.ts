/** Counters and histograms of what was committed, one registry per engine. */
import { Counter, Gauge, Histogram, Registry } from 'prom-client'
import type { WorkKind } from '../core/own-work.ts'
import { queueLabel, workName } from '../core/own-work.ts'
import type { TaskStatus } from '../core/states.ts'
import type { TaskRow } from '../store/task-row.ts'
import type { Tally } from './tally.ts'
import { Tallies } from './tally.ts'
import type { TaskEventBody } from './task-event.ts'

const SECONDS = [0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 600, 1_800, 3_600]
const LATENESS_SECONDS = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 5, 30]

const AGENT_SECONDS = [...SECONDS, 6 * 3_600, 86_400, 7 * 86_400]

type Outcome = 'completed' | 'failed' | 'timeout' | 'cancelled'

interface EveryTask {
  wait: Tally
  duration: Tally
}

export class TaskMetrics {
  readonly registry = new Registry()
  /** By queue, then by name. */
  readonly #ofEveryTask = new Map<string, Map<string, EveryTask>>()
  readonly #timeouts = this.#counter('curfew_task_timeouts_total', 'Tasks that timed out', ['queue', 'kind'])
  readonly #retries = this.#counter('curfew_task_retries_total', 'Attempts that were scheduled again', [
    'queue',
    'name',
  ])
  readonly #lost = this.#counter('curfew_attempts_lost_total', 'Attempts whose worker died', [
    'queue',
    'name',
  ])
  readonly #receipts = this.#counter('curfew_receipts_total', 'How stopped attempts ended', ['receipt'])
  readonly #late = this.#counter('curfew_late_results_total', 'Results that came after the outcome', [
    'queue',
    'name',
  ])
  readonly #repaired = this.#counter(
    'curfew_repaired_total',
    'Records that waited for nothing and were repaired',
    [],
  )
  readonly #duration = new Tallies(this.registry, {
    name: 'curfew_task_duration_seconds',
    help: 'From the start of the last attempt to the outcome',
    labelNames: ['queue', 'name', 'outcome'],
    bounds: SECONDS,
  }).countAs({ name: 'curfew_tasks_ended_total', help: 'Tasks that reached their outcome' })
  readonly #wait = new Tallies(this.registry, {
    name: 'curfew_task_queue_wait_seconds',
    help: 'From when a task may start to its start',
    labelNames: ['queue', 'name'],
    bounds: SECONDS,
  })
  readonly #lateness = this.#histogram(
    'curfew_deadline_lateness_seconds',
    'How late deadlines fired',
    ['kind'],
    LATENESS_SECONDS,
  )
  readonly #agents = this.#counter('curfew_agents_ended_total', 'Agents that reached their outcome', [
    'name',
    'outcome',
  ])
  readonly #agentDuration = this.#histogram(
    'curfew_agent_duration_seconds',
    'From the start of an agent to its outcome',
    ['name', 'outcome'],
    AGENT_SECONDS,
  )
  readonly #turns = this.#counter('curfew_agent_turns_total', 'Turns that started', ['name'])
  readonly #parked = this.#counter('curfew_agents_parked_total', 'Agents that were parked', ['name', 'code'])
  readonly #runs = this.#counter('curfew_runs_ended_total', 'Workflows and jobs that reached their outcome', [
    'kind',
    'name',
    'outcome',
  ])
  readonly #runDuration = this.#histogram(
    'curfew_run_duration_seconds',
    'From the start of a workflow or job to its outcome',
    ['kind', 'name', 'outcome'],
    AGENT_SECONDS,
  )
  readonly #tokens = this.#counter('curfew_token_timeouts_total', 'Tokens that timed out', [
    'workflow',
    'type',
    'policy',
  ])
  readonly #transfers = this.#counter(
    'curfew_attempt_transfers_total',
    'Attempts and turns that workers came back with',
    ['answer'],
  )
  readonly #workers = new Gauge({
    name: 'curfew_workers',
    help: 'Workers of other processes by state',
    labelNames: ['state'],
    registers: [this.registry],
  })
  readonly #slots = new Gauge({
    name: 'curfew_slots',
    help: 'Slots of this process by state',
    labelNames: ['state'],
    registers: [this.registry],
  })

  completed(queue: string, name: string, durationMs: number): void {
    this.#everyTask(queueLabel(queue), name).duration.observe(durationMs / 1_000)
  }

  started(queue: string, name: string, waitedMs: number): void {
    this.#everyTask(queueLabel(queue), name).wait.observe(Math.max(0, waitedMs) / 1_000)
  }

  /** What is counted for every task: finding it by its labels costs more than counting. */
  #everyTask(queue: string, name: string): EveryTask {
    const ofQueue = this.#ofEveryTask.get(queue) ?? new Map<string, EveryTask>()
    const known = ofQueue.get(name)
    if (known) return known
    const found = {
      wait: this.#wait.of(queue, name),
      duration: this.#duration.of(queue, name, 'completed'),
    }
    this.#ofEveryTask.set(queue, ofQueue.set(name, found))
    return found
  }

  recorded(row: TaskRow, event: TaskEventBody): void {
    const { name } = row
    const queue = queueLabel(row.queue)
    const durationMs = row.startedAt === null ? 0 : (row.endedAt ?? row.startedAt) - row.startedAt
    switch (event.type) {
      case 'task_timed_out':
        this.#timeouts.labels(queue, event.kind).inc()
        this.#lateness.labels(event.kind).observe(event.lateMs / 1_000)
        return this.#end(queue, name, 'timeout', durationMs)
      case 'task_failed':
        return this.#end(queue, name, 'failed', durationMs)
      case 'task_cancelled':
        return this.#end(queue, name, 'cancelled', durationMs)
      case 'attempt_timed_out':
        return this.#lateness.labels(event.kind).observe(event.lateMs / 1_000)
      case 'retry_scheduled':
        return this.#retries.labels(queue, name).inc()
      case 'attempt_lost':
        return this.#lost.labels(queue, name).inc()
      case 'attempt_stopped':
        return this.#receipts.labels(event.receipt).inc()
      case 'agent_timed_out':
        if ('failure' in event) return
        return this.#lateness.labels(event.kind).observe(event.lateMs / 1_000)
      case 'agent_parked':
        return this.#parked.labels(name, event.code).inc()
      case 'token_timed_out':
        return this.#tokens.labels(workName(row), event.timeoutType, event.policyApplied).inc()
      case 'late_result':
        return this.#late.labels(queue, name).inc()
    }
  }

  turn(name: string): void {
    this.#turns.labels(name).inc()
  }

  runEnded({ kind, name }: { kind: WorkKind; name: string }, status: TaskStatus, tookMs: number): void {
    const outcome = status === 'timed_out' ? 'timeout' : status
    if (kind === 'agent') {
      this.#agents.labels(name, outcome).inc()
      this.#agentDuration.labels(name, outcome).observe(tookMs / 1_000)
    } else {
      this.#runs.labels(kind, name, outcome).inc()
      this.#runDuration.labels(kind, name, outcome).observe(tookMs / 1_000)
    }
  }

  repaired(): void {
    this.#repaired.inc()
  }

  transferred(answer: 'accepted' | 'rejected', count: number): void {
    this.#transfers.labels(answer).inc(count)
  }

  workers(states: Record<'attached' | 'silent', number>): void {
    for (const [state, count] of Object.entries(states)) this.#workers.labels(state).set(count)
  }

  slots(states: Record<'taken' | 'free' | 'abandoned', number>): void {
    for (const [state, count] of Object.entries(states)) this.#slots.labels(state).set(count)
  }

  #end(queue: string, name: string, outcome: Outcome, durationMs: number): void {
    this.#duration.of(queue, name, outcome).observe(durationMs / 1_000)
  }

  #counter(name: string, help: string, labelNames: string[]): Counter {
    return new Counter({ name, help, labelNames, registers: [this.registry] })
  }

  #histogram(name: string, help: string, labelNames: string[], buckets: number[]): Histogram {
    return new Histogram({ name, help, labelNames, buckets, registers: [this.registry] })
  }
}

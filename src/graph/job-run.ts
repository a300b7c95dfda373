/**
 * A job: workflows that wait for each other. Pure, as a graph run is: what happens goes in, what to start and to stop
 * comes out. Linear in the size of the job, however its workflows depend on each other.
 */
import type { Failure } from '../core/failure.ts'
import type { TimeoutKind } from '../core/states.ts'
import type { JobModel, JobWorkflowModel } from '../definitions/job-model.ts'
import type { WorkEnd } from './graph-types.ts'

/** A signal to a job: one of its workflows, with or without those that wait for it. */
export const CANCEL_MEMBER = '$cancel'

export type MemberStatus = 'pending' | 'running' | 'completed' | 'failed' | 'timed_out' | 'cancelled'

export interface Member {
  readonly model: JobWorkflowModel
  status: MemberStatus
  failure: Failure | null
  timeoutKind: TimeoutKind | null
  /** Somebody asked for it. */
  cancelRequested: boolean
}

export type JobHappening =
  | { type: 'ended'; id: string; end: WorkEnd }
  | { type: 'cancel'; id: string; dependents: boolean }

export type JobCommand = { type: 'run'; member: Member } | { type: 'stop'; id: string }

export type JobEnd =
  | { status: 'completed' }
  | { status: 'failed' | 'timed_out' | 'cancelled'; failure: Failure; timeoutKind: TimeoutKind | null }

/** A member and where it stands among the others. */
interface Place {
  member: Member
  dependents: Place[]
  /** How many of those it depends on have not ended. */
  open: number
  /** The first of them that did not complete. */
  bad: Member | null
}

export class JobRun {
  readonly members = new Map<string, Member>()
  end: JobEnd | null = null
  readonly #failFast: boolean
  readonly #places = new Map<string, Place>()
  /** The first, in time, that did not complete; those that were cancelled because of another aside. */
  #first: Member | null = null
  #open: number
  #stopping = false
  /** Those whose dependents have not been looked at yet. */
  readonly #closed: Member[] = []
  readonly #commands: JobCommand[] = []

  constructor(model: JobModel) {
    this.#failFast = model.failFast
    this.#open = model.workflows.length
    for (const workflow of model.workflows) {
      const member: Member = {
        model: workflow,
        status: 'pending',
        failure: null,
        timeoutKind: null,
        cancelRequested: false,
      }
      this.members.set(workflow.id, member)
      this.#places.set(workflow.id, { member, dependents: [], open: workflow.dependsOn.length, bad: null })
    }
    for (const { id, dependsOn } of model.workflows) {
      for (const other of dependsOn) this.#place(other).dependents.push(this.#place(id))
    }
  }

  start(): JobCommand[] {
    for (const place of this.#places.values()) this.#consider(place)
    return this.#settle()
  }

  happen(happening: JobHappening): JobCommand[] {
    const place = this.#places.get(happening.id)
    if (this.end || !place) return []
    if (happening.type === 'cancel') this.#cancel(place, happening.dependents)
    else if (place.member.status === 'running') this.#ended(place, happening.end)
    return this.#settle()
  }

  /** Everything that waits for one, at any depth, itself not: each after all that wait for it. */
  dependentsOf(id: string): Member[] {
    const found: Member[] = []
    const met = new Set<Place>()
    const path = [{ place: this.#place(id), next: 0 }]
    for (let at = path.at(-1); at; at = path.at(-1)) {
      const dependent = at.place.dependents[at.next++]
      if (dependent === undefined) {
        path.pop()
        if (path.length > 0) found.push(at.place.member)
      } else if (!met.has(dependent)) {
        met.add(dependent)
        path.push({ place: dependent, next: 0 })
      }
    }
    return found
  }

  #place(id: string): Place {
    return this.#places.get(id) as Place
  }

  #settle(): JobCommand[] {
    if (this.#open === 0 && !this.end) this.end = this.#outcome()
    return this.#commands.splice(0)
  }

  #outcome(): JobEnd {
    const asked = [...this.members.values()].find((one) => one.cancelRequested && one.status === 'cancelled')
    const first = this.#first ?? asked
    if (!first) return { status: 'completed' }
    const { model, failure, timeoutKind } = first
    const status = first.status as keyof typeof WORDS
    const message = `workflow ${model.id} ${WORDS[status]}${failure ? `: ${failure.message}` : ''}`
    const code = failure?.code ?? status
    const cause = failure && { cause: failure }
    return { status, failure: { code, message, retryable: false, ...cause }, timeoutKind }
  }

  /** Whether it may start, has to wait, or never will. */
  #consider({ member, open, bad }: Place): void {
    if (member.status !== 'pending' || open > 0) return
    const { runIf, dependsOn } = member.model
    const onlyBad = runIf === 'failed' && dependsOn.length > 0
    if (runIf === 'always' || onlyBad === (bad !== null)) {
      member.status = 'running'
      this.#commands.push({ type: 'run', member })
    } else this.#close(member, 'cancelled', skipped(bad))
  }

  #ended({ member }: Place, end: WorkEnd): void {
    if (end.status === 'completed') return this.#close(member, 'completed', null)
    member.timeoutKind = end.timeoutKind
    this.#first ??= member
    // One that somebody cancelled is no failure: the others were not meant.
    if (!this.#failFast || this.#stopping || end.status === 'cancelled')
      return this.#close(member, end.status, end.failure)
    this.#stopping = true
    const others = [...this.members.values()].filter((other) => other !== member)
    const running = others.filter(({ status }) => status === 'running')
    this.#close(member, end.status, end.failure)
    // What was to run after a bad end does.
    for (const other of others) {
      if (other.status === 'pending' && other.model.runIf === 'completed')
        this.#close(other, 'cancelled', stoppedWith(member))
    }
    for (const { model } of running) this.#commands.push({ type: 'stop', id: model.id })
  }

  /** Closing one may close those that wait for it, and so on: one after the other, as a chain may be long. */
  #close(member: Member, status: MemberStatus, failure: Failure | null): void {
    member.status = status
    member.failure = failure
    this.#open--
    this.#closed.push(member)
    if (this.#closed.length > 1) return
    for (const closed of this.#closed) {
      for (const dependent of this.#place(closed.model.id).dependents) {
        dependent.open--
        if (closed.status !== 'completed') dependent.bad ??= closed
        this.#consider(dependent)
      }
    }
    this.#closed.length = 0
  }

  /** Of one that has ended there is nothing left to cancel; one that was cancelled may have left its dependents. */
  #cancel({ member }: Place, dependents: boolean): void {
    const { status, model } = member
    if (status !== 'pending' && status !== 'running' && status !== 'cancelled') return
    // Dependents before their target: nothing of it starts afterwards.
    for (const other of dependents ? this.dependentsOf(model.id) : []) this.#cancelOne(other, member)
    this.#cancelOne(member, null)
  }

  #cancelOne(member: Member, target: Member | null): void {
    const { status, model } = member
    if (member.cancelRequested || (status !== 'pending' && status !== 'running')) return
    member.cancelRequested = true
    if (status === 'running') return void this.#commands.push({ type: 'stop', id: model.id })
    if (!target) this.#first ??= member
    this.#close(member, 'cancelled', cancelled(target))
  }
}

function skipped(bad: Member | null): Failure {
  const message = bad
    ? `workflow ${bad.model.id}, which it depends on, ${WORDS[bad.status as keyof typeof WORDS]}`
    : 'it runs only if one that it depends on does not complete'
  return {
    code: 'dependency',
    message,
    retryable: false,
    ...(bad && { details: { workflow: bad.model.id } }),
  }
}

function stoppedWith({ model: { id }, status }: Member): Failure {
  const message = `the job stops: workflow ${id} ${WORDS[status as keyof typeof WORDS]}`
  return { code: 'fail_fast', message, retryable: false, details: { workflow: id } }
}

function cancelled(target: Member | null): Failure {
  if (!target) return { code: 'cancelled', message: 'it was cancelled', retryable: false }
  const { id } = target.model
  const message = `it was cancelled with workflow ${id}, which it depends on`
  return { code: 'cancelled', message, retryable: false, details: { workflow: id } }
}

const WORDS = { failed: 'failed', timed_out: 'timed out', cancelled: 'was cancelled' }

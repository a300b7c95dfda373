/**
 * A job: workflows that wait for each other. Pure, as a graph run is: what happens goes in, what to start and to stop
 * comes out.
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
  output: unknown
  failure: Failure | null
  timeoutKind: TimeoutKind | null
  /** Somebody asked for it. */
  cancelRequested: boolean
  /** It did not run because of one it depends on, or because of one that failed. */
  because: string | null
}

export type JobHappening =
  | { type: 'ended'; id: string; end: WorkEnd }
  | { type: 'cancel'; id: string; dependents: boolean }

export type JobCommand = { type: 'run'; member: Member } | { type: 'stop'; id: string }

export type JobEnd =
  | { status: 'completed' }
  | { status: 'failed' | 'timed_out' | 'cancelled'; failure: Failure; timeoutKind: TimeoutKind | null }

export class JobRun {
  readonly members = new Map<string, Member>()
  end: JobEnd | null = null
  readonly #model: JobModel
  readonly #dependents = new Map<string, string[]>()
  /** The first, in time, that did not complete. */
  #first: Member | null = null
  #open: number
  #stopping = false
  readonly #commands: JobCommand[] = []

  constructor(model: JobModel) {
    this.#model = model
    this.#open = model.workflows.length
    for (const workflow of model.workflows) {
      this.members.set(workflow.id, {
        model: workflow,
        status: 'pending',
        output: null,
        failure: null,
        timeoutKind: null,
        cancelRequested: false,
        because: null,
      })
      for (const id of workflow.dependsOn) {
        const known = this.#dependents.get(id)
        if (known) known.push(workflow.id)
        else this.#dependents.set(id, [workflow.id])
      }
    }
  }

  start(): JobCommand[] {
    for (const member of this.members.values()) this.#consider(member)
    return this.#settle()
  }

  happen(happening: JobHappening): JobCommand[] {
    const member = this.members.get(happening.id)
    if (this.end || !member) return []
    if (happening.type === 'cancel') this.#cancel(member, happening.dependents)
    else if (member.status === 'running') this.#ended(member, happening.end)
    return this.#settle()
  }

  /** Everything below one, itself not, those furthest away first. */
  dependentsOf(id: string): Member[] {
    const found = new Set<string>()
    const walk = [...(this.#dependents.get(id) ?? [])]
    for (let next = walk.pop(); next !== undefined; next = walk.pop()) {
      found.delete(next)
      found.add(next)
      walk.push(...(this.#dependents.get(next) ?? []))
      if (found.size > this.members.size) break
    }
    return [...found].toReversed().map((one) => this.members.get(one) as Member)
  }

  #settle(): JobCommand[] {
    if (this.#open === 0 && !this.end) this.end = this.#outcome()
    return this.#commands.splice(0)
  }

  #outcome(): JobEnd {
    const first = this.#first
    if (!first) return { status: 'completed' }
    const { model, status, failure, timeoutKind } = first
    const message = `workflow ${model.id} ${WORDS[status as keyof typeof WORDS]}${failure ? `: ${failure.message}` : ''}`
    const code = failure?.code ?? status
    return {
      status: status as 'failed',
      failure: { code, message, retryable: false, ...(failure && { cause: failure }) },
      timeoutKind,
    }
  }

  /** Whether it may start, has to wait, or never will. */
  #consider(member: Member): void {
    if (member.status !== 'pending') return
    const { dependsOn, runIf } = member.model
    const waited = dependsOn.map((id) => this.members.get(id) as Member)
    if (waited.some(({ status }) => status === 'pending' || status === 'running')) return
    const bad = waited.find(({ status }) => status !== 'completed')
    const runs = runIf === 'always' || (runIf === 'failed' ? bad !== undefined : bad === undefined)
    if (runs && !this.#stopping) {
      member.status = 'running'
      this.#commands.push({ type: 'run', member })
    } else this.#skip(member, bad?.model.id ?? dependsOn[0] ?? null)
  }

  #skip(member: Member, because: string | null): void {
    member.because = because
    const on = because === null ? undefined : this.members.get(because)
    const why = on ? `workflow ${because}, which it depends on, is ${on.status}` : 'the job stops'
    this.#close(member, 'cancelled', { code: 'dependency', message: why, retryable: false })
  }

  #ended(member: Member, end: WorkEnd): void {
    if (end.status === 'completed') {
      member.output = end.output
      return this.#close(member, 'completed', null)
    }
    member.timeoutKind = end.timeoutKind
    this.#first ??= member
    this.#close(member, end.status, end.failure)
    if (this.#model.failFast && !this.#stopping) {
      this.#stopping = true
      for (const other of this.members.values()) {
        if (other.status === 'running') this.#commands.push({ type: 'stop', id: other.model.id })
        else if (other.status === 'pending') this.#skip(other, member.model.id)
      }
    }
  }

  #close(member: Member, status: MemberStatus, failure: Failure | null): void {
    member.status = status
    member.failure = failure
    this.#open--
    for (const id of this.#dependents.get(member.model.id) ?? []) {
      this.#consider(this.members.get(id) as Member)
    }
  }

  /** Dependents before their target: nothing of it starts afterwards. */
  #cancel(member: Member, dependents: boolean): void {
    for (const other of dependents ? this.dependentsOf(member.model.id) : []) this.#cancelOne(other)
    this.#cancelOne(member)
  }

  #cancelOne(member: Member): void {
    if (member.cancelRequested) return
    if (member.status === 'running') {
      member.cancelRequested = true
      this.#commands.push({ type: 'stop', id: member.model.id })
    } else if (member.status === 'pending') {
      member.cancelRequested = true
      this.#first ??= member
      this.#close(member, 'cancelled', { code: 'cancelled', message: 'it was cancelled', retryable: false })
    }
  }
}

const WORDS = { failed: 'failed', timed_out: 'timed out', cancelled: 'was cancelled' }

/** Waits for workflows of jobs, however many: those of one job look at it together, and then wait for their run alone. */
import type { Clock } from '../core/clock.ts'
import { within } from '../core/clock.ts'
import { decodeJson } from '../core/json.ts'
import { isEnded } from '../core/states.ts'
import type { MemberView } from './run-view.ts'
import { memberOf } from './run-view.ts'
import type { Settled, TaskService } from './task-service.ts'

/** How soon and how rarely a workflow that has no run yet is looked at again. */
const FIRST_LOOK_MS = 20
const LONGEST_LOOK_MS = 1_000
/** However short its limit is, a wait may take so long to look once. */
const ONE_LOOK_MS = 1_000

/** A job as it was at one moment. */
class JobLook {
  readonly #jobId: string
  readonly #members: readonly MemberView[]
  readonly #byId: ReadonlyMap<string, MemberView>
  #before: Map<string, string> | null = null

  constructor(jobId: string, members: readonly MemberView[]) {
    this.#jobId = jobId
    this.#members = members
    this.#byId = new Map(members.map((member) => [member.id, member]))
  }

  member(id: string): MemberView {
    return this.#byId.get(id) ?? memberOf(this.#jobId, id, this.#members)
  }

  /** The run of one that it waits for, at any depth. */
  runningBefore(id: string): string | null {
    this.#before ??= this.#allRunningBefore()
    return this.#before.get(id) ?? null
  }

  #allRunningBefore(): Map<string, string> {
    const dependents = new Map<string, string[]>()
    for (const { id, dependsOn } of this.#members) {
      for (const other of dependsOn) {
        const known = dependents.get(other)
        if (known) known.push(id)
        else dependents.set(other, [id])
      }
    }
    const before = new Map<string, string>()
    for (const { id, runId, status } of this.#members) {
      if (runId === null || isEnded(status)) continue
      const after = [id]
      for (const one of after) {
        for (const dependent of dependents.get(one) ?? []) {
          if (before.has(dependent)) continue
          before.set(dependent, runId)
          after.push(dependent)
        }
      }
    }
    return before
  }
}

interface UnderWay {
  look: Promise<JobLook>
  /** For those who came while it was under way: what it finds may be from before. */
  next: Promise<JobLook> | null
}

export class MemberWaits {
  readonly #clock: Clock
  readonly #service: Pick<TaskService, 'members' | 'settled'>
  readonly #looks = new Map<string, UnderWay>()

  constructor(clock: Clock, service: Pick<TaskService, 'members' | 'settled'>) {
    this.#clock = clock
    this.#service = service
  }

  /** Null when `timeoutMs` was over first. */
  settled(jobId: string, id: string, timeoutMs: number | null): Promise<MemberView | null> {
    const limitMs = timeoutMs ?? Infinity
    const waiting = this.#untilSettled(jobId, id, this.#clock.monotonic() + limitMs)
    return within(this.#clock, Math.max(limitMs, ONE_LOOK_MS), waiting)
  }

  async #untilSettled(jobId: string, id: string, until: number): Promise<MemberView | null> {
    for (let waitMs = FIRST_LOOK_MS; ; waitMs = Math.min(waitMs * 2, LONGEST_LOOK_MS)) {
      const look = await this.#look(jobId)
      const member = look.member(id)
      const leftMs = Math.max(0, until - this.#clock.monotonic())
      if (member.runId !== null) {
        const settled = await this.#service.settled(member.runId, leftMs === Infinity ? null : leftMs)
        return settled && endedMember(member, settled)
      }
      if (isEnded(member.status)) return member
      if (leftMs === 0) return null
      // Without a run it may start, be cancelled or be skipped at any time: its turn comes with an end before it.
      const before = look.runningBefore(id) ?? jobId
      if (await this.#service.settled(before, Math.min(waitMs, leftMs))) waitMs = FIRST_LOOK_MS / 2
    }
  }

  #look(jobId: string): Promise<JobLook> {
    const underWay = this.#looks.get(jobId)
    if (!underWay) return this.#lookNow(jobId)
    const again = () => this.#lookNow(jobId)
    underWay.next ??= underWay.look.then(again, again)
    return underWay.next
  }

  #lookNow(jobId: string): Promise<JobLook> {
    const over = () => {
      if (underWay.next === null) this.#looks.delete(jobId)
    }
    // What has ended is told by its run: of many large outputs each look would carry all.
    const look = this.#service
      .members(jobId, { outputs: false })
      .then((members) => new JobLook(jobId, members))
    const underWay: UnderWay = { look: look.finally(over), next: null }
    this.#looks.set(jobId, underWay)
    return underWay.look
  }
}

function endedMember(member: MemberView, settled: Settled): MemberView {
  if (settled.status === 'completed')
    return { ...member, status: 'completed', output: decodeJson(settled.output) }
  const { status, output, failure, timeoutKind } = settled.task
  return { ...member, status, output, failure, timeoutKind }
}

/**
 * A piece of work and what is below it, as it is shown while it runs: statuses, times, the limit that binds. Owns
 * what it costs to look: records of what has ended are asked for once.
 */
import type { Client } from '../client/client.ts'
import { MAX_PAGE } from '../core/limits.ts'
import type { WorkKind } from '../core/own-work.ts'
import type { Progress, TaskStatus } from '../core/states.ts'
import { isEnded } from '../core/states.ts'
import type { Explanation, JobHandle, MemberView, TaskView } from '../curfew.ts'
import { handleOf } from './work-handle.ts'

export interface WorkNode {
  /** Of its record, or, before it has one, its place. */
  id: string
  label: string
  kind: WorkKind
  status: TaskStatus
  parked: boolean
  startedAt: number | null
  endedAt: number | null
  progress: Progress | null
  /** The limit that ends first, of its own or above it. */
  limit: { kind: string; deadlineAt: number } | null
  /** Why it ended badly. */
  why: string | null
  below: WorkNode[]
}

export interface Snapshot {
  root: WorkNode
  /** The store's clock minus this machine's. */
  aheadMs: number
}

export class WorkTree {
  readonly #client: Client
  readonly #id: string
  readonly #views = new Map<string, TaskView>()
  /** Parents whose children have all been seen as they ended. */
  readonly #done = new Set<string>()

  constructor(client: Client, id: string) {
    this.#client = client
    this.#id = id
  }

  /** `wallMs`: this machine's clock. */
  async look(view: TaskView, wallMs: () => number): Promise<Snapshot> {
    const handle = handleOf(this.#client, this.#id)
    const explanation = await handle.explain()
    const aheadMs = clockDifference(explanation, wallMs())
    this.#views.set(view.id, view)
    await this.#readBelow(explanation)
    const root = this.#node(explanation)
    if (view.kind === 'job') addWaiting(root, await (handle as JobHandle).workflows())
    return { root, aheadMs }
  }

  async #readBelow(explanation: Explanation): Promise<void> {
    const { id, kind, status, below } = explanation
    if (kind === 'task' || this.#done.has(id)) return
    for (const inner of below) await this.#readBelow(inner)
    if (below.length > 0) {
      const { tasks } = await this.#client.list({ parent: id, limit: MAX_PAGE })
      for (const view of tasks) this.#views.set(view.id, view)
    }
    const settled = (inner: Explanation) => this.#views.get(inner.id)?.settled ?? isEnded(inner.status)
    if (isEnded(status) && below.every(settled)) this.#done.add(id)
  }

  #node(explanation: Explanation): WorkNode {
    const { id, kind, name, title, binding, summary } = explanation
    const view = this.#views.get(id)
    const status = view?.status ?? explanation.status
    return {
      ...{ id, kind, status, label: title ?? name },
      parked: (view?.parked ?? null) !== null,
      startedAt: view?.startedAt ?? null,
      endedAt: view?.endedAt ?? null,
      progress: view?.progress ?? null,
      limit: binding && { kind: binding.kind, deadlineAt: binding.deadlineAt },
      why:
        isEnded(status) && status !== 'completed'
          ? (view?.failure?.message ?? summary)
          : (view?.parked ?? null),
      below: explanation.below.map((inner) => this.#node(inner)),
    }
  }
}

/** Workflows of a job that have no run: they wait for others, or will never start. */
function addWaiting(root: WorkNode, members: readonly MemberView[]): void {
  for (const { id, kind, status, runId, failure, dependsOn } of members) {
    if (runId !== null) continue
    root.below.push({
      ...{ id: `${root.id}/${id}`, label: id, kind: kind === 'mapreduce' ? 'workflow' : kind, status },
      ...{ parked: false, startedAt: null, endedAt: null, progress: null, limit: null, below: [] },
      why: failure?.message ?? (dependsOn.length === 0 ? null : `waits for ${dependsOn.join(', ')}`),
    })
  }
}

/** Limits say when they end on the store's clock and how long that is. */
function clockDifference({ binding }: Explanation, wallMs: number): number {
  return binding && binding.remainingMs > 0 ? binding.deadlineAt - binding.remainingMs - wallMs : 0
}

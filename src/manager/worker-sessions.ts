/** The workers attached to this manager: what each can run, what it runs, and how many slots it has free. */
import type { StopReason } from '../core/states.ts'
import type { Assignment, DownMessage, WorkerHello } from '../wire/worker-port.ts'

export interface Slot {
  assignment: Assignment
  startedAt: number
  abandoned: boolean
}

export class Session {
  readonly hello: WorkerHello
  readonly #down: (message: DownMessage) => void
  readonly slots = new Map<string, Slot>()
  attached = true

  constructor(hello: WorkerHello, down: (message: DownMessage) => void) {
    this.hello = hello
    this.#down = down
  }

  get free(): number {
    return this.attached ? Math.max(0, this.hello.concurrency - this.slots.size) : 0
  }

  start(assignments: Assignment[], now: number): void {
    for (const assignment of assignments) {
      this.slots.set(slotKey(assignment), { assignment, startedAt: now, abandoned: false })
    }
    this.#down({ type: 'start', assignments })
  }

  stop(message: { taskId: string; token: string; reason: StopReason; graceMs: number }): void {
    this.#down({ type: 'stop', ...message })
  }

  limits(message: Omit<Extract<DownMessage, { type: 'limits' }>, 'type'>): void {
    if (this.slots.has(slotKey(message))) this.#down({ type: 'limits', ...message })
  }
}

export function slotKey({ taskId, token }: { taskId: string; token: string }): string {
  return `${taskId} ${token}`
}

/** What a worker and its supervisor tell each other, over a channel whose end means that the worker has died. */
import type { Tree, TreeRoot } from './process-tree.ts'

/** A process of a task, or a command; what it left when it ended counts as one too. */
export interface RegisteredAttempt extends Omit<Tree, 'marker'> {
  token: string
}

/** What is called when the worker has died and everything of it is gone. */
export interface Obituary {
  /** URL of a module whose default export is an `ObituaryWriter`. */
  module: string
  /** Plain JSON data. */
  argument: unknown
}

export interface ObituaryReport {
  nodeId: string
  /** `killed`: something of it had to be; `exited`: nothing of it ran any more. */
  ended: { token: string; receipt: 'killed' | 'exited' }[]
  /** What would not go within its bound (waiting for a device, another user's). Not among the ended. */
  left: { token: string; pids: number[] }[]
}

/** Tried again, for a while, when it throws; so it has to bear being called twice. */
export type ObituaryWriter = (argument: unknown, report: ObituaryReport) => Promise<void>

export type ToSupervisor =
  | { type: 'watch'; nodeId: string; worker: TreeRoot; obituary: Obituary | null }
  | { type: 'register'; attempt: RegisteredAttempt }
  | { type: 'release'; pids: number[] }
  | { type: 'close' }

export type FromSupervisor = { type: 'ready' }

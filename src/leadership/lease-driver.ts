/** What renews the leases of a process on PostgreSQL. Adapters: `thread-driver.ts`, `virtual-driver.ts`. */
import type { Beat } from './lease.ts'

export interface LeaseDriverListener {
  /** `epoch`: the one it was sent with. */
  beat(beat: Beat, epoch: number): void
  /** Another process has news: `work`, `stop NODE`, `gone NODE`. */
  hint(hint: string): void
  failed(error: Error): void
}

export interface LeaseDriver {
  setEpoch(epoch: number): void
  /** What ready work is looked for in; empty without a free slot. */
  setWanted(queues: string[], names: string[], agents: string[]): void
  hint(hint: string): void
  close(): Promise<void>
}

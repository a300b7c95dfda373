/**
 * The port to the database. Adapters: `sqlite/sqlite-store.ts`, `postgres/postgres-store.ts`.
 * It owns connections, transactions, the schema and the texts of all statements; it decides nothing.
 */
import type { Work } from './statement.ts'
import type { Statements } from './statements.ts'

/** Checked inside every transaction that decides: zero rows means that this process has to step down. */
export interface Fence {
  nodeId: string
  epoch: number
}

/** What is needed to look at a store and to change nothing. */
export interface ReadStore {
  readonly dialect: 'sqlite' | 'postgres'
  readonly statements: Statements
  /** Reads. On PostgreSQL each statement sees its own moment, unless all of them are to see the same. */
  read<T>(work: () => Work<T>, options?: { atOnce?: boolean }): Promise<T>
  /** The store's clock in milliseconds, before any correction. */
  readClock(): Promise<number>
  close(): Promise<void>
}

export interface Store extends ReadStore {
  /** Of a file: tells other processes on this machine where its holder listens. */
  readonly lock?: { setSocket(path: string | null): void } | null
  /** One transaction; resolves after its commit. A throw inside rolls it back. */
  write<T>(fence: Fence | null, work: () => Work<T>): Promise<T>
}

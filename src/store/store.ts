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

export interface Store {
  readonly dialect: 'sqlite' | 'postgres'
  readonly statements: Statements
  /** One transaction; resolves after its commit. A throw inside rolls it back. */
  write<T>(fence: Fence | null, work: () => Work<T>): Promise<T>
  /** Reads. On PostgreSQL each statement sees its own moment. */
  read<T>(work: () => Work<T>): Promise<T>
  /** The store's clock in milliseconds, before any correction. */
  readClock(): Promise<number>
  close(): Promise<void>
}

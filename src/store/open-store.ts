/** The adapter that a store needs, and nothing of the other: each takes a while to load. */
import type { Clock } from '../core/clock.ts'
import type { Logger } from '../core/logger.ts'
import type { ReadStore, Store } from './store.ts'
import { storeLocation } from './store-location.ts'

export async function openStore(store: string, clock: Clock, logger: Logger, nodeId: string): Promise<Store> {
  const location = storeLocation(store)
  if (location.dialect === 'postgres') return (await postgres()).open(location.url, clock, logger, nodeId)
  const { SqliteStore } = await import('./sqlite/sqlite-store.ts')
  return SqliteStore.open(location.file, clock, nodeId)
}

/** Makes, changes and locks nothing. */
export async function openToRead(store: string, clock: Clock, logger: Logger): Promise<ReadStore> {
  const location = storeLocation(store)
  if (location.dialect === 'postgres') return (await postgres()).openToRead(location.url, clock, logger)
  const { SqliteReader } = await import('./sqlite/sqlite-reader.ts')
  return SqliteReader.open(location.file, clock)
}

async function postgres() {
  return (await import('./postgres/postgres-store.ts')).PostgresStore
}

import type { Clock } from '../core/clock.ts'
import type { Logger } from '../core/logger.ts'
import { PostgresStore } from './postgres/postgres-store.ts'
import { SqliteReader } from './sqlite/sqlite-reader.ts'
import { SqliteStore } from './sqlite/sqlite-store.ts'
import type { ReadStore, Store } from './store.ts'
import { storeLocation } from './store-location.ts'

export async function openStore(store: string, clock: Clock, logger: Logger, nodeId: string): Promise<Store> {
  const location = storeLocation(store)
  return location.dialect === 'sqlite'
    ? SqliteStore.open(location.file, clock, nodeId)
    : PostgresStore.open(location.url, clock, logger)
}

/** Makes, changes and locks nothing. */
export async function openToRead(store: string, clock: Clock, logger: Logger): Promise<ReadStore> {
  const location = storeLocation(store)
  return location.dialect === 'sqlite'
    ? SqliteReader.open(location.file, clock)
    : PostgresStore.openToRead(location.url, clock, logger)
}

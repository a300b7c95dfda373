import type { Clock } from '../core/clock.ts'
import type { Logger } from '../core/logger.ts'
import { PostgresStore } from './postgres/postgres-store.ts'
import { SqliteStore } from './sqlite/sqlite-store.ts'
import type { Store } from './store.ts'
import { storeLocation } from './store-location.ts'

export async function openStore(store: string, clock: Clock, logger: Logger, nodeId: string): Promise<Store> {
  const location = storeLocation(store)
  return location.dialect === 'sqlite'
    ? SqliteStore.open(location.file, clock, nodeId)
    : PostgresStore.open(location.url, clock, logger)
}

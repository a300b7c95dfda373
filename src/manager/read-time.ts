/** The store's time, as the first to ask in this process learns it. */
import type { Clock } from '../core/clock.ts'
import { NodeStatements } from '../leadership/node-statements.ts'
import { run } from '../store/statement.ts'
import type { ReadStore } from '../store/store.ts'
import { StoreTime } from '../store/store-time.ts'

/** Store time goes on from the highest ever written, whatever the clock says. */
export async function readTime(store: ReadStore, clock: Clock): Promise<StoreTime> {
  const statements = new NodeStatements(store.dialect)
  // The highest of a few readings: a busy event loop makes one look older than it is.
  let best = { raw: 0, arrivedAt: Infinity }
  for (let i = 0; i < 3; i++) {
    const raw = await store.readClock()
    const arrivedAt = clock.monotonic()
    if (raw - arrivedAt > best.raw - best.arrivedAt) best = { raw, arrivedAt }
  }
  const { raw, arrivedAt } = best
  const key = store.dialect === 'postgres' ? 'clock_correction' : 'clock_mark'
  const [row] = await store.read(() => run(statements.readMeta(key)))
  const kept = Number(row?.value ?? 0)
  return new StoreTime(clock, store.dialect === 'postgres' ? raw + kept : Math.max(raw, kept), arrivedAt)
}

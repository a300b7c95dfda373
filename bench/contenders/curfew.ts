// Curfew itself, over PostgreSQL or over a SQLite file: the store option says which.

import { DatabaseSync } from 'node:sqlite'
import type { TaskContext } from '../../src/curfew.ts'
import { Curfew, task } from '../../src/curfew.ts'
import type { OpenSession, ScheduleOptions, SessionOptions } from '../contender.ts'
import { probeDatabase } from '../database-probe.ts'

export const openCurfew: OpenSession = (options) => open(options, {})

/** With the process beside it that reports a dead worker's attempts at once. */
export const openCurfewWithWitness: OpenSession = (options) => open(options, { witness: true })

async function open({ store, concurrency, handler }: SessionOptions, extra: { witness?: true }) {
  const noop = task({
    name: 'noop',
    run: (n: number, { signal, deadline }: TaskContext) =>
      handler({ n, signal, ...(deadline === null ? {} : { deadlineAt: deadline }) }),
  })
  const curfew = await Curfew.open({ store, tasks: [noop], concurrency, ...extra })
  const probe = await probeStore(store)
  const taskOptions = ({ delayMs, limitMs, totalMs }: ScheduleOptions = {}) => ({
    ...(delayMs ? { delay: delayMs } : {}),
    ...(limitMs ? { attemptTimeout: limitMs } : {}),
    ...(totalMs ? { timeout: totalMs } : {}),
  })
  return {
    schedule: (n: number, options?: ScheduleOptions) => curfew.schedule(noop, n, taskOptions(options)),
    scheduleMany: (numbers: readonly number[], options?: ScheduleOptions) =>
      curfew.scheduleMany(noop, [...numbers], taskOptions(options)),
    unfinished: () => probe.count(`status in ('pending', 'running')`),
    close: async () => {
      await curfew.close({ drain: false })
      await probe.end()
    },
  }
}

/** Counts tasks in either store, on a connection of its own. */
async function probeStore(store: string) {
  if (store.startsWith('postgres')) {
    const probe = await probeDatabase(store)
    return {
      count: (where: string) => probe.value<number>(`select count(*)::int from curfew.tasks where ${where}`),
      end: () => probe.end(),
    }
  }
  const database = new DatabaseSync(store, { readOnly: true })
  return {
    count: async (where: string) => {
      const row = database.prepare(`select count(*) as n from tasks where ${where}`).get() as { n: number }
      return row.n
    },
    end: async () => database.close(),
  }
}

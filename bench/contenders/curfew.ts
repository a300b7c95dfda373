// Curfew itself, over PostgreSQL or over a SQLite file: the store option says which.

import type { TaskContext, TaskHandle } from '../../src/curfew.ts'
import { Curfew, task } from '../../src/curfew.ts'
import type { OpenSession, ScheduleOptions, Session, SessionOptions } from '../contender.ts'
import { probeDatabase } from '../database-probe.ts'

export const openCurfew: OpenSession = (options) => open(options, {})

/** With the process beside it that reports a dead worker's attempts at once. */
export const openCurfewWithWitness: OpenSession = (options) => open(options, { witness: true })

async function open(
  { store, purpose, concurrency, handler }: SessionOptions,
  extra: { witness?: true },
): Promise<Session> {
  const noop = task({
    name: 'noop',
    // A signal is made when it is first asked for: work that does not look at it does not pay for it.
    run:
      purpose === 'throughput'
        ? (n: number) => handler({ n })
        : (n: number, { signal, deadline }: TaskContext) =>
            handler({ n, signal, ...(deadline === null ? {} : { deadlineAt: deadline }) }),
  })
  // Where only throughput counts, twice the slots keep two transactions full.
  const slots = purpose === 'throughput' ? concurrency * 2 : concurrency
  const curfew = await Curfew.open({ store, tasks: [noop], concurrency: slots, ...extra })
  const probe = await probeTasks(store, curfew)
  const timed: TaskHandle<void>[] = []
  const taskOptions = ({ delayMs, limitMs, totalMs }: ScheduleOptions = {}) => ({
    ...(delayMs ? { delay: delayMs } : {}),
    ...(limitMs ? { attemptTimeout: limitMs } : {}),
    ...(totalMs ? { timeout: totalMs } : {}),
  })
  return {
    schedule: async (n, options) => {
      const handle = await curfew.schedule(noop, n, taskOptions(options))
      if (purpose === 'timeouts') timed.push(handle)
    },
    scheduleMany: (numbers, options) => curfew.scheduleMany(noop, [...numbers], taskOptions(options)),
    unfinished: () => probe.unfinished(),
    decisionLateness: async () => {
      const events = await Promise.all(timed.map((handle) => handle.events()))
      return events.flat().flatMap((event) => (typeof event.lateMs === 'number' ? [event.lateMs] : []))
    },
    close: async () => {
      await curfew.close({ drain: false })
      await probe.end()
    },
  }
}

/** The engine holds a SQLite file alone, so there it is asked itself. */
async function probeTasks(store: string, curfew: Curfew) {
  if (store.startsWith('postgres')) {
    const probe = await probeDatabase(store)
    return {
      unfinished: () =>
        probe.value<number>(`select count(*)::int from curfew.tasks where status in ('pending', 'running')`),
      end: () => probe.end(),
    }
  }
  return {
    unfinished: async () => (await curfew.list({ status: ['pending', 'running'] })).tasks.length,
    end: async () => {},
  }
}

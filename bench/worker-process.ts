// A process that opens one contender, schedules some tasks, and runs whatever it gets until it is killed.

import { numbers } from './benchmark.ts'
import { CONTENDERS } from './contenders.ts'

export interface WorkerOrder {
  contender: string
  store: string
  concurrency: number
  /** How many tasks to schedule once open. */
  schedule: number
}

export type WorkerMessage = { type: 'ready' } | { type: 'started'; n: number }

if (import.meta.main) {
  const order = JSON.parse(process.argv[2]!) as WorkerOrder
  const open = await CONTENDERS[order.contender]!.load()
  const tell = (message: WorkerMessage) => process.send!(message)
  const session = await open({
    store: order.store,
    purpose: 'crash',
    concurrency: order.concurrency,
    handler: ({ n }) => {
      tell({ type: 'started', n })
      return new Promise(() => {})
    },
  })
  // The one that measures may have been stopped.
  process.on('disconnect', () => process.exit())
  tell({ type: 'ready' })
  if (order.schedule > 0) await session.scheduleMany(numbers(order.schedule))
}

// Curfew in several processes: a manager that runs nothing itself, and workers attached to it.

import { Curfew, task } from '../../src/curfew.ts'
import { numbers } from '../benchmark.ts'
import type { ClusterContender } from '../contender.ts'

const noopNamed = (run: () => void) => task({ name: 'noop', run: (_: number) => run() })

export const curfewCluster: ClusterContender = {
  manage: async (store) => {
    // What is expected to go wrong is not news.
    const logger = { debug() {}, info() {}, warn() {}, error: console.error }
    const curfew = await Curfew.open({ store, concurrency: 0, listen: '127.0.0.1:0', logger })
    return curfew.url!
  },
  work: async ({ manager, concurrency }, handler) => {
    const worker = await Curfew.work({ managers: manager!, tasks: [noopNamed(handler)], concurrency })
    await worker.attached()
    return { close: () => worker.close() }
  },
  connect: async ({ manager }) => {
    const client = await Curfew.connect(manager!)
    const noop = noopNamed(() => {})
    return {
      schedule: async (count) => {
        await client.scheduleMany(noop, numbers(count))
      },
      close: () => client.close(),
    }
  },
  // By what tells of work that waits or runs: the table keeps what has ended.
  unfinished: `select ((select count(*) from curfew.tasks where ready = 1)
    + (select count(*) from curfew.tasks where holder is not null)
    + (select count(*) from curfew.light_ready)
    + (select count(*) from curfew.light_claims c cross join unnest(c.ids) as m (id)
      join curfew.tasks t on t.id = m.id and t.light = 1))::int`,
}

// A process of a cluster: the manager of one contender, or a worker that begins and ends when it is asked to.

import { answerParent, sharedNow } from './child.ts'
import type { ClusterContender, ClusterWorker, WorkOrder } from './contender.ts'
import { CONTENDERS } from './contenders.ts'

/** What a worker says of the tasks it has run since it began. */
export interface Ran {
  count: number
  /** When the first of them started, on the clock that processes share; null: none has. */
  firstAt: number | null
}

export type BeginOrder = WorkOrder & { contender: string }

if (import.meta.main) {
  let worker: ClusterWorker | null = null
  let ran: Ran = { count: 0, firstAt: null }
  const contenderOf = async (name: string): Promise<ClusterContender> => CONTENDERS[name]!.loadCluster!()
  answerParent({
    /** Answers its address. */
    manage: async ({ contender, store }: { contender: string; store: string }) =>
      (await contenderOf(contender)).manage!(store),
    begin: async ({ contender, ...order }: BeginOrder) => {
      const { work } = await contenderOf(contender)
      ran = { count: 0, firstAt: null }
      worker = await work(order, () => {
        ran.firstAt ??= sharedNow()
        ran.count++
      })
    },
    ran: () => ran,
    end: async () => {
      await worker?.close()
      worker = null
    },
  })
}

// A process of a cluster: the manager of one contender, or a worker that begins and ends when it is asked to.

import { answerParent } from './child.ts'
import type { ClusterContender, ClusterWorker, WorkOrder } from './contender.ts'
import { CONTENDERS } from './contenders.ts'

export type BeginOrder = WorkOrder & { contender: string }

if (import.meta.main) {
  let worker: ClusterWorker | null = null
  let ran = 0
  const contenderOf = async (name: string): Promise<ClusterContender> => CONTENDERS[name]!.loadCluster!()
  answerParent({
    /** Answers its address. */
    manage: async ({ contender, store }: { contender: string; store: string }) =>
      (await contenderOf(contender)).manage!(store),
    begin: async ({ contender, ...order }: BeginOrder) => {
      const { work } = await contenderOf(contender)
      ran = 0
      worker = await work(order, () => {
        ran++
      })
    },
    /** How many tasks since it began. */
    ran: () => ran,
    end: async () => {
      await worker?.close()
      worker = null
    },
  })
}

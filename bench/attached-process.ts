// A process with workers attached to a Curfew manager, as many as it is asked for.

import { setTimeout as sleep } from 'node:timers/promises'
import { IdSource } from '../src/core/id.ts'
import { SystemClock, SystemRandomness } from '../src/core/system-clock.ts'
import { task } from '../src/curfew.ts'
import { register } from '../src/worker/registry.ts'
import { WorkerProcess } from '../src/working.ts'
import { numbers } from './benchmark.ts'
import { answerParent, sharedNow } from './child.ts'

export interface AttachOrder {
  manager: string
  workers: number
  /** Of each of them. */
  concurrency: number
}

/** When the handler said so, on the clock that processes share. */
export interface Said {
  at: number
}

const SHORTEST_STEP_MS = 20
const LONGEST_STEP_MS = 120

let ran = 0
let hanging = 0

export const noop = task({
  name: 'noop',
  run: (_: number) => {
    ran++
  },
})

/** Until it is told to stop; a worker that died must not be waited for longer than its lease. */
export const hang = task({
  name: 'hang',
  grace: 1,
  run: async (_: number, { signal }) => {
    hanging++
    await new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve(), { once: true }))
    hanging--
  },
})

/** Says when it made progress, and when it ended. */
export const twoSteps = task({
  name: 'two-steps',
  run: async (_: number, { progress }): Promise<Said> => {
    const step = () => sleep(SHORTEST_STEP_MS + Math.random() * (LONGEST_STEP_MS - SHORTEST_STEP_MS))
    await step()
    progress(0.5, { at: sharedNow() } satisfies Said)
    await step()
    return { at: sharedNow() }
  },
})

if (import.meta.main) {
  const logger = { debug() {}, info() {}, warn() {}, error: console.error }
  const randomness = new SystemRandomness()
  const start = ({ manager, concurrency }: AttachOrder) =>
    WorkerProcess.start({
      ...{ managers: [manager], connection: {}, labels: {}, witness: false, logger },
      registry: register({ tasks: [noop, hang, twoSteps] }),
      worker: { turns: 1, residents: { count: 0, bytes: 0 }, queues: null, concurrency },
      // A thread for each would be what is measured.
      beatsInLoop: true,
      ...{ clock: new SystemClock(), randomness, ids: new IdSource(randomness) },
    })
  answerParent({
    /** Answers when all are attached. */
    attach: async (order: AttachOrder) => {
      const workers = await Promise.all(numbers(order.workers).map(() => start(order)))
      await Promise.all(workers.map((worker) => worker.attached()))
    },
    ran: () => ran,
    hanging: () => hanging,
  })
}

// A worker process with running tasks is killed with -9 while another one stands beside it: how long until
// all of them run again. The two workers are processes of bench/worker-process.ts.

import type { ChildProcess } from 'node:child_process'
import { fork } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import type { Benchmark } from '../benchmark.ts'
import type { WorkerMessage, WorkerOrder } from '../worker-process.ts'

const TASKS = 100

export const crash: Benchmark = {
  title: 'a worker process with 100 running tasks killed with -9: until all run again in the one beside it',
  rounds: 3,
  metrics: { seconds: { label: 's until all run again', better: 'lower', digits: 2 } },
  async run({ contender, store, quick }) {
    const capSeconds = quick ? 20 : 60
    const victim = await startWorker({ contender, store, concurrency: TASKS, schedule: TASKS })
    await victim.running(TASKS)
    const survivor = await startWorker({ contender, store, concurrency: TASKS, schedule: 0 })
    // Time to join, to listen and to renew whatever it renews.
    await new Promise((resolve) => setTimeout(resolve, 3_000))
    const killedAt = performance.now()
    victim.process.kill('SIGKILL')
    const cap = new Promise<'capped'>((resolve) => setTimeout(resolve, capSeconds * 1000, 'capped'))
    const outcome = await Promise.race([survivor.running(TASKS), cap])
    const seconds = (performance.now() - killedAt) / 1000
    survivor.process.kill('SIGKILL')
    return { seconds: outcome === 'capped' ? `not within ${capSeconds} s` : seconds }
  },
}

interface Worker {
  process: ChildProcess
  /** Resolves when so many different tasks have started there. */
  running(count: number): Promise<void>
}

async function startWorker(order: WorkerOrder): Promise<Worker> {
  const child = fork(fileURLToPath(new URL('../worker-process.ts', import.meta.url)), [JSON.stringify(order)])
  const started = new Set<number>()
  const waiting: { count: number; resolve: () => void }[] = []
  child.on('message', (message: WorkerMessage) => {
    if (message.type !== 'started') return
    started.add(message.n)
    for (const { count, resolve } of waiting) if (started.size >= count) resolve()
  })
  const worker: Worker = {
    process: child,
    running: (count) =>
      new Promise((resolve) => {
        waiting.push({ count, resolve })
        if (started.size >= count) resolve()
      }),
  }
  const ready = new Promise<void>((resolve) => {
    child.on('message', (message: WorkerMessage) => {
      if (message.type === 'ready') resolve()
    })
  })
  const exit = once(child, 'exit').then(([code, signal]) => {
    if (signal !== 'SIGKILL') throw new Error(`a worker of ${order.contender} ended with ${signal ?? code}`)
  })
  await Promise.race([ready, exit])
  exit.catch((error: unknown) => {
    console.error(error)
    process.exit(1)
  })
  return worker
}

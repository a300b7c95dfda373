// Twenty clients that watch over the wire, beside a load of 200 tasks a second: from the call in the handler (its
// progress, its return) until the watcher has the change. So the worker's report and its commit are counted too.

import { setTimeout as sleep } from 'node:timers/promises'
import { Curfew } from '../../src/curfew.ts'
import type { AttachOrder, Said } from '../attached-process.ts'
import { noop, twoSteps } from '../attached-process.ts'
import type { Benchmark } from '../benchmark.ts'
import { numbers, percentile } from '../benchmark.ts'
import { sharedNow, startChild } from '../child.ts'

const WATCHERS = 20
const LOAD_PER_SECOND = 200
const LOAD_EVERY_MS = 50
const CONCURRENCY = 100
const WARM_UP_MS = 3_000

export const watch: Benchmark = {
  title: '20 clients that watch a task each, beside 200 tasks/s: from the call in the handler to the watcher',
  rounds: 3,
  metrics: {
    p50: { label: 'p50 ms', better: 'lower', digits: 1 },
    p99: { label: 'p99 ms', better: 'lower', digits: 1 },
    max: { label: 'max ms', better: 'lower', digits: 1 },
    changes: { label: 'changes', better: 'higher', digits: 0, compared: false },
  },
  async run({ contender, store, quick }) {
    const manager = await startChild(new URL('../cluster-process.ts', import.meta.url))
    const url = await manager.ask<string>('manage', { contender, store })
    const workers = await startChild(new URL('../attached-process.ts', import.meta.url))
    const order: AttachOrder = { manager: url, workers: 1, concurrency: CONCURRENCY }
    await workers.ask('attach', order)
    const over = new AbortController()
    const samples: number[] = []
    const countFrom = performance.now() + WARM_UP_MS
    const seen = ({ at }: Said) => {
      if (performance.now() > countFrom) samples.push(sharedNow() - at)
    }
    const clients = await Promise.all(numbers(WATCHERS + 1).map(() => Curfew.connect(url)))
    const [loader, ...watchers] = clients as [Client, ...Client[]]
    const busy = [putLoad(loader, over.signal), ...watchers.map((one) => watchTasks(one, over.signal, seen))]
    await Promise.race([sleep(WARM_UP_MS + (quick ? 3_000 : 20_000)), Promise.all(busy)])
    over.abort()
    await Promise.all(busy)
    for (const client of clients) await client.close()
    for (const child of [workers, manager]) await child.kill()
    return {
      p50: percentile(samples, 50),
      p99: percentile(samples, 99),
      max: Math.max(...samples),
      changes: samples.length,
    }
  },
}

async function putLoad(client: Client, over: AbortSignal): Promise<void> {
  const each = (LOAD_PER_SECOND * LOAD_EVERY_MS) / 1000
  for (let next = performance.now(); !over.aborted; next += LOAD_EVERY_MS) {
    await Promise.all(numbers(each).map((n) => client.schedule(noop, n)))
    await sleep(Math.max(0, next + LOAD_EVERY_MS - performance.now()))
  }
}

/** One task after the other, each of them watched to its end. */
async function watchTasks(client: Client, over: AbortSignal, seen: (said: Said) => void): Promise<void> {
  for (let n = 0; !over.aborted; n++) {
    const { id } = await client.schedule(twoSteps, n)
    let progressed = false
    for await (const { work, final } of client.watch(id)) {
      if (work.details && !progressed) {
        seen(work.details as Said)
        progressed = true
      }
      if (final) seen(work.output as Said)
    }
  }
}

type Client = Awaited<ReturnType<typeof Curfew.connect>>

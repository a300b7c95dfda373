// 1,000 workers attached to one manager, in four processes: until all are attached, what the manager costs while
// nothing happens, how fast tasks go through them. Then one of the four is killed with -9 while each of its workers
// runs a task: how long others take to run them all, and how fast the manager answers meanwhile.

import { setTimeout as sleep } from 'node:timers/promises'
import { Curfew } from '../../src/curfew.ts'
import type { AttachOrder } from '../attached-process.ts'
import { hang, noop } from '../attached-process.ts'
import type { Benchmark } from '../benchmark.ts'
import { numbers, percentile } from '../benchmark.ts'
import type { Child } from '../child.ts'
import { startChild } from '../child.ts'
import { probeDatabase } from '../database-probe.ts'

const PROCESSES = 4
const CONCURRENCY = 10
const LOOK_EVERY_MS = 20
const MOST_SECONDS_TO_MOVE = 60

export const attachedWorkers: Benchmark = {
  title:
    '1,000 workers attached to one manager; tasks through them (10,000); a process with 250 of them killed',
  rounds: 1,
  metrics: {
    attachSeconds: { label: 's until all attached', better: 'lower', digits: 2 },
    cpuPercent: { label: '% of a core, idle', better: 'lower', digits: 1 },
    rssMb: { label: 'MB', better: 'lower', digits: 0 },
    tasksPerSecond: { label: 'tasks/s', better: 'higher', digits: 0 },
    movedSeconds: { label: 's until all run elsewhere', better: 'lower', digits: 1 },
    getP50: { label: 'get p50 ms', better: 'lower', digits: 1 },
    getP99: { label: 'get p99 ms', better: 'lower', digits: 1 },
  },
  async run({ contender, store, quick }) {
    const each = quick ? 25 : 250
    const manager = await startChild(new URL('../cluster-process.ts', import.meta.url))
    const url = await manager.ask<string>('manage', { contender, store })
    const start = () => startChild(new URL('../attached-process.ts', import.meta.url))
    const processes = await Promise.all(numbers(PROCESSES).map(start))
    const order: AttachOrder = { manager: url, workers: each, concurrency: CONCURRENCY }
    const attachingAt = performance.now()
    await Promise.all(processes.map((process) => process.ask('attach', order)))
    const attachSeconds = (performance.now() - attachingAt) / 1000
    await sleep(quick ? 1_000 : 5_000)
    const idle = await measureChild(manager, quick ? 3 : 20)
    const client = await Curfew.connect(url)
    const tasksPerSecond = await runTasks(client, { store, processes, count: quick ? 1_000 : 10_000 })
    const moved = await killOne(client, processes, each)
    await client.close()
    for (const child of [manager, ...processes.slice(1)]) await child.kill()
    return { attachSeconds, ...idle, tasksPerSecond, ...moved }
  },
}

async function measureChild(child: Child, seconds: number) {
  const before = await child.usage()
  const startedAt = performance.now()
  await sleep(seconds * 1000)
  const { cpuMs, rssMb } = await child.usage()
  return { cpuPercent: ((cpuMs - before.cpuMs) / (performance.now() - startedAt)) * 100, rssMb }
}

async function total(processes: readonly Child[], what: 'ran' | 'hanging'): Promise<number> {
  const counts = await Promise.all(processes.map((process) => process.ask<number>(what)))
  return counts.reduce((sum, count) => sum + count, 0)
}

async function runTasks(
  client: Client,
  { store, processes, count }: { store: string; processes: readonly Child[]; count: number },
): Promise<number> {
  const probe = await probeDatabase(store)
  const startedAt = performance.now()
  await client.scheduleMany(noop, numbers(count))
  while ((await total(processes, 'ran')) < count) await sleep(LOOK_EVERY_MS)
  const unfinished = `select count(*)::int from curfew.tasks where status in ('pending', 'running')`
  while ((await probe.value<number>(unfinished)) > 0) await sleep(1)
  const seconds = (performance.now() - startedAt) / 1000
  const ran = await probe.value<number>(`select count(*)::int from curfew.tasks where status = 'completed'`)
  if (ran !== count) throw new Error(`${ran} of ${count} tasks were completed`)
  await probe.end()
  return count / seconds
}

/** One task for each worker; the first process goes, with those of its workers. */
async function killOne(client: Client, processes: readonly Child[], each: number) {
  const count = each * PROCESSES
  const [task] = await client.scheduleMany(hang, numbers(count))
  while ((await total(processes, 'hanging')) < count) await sleep(LOOK_EVERY_MS)
  const [victim, ...others] = processes as [Child, ...Child[]]
  const samples: number[] = []
  const killedAt = performance.now()
  const seconds = () => (performance.now() - killedAt) / 1000
  await victim.kill()
  while ((await total(others, 'hanging')) < count) {
    if (seconds() > MOST_SECONDS_TO_MOVE) throw new Error('not all tasks run elsewhere')
    const askedAt = performance.now()
    await task!.view()
    samples.push(performance.now() - askedAt)
    await sleep(LOOK_EVERY_MS)
  }
  return { movedSeconds: seconds(), getP50: percentile(samples, 50), getP99: percentile(samples, 99) }
}

type Client = Awaited<ReturnType<typeof Curfew.connect>>

// Several processes on one PostgreSQL, and one of them is killed:
// node examples/postgres-workers.ts postgres://user:password@host/database
// It keeps its tables in the schema `curfew` of that database.

import { fork } from 'node:child_process'
import { once } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import { Curfew, task } from '../src/curfew.ts'

const [url, role] = process.argv.slice(2)
if (!url) {
  console.error('usage: node examples/postgres-workers.ts postgres://user:password@host/database')
  process.exit(2)
}

const crunch = task({
  name: 'crunch',
  timeout: '1m',
  run: async (number: number, { signal }) => {
    process.send?.(`${role} starts ${number}`)
    await sleep(400, undefined, { signal })
    return { square: number ** 2, worker: role }
  },
})

if (role) await work(url, role)
else await orchestrate(url)

/** Runs tasks until its parent lets go of it. */
async function work(store: string, name: string): Promise<void> {
  // The witness is a second, small process: should this one die, it tells the others at once.
  const curfew = await Curfew.open({ store, tasks: [crunch], concurrency: 2, witness: true })
  process.send?.(`${name} works`)
  await once(process, 'disconnect')
  await curfew.close({ drain: true })
}

async function orchestrate(store: string): Promise<void> {
  // It has no code to run anything: it schedules, and waits for what the others do.
  const curfew = await Curfew.open({ store })
  const workers = await Promise.all(['anna', 'bert', 'cleo'].map((name) => startWorker(store, name)))
  const handles = await curfew.scheduleMany(
    crunch,
    Array.from({ length: 24 }, (_, i) => i),
  )

  const [anna] = workers
  if (anna) await once(anna, 'message')
  anna?.kill('SIGKILL')
  console.log('anna is killed with -9 while it runs something')

  const shares = new Map<string, number>()
  let sum = 0
  for (const [number, handle] of handles.entries()) {
    const { square, worker = '?' } = await handle.result()
    sum += square
    shares.set(worker, (shares.get(worker) ?? 0) + 1)
    const { attempts } = await handle.explain()
    const lost = attempts.filter(({ status }) => status === 'lost').length
    if (lost > 0) console.log(`number ${number}: ${lost} attempt was lost with anna, done again by ${worker}`)
  }
  for (const [worker, count] of [...shares].sort()) console.log(`${worker} did ${count}`)
  console.log(`the sum of all squares is ${sum}`)

  for (const worker of workers) if (worker.connected) worker.disconnect()
  await Promise.all(workers.map((worker) => worker.exitCode ?? worker.signalCode ?? once(worker, 'exit')))
  await curfew.close()
}

async function startWorker(store: string, name: string) {
  const worker = fork(import.meta.filename, [store, name])
  const [message] = await once(worker, 'message')
  console.log(message)
  return worker
}

// A manager, two workers and a client, each a process of its own, over one SQLite file; one worker is killed:
// node examples/cluster/manager-and-workers.ts

import type { ChildProcess } from 'node:child_process'
import { fork } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { Curfew, task } from '../../src/curfew.ts'

const [role, name = '', place = ''] = process.argv.slice(2)

const crunch = task({
  name: 'crunch',
  timeout: '1m',
  run: async (number: number, { signal }) => {
    process.send?.(`${name} starts ${number}`)
    await sleep(300, undefined, { signal })
    return { square: number ** 2, worker: name }
  },
})

if (role === 'manager') await manage(place)
else if (role === 'worker') await work(place)
else await orchestrate()

/** Holds the store and decides. It has no code of tasks, and runs none. */
async function manage(store: string): Promise<void> {
  const curfew = await Curfew.open({ store, concurrency: 0, listen: '127.0.0.1:0' })
  process.send?.(curfew.url)
  await once(process, 'disconnect')
  await curfew.close()
}

/** Has the code, and no store. */
async function work(url: string): Promise<void> {
  // The witness is a second, small process: should this one die, it tells the manager at once.
  const worker = await Curfew.work({ managers: url, tasks: [crunch], concurrency: 2, witness: true })
  await worker.attached()
  process.send?.(`${name} is attached`)
  await once(process, 'disconnect')
  await worker.close({ drain: true })
}

/** This process is the client. */
async function orchestrate(): Promise<void> {
  const folder = await mkdtemp(path.join(tmpdir(), 'curfew-cluster-'))
  const processes: ChildProcess[] = []
  const start = async (...args: string[]) => {
    const child = fork(import.meta.filename, args)
    processes.push(child)
    const [message] = (await once(child, 'message')) as [string]
    return { child, message }
  }
  try {
    const { message: url } = await start('manager', 'manager', path.join(folder, 'tasks.db'))
    console.log('a manager listens')
    const anna = await start('worker', 'anna', url)
    const bert = await start('worker', 'bert', url)
    console.log(`${anna.message}, ${bert.message}`)

    const curfew = await Curfew.connect(url)
    const numbers = Array.from({ length: 12 }, (_, i) => i)
    const handles = await curfew.scheduleMany(crunch, numbers)

    await once(anna.child, 'message')
    anna.child.kill('SIGKILL')
    console.log('anna is killed with -9 while it runs something')

    let sum = 0
    for (const [number, handle] of handles.entries()) {
      const { square, worker } = await handle.result()
      sum += square
      const { attempts } = await handle.explain()
      const lost = attempts.filter(({ status }) => status === 'lost').length
      if (lost > 0) console.log(`number ${number}: lost with anna, done again by ${worker}`)
    }
    console.log(`the sum of all squares is ${sum}`)
    const left = await curfew.workers()
    console.log(
      `${left.length} worker is left, with ${left[0]?.running} of ${left[0]?.concurrency} slots taken`,
    )
    await curfew.close()
  } finally {
    // Workers first: they say goodbye to a manager that is there.
    for (const child of processes.toReversed()) {
      if (child.connected) child.disconnect()
      if (child.exitCode === null && child.signalCode === null) await once(child, 'exit')
    }
    await rm(folder, { recursive: true, force: true })
  }
}

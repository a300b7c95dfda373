// The five limits of a task, one task for each, and what each of them does: node examples/deadlines.ts

import { setTimeout as sleep } from 'node:timers/promises'
import type { TaskHandle } from '../src/curfew.ts'
import { Curfew, task } from '../src/curfew.ts'

const forever = 3_600_000

// From scheduling to the outcome, over all attempts. Never retried, however many retries are left.
const total = task({
  name: 'timeout',
  timeout: '1s',
  retries: 5,
  run: (_: null, { signal }) => sleep(forever, undefined, { signal }),
})

// One attempt, from its start. Retried while retries remain; `onTimeout: 'fail'` would end the task.
const execution = task({
  name: 'attemptTimeout',
  attemptTimeout: '500ms',
  retries: 1,
  backoff: { initial: '100ms' },
  run: async (_: null, { attempt, signal }) => {
    if (attempt === 1) await sleep(forever, undefined, { signal })
  },
})

// From scheduling to the first start. This one waits in a queue that is taken, and never starts.
const queue = task({
  name: 'queueTimeout',
  queueTimeout: '1s',
  queue: 'narrow',
  run: () => console.log('this is never printed'),
})

// Between two heartbeats: the process may be alive and yet hang.
const heartbeat = task({
  name: 'heartbeatTimeout',
  heartbeatTimeout: '2s',
  run: async (_: null, { signal, heartbeat }) => {
    heartbeat()
    await sleep(forever, undefined, { signal })
  },
})

// Without progress: it beats all the time, but gets nowhere.
const stuck = task({
  name: 'stuckAfter',
  stuckAfter: '2s',
  run: async (_: null, { signal, progress }) => {
    for (;;) {
      progress(0.5)
      await sleep(200, undefined, { signal })
    }
  },
})

const holdQueue = task({
  name: 'hold-queue',
  queue: 'narrow',
  run: (_: null, { signal }) => sleep(2_000, undefined, { signal }),
})

const tasks = [total, execution, queue, heartbeat, stuck, holdQueue]
const curfew = await Curfew.open({
  store: ':memory:',
  tasks,
  // One at a time, over all processes on the same store.
  queues: { narrow: { concurrency: 1 } },
})

await curfew.schedule(holdQueue, null)
const handles: TaskHandle[] = []
for (const definition of [total, execution, queue, heartbeat, stuck]) {
  handles.push(await curfew.schedule(definition, null))
}
for (const handle of handles) {
  await Promise.allSettled([handle.result()])
  const { name, createdAt } = await handle.view()
  const { summary } = await handle.explain()
  console.log(`${name}: ${summary}`)
  for (const { at, type, seq: _seq, taskId: _taskId, nodeId: _nodeId, ...fields } of await handle.events()) {
    console.log(`  ${String(at - createdAt).padStart(5)} ms  ${type.padEnd(17)} ${told(fields)}`)
  }
}
await curfew.close()

function told({ kind, timeoutMs, lateMs, receipt, attempt }: Record<string, unknown>): string {
  const parts = Object.entries({ attempt, kind, timeoutMs, lateMs, receipt })
  return parts.flatMap(([key, value]) => (value === undefined ? [] : [`${key} ${value}`])).join(', ')
}

// Progress, more time for work that moves, and a second attempt that goes on where the first one stopped:
// node examples/progress-and-extensions.ts

import { setTimeout as sleep } from 'node:timers/promises'
import { Curfew, task } from '../src/curfew.ts'

interface Checkpoint {
  done: number
}

const importRows = task({
  name: 'import-rows',
  attemptTimeout: '3s',
  retries: 1,
  backoff: { initial: '100ms' },
  // Grants of 1 s, 0.5 s, 0.5 s … instead of 15, 7.5, 3.75 s.
  extensions: { base: '2s', min: '500ms' },
  run: async (input: { rows: number }, { attempt, signal, previousDetails, remaining, progress, extend }) => {
    let { done } = (previousDetails as Checkpoint | undefined) ?? { done: 0 }
    console.log(`attempt ${attempt} starts at row ${done}`)
    while (done < input.rows) {
      await sleep(250, undefined, { signal })
      done++
      // The details are a checkpoint for the next attempt. Reports go up at most once a second, the newest wins.
      progress({ completed: done, total: input.rows }, { done } satisfies Checkpoint)
      if (remaining() < 1_500) {
        // The first is granted; each later one needs more progress than the one before.
        const answer = await extend()
        console.log(`  row ${done}: ${answer.granted ? `${answer.ms} ms more` : `denied, ${answer.reason}`}`)
      }
      if (attempt === 1 && done === 12) throw new Error('the connection was reset')
    }
    return { rows: done }
  },
})

const curfew = await Curfew.open({ store: ':memory:', tasks: [importRows] })
const handle = await curfew.schedule(importRows, { rows: 16 })
console.log('result:', await handle.result())
for (const { attempt, status, grantedMs, failure } of (await handle.explain()).attempts) {
  const why = failure ? `: ${failure.message}` : ''
  console.log(`attempt ${attempt}: ${status}, ${grantedMs} ms granted${why}`)
}
await curfew.close()

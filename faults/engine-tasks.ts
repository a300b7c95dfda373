/** The tasks of the scripted fault tests. */
import { setTimeout as pause } from 'node:timers/promises'
import type { TaskDefinition } from '../src/curfew.ts'
import { task } from '../src/curfew.ts'
import { monotonicMs } from './journal.ts'
import { journalled } from './journalled.ts'

export interface Input {
  ms: number
  /** Only to be big. */
  padding?: string
}

/** So long, unless it is told to stop. */
const wait = task({
  name: 'wait',
  grace: 0,
  run: journalled<Input>(async ({ ms }, { signal, attempt }) => {
    await pause(ms, null, { signal })
    return { attempt }
  }),
})

/** So long at its first attempt, then at once. */
const waitOnce = task({
  name: 'wait-once',
  grace: 0,
  run: journalled<Input>(async ({ ms }, { signal, attempt }) => {
    if (attempt === 1) await pause(ms, null, { signal })
    return { attempt }
  }),
})

/** Synchronous code: nothing else happens in its process. */
const block = task({
  name: 'block',
  grace: 0,
  run: journalled<Input>(({ ms }, { attempt }) => {
    const endsAt = monotonicMs() + ms
    while (monotonicMs() < endsAt) Math.sqrt(endsAt)
    return { attempt }
  }),
})

/** Goes on to its end, whatever it is told. */
const stubborn = task({
  name: 'stubborn',
  grace: 100,
  run: journalled<Input>(async ({ ms }, { attempt }) => {
    if (attempt === 1) await pause(ms)
    return { attempt }
  }),
})

/** In a process of its own, deaf to everything. */
const deaf = task({
  name: 'deaf',
  grace: 100,
  isolation: 'process',
  file: import.meta.url,
  run: journalled<Input>(async ({ ms }, { attempt }) => {
    if (attempt > 1) return { attempt }
    process.on('SIGTERM', () => undefined)
    // The channel to a dead worker would end it: it must be found and killed.
    process.removeAllListeners('disconnect')
    await pause(ms)
    return { attempt }
  }),
})

export const engineTasks: readonly TaskDefinition<Input>[] = [wait, waitOnce, block, stubborn, deaf]

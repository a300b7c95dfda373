/** The tasks of the chaos run. */
import { setTimeout as pause } from 'node:timers/promises'
import type { TaskContext, TaskDefinition } from '../../src/curfew.ts'
import { task } from '../../src/curfew.ts'
import { journalled } from '../journalled.ts'
import type { Plan } from './kinds.ts'

type Input = Plan['input']

/** Until its signal. */
async function hang({ signal }: TaskContext): Promise<never> {
  return pause(2 ** 31 - 1, undefined as never, { signal, ref: false })
}

const backoff = { initial: 20, max: 200 }

const quick = task({ name: 'quick', backoff, run: journalled<Input>(async ({ n }) => ({ n })) })

const slow = task({
  name: 'slow',
  backoff,
  run: journalled<Input>(async ({ ms, n }, { signal }) => {
    await pause(ms, null, { signal })
    return { n }
  }),
})

const failing = task({
  name: 'failing',
  backoff,
  run: journalled<Input>(async ({ failures = 0, n }, { attempt }) => {
    await pause(5)
    if (attempt <= failures) throw new Error(`attempt ${attempt} of ${failures} that fail`)
    return { n }
  }),
})

const hanging = task({ name: 'hanging', backoff, run: journalled<Input>((_, context) => hang(context)) })

const beating = task({
  name: 'beating',
  backoff,
  run: journalled<Input>(async ({ beats = 0 }, context) => {
    for (let i = 0; i < beats; i++) {
      context.heartbeat({ i })
      await pause(200, null, { signal: context.signal })
    }
    return hang(context)
  }),
})

const progressing = task({
  name: 'progressing',
  backoff,
  run: journalled<Input>(async ({ beats = 0 }, context) => {
    for (let i = 1; i <= beats; i++) {
      context.progress({ completed: i, total: 10 })
      await pause(200, null, { signal: context.signal })
    }
    return hang(context)
  }),
})

const ignoring = task({
  name: 'ignoring',
  isolation: 'process',
  file: import.meta.url,
  backoff,
  run: journalled<Input>(async () => {
    process.on('SIGTERM', () => undefined)
    for (;;) await pause(10)
  }),
})

const isolated = task({
  name: 'isolated',
  isolation: 'process',
  file: import.meta.url,
  backoff,
  run: journalled<Input>(async ({ ms, n }) => {
    await pause(ms)
    return { n }
  }),
})

export const inlineTasks: readonly TaskDefinition<Input>[] = [
  quick,
  slow,
  failing,
  hanging,
  beating,
  progressing,
]
export const isolatedTasks: readonly TaskDefinition<Input>[] = [ignoring, isolated]

/** Scheduled, and run by nobody. */
export const unknown: TaskDefinition<Input> = task({ name: 'unknown', run: async (_: Input) => null })

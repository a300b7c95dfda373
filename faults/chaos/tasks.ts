/** The handlers of the chaos run. Each writes into the journal when it starts, while it runs, when it is told to stop and when it ends. */
import { setTimeout as pause } from 'node:timers/promises'
import type { CurfewError, TaskContext, TaskDefinition } from '../../src/curfew.ts'
import { task } from '../../src/curfew.ts'
import { note } from '../journal.ts'
import type { Plan } from './kinds.ts'

type Input = Plan['input']

const journal = process.env.CURFEW_FAULTS_JOURNAL ?? ''
const owner = Number(process.env.CURFEW_FAULTS_OWNER ?? process.pid)
const ALIVE_EVERY_MS = 100

/** Around a handler: the facts of its attempt. */
function journalled(run: (input: Input, context: TaskContext) => Promise<unknown>) {
  return async (input: Input, context: TaskContext) => {
    const { taskId, attempt, signal } = context
    const say = (type: string, more: object = {}) => note(journal, { type, taskId, attempt, owner, ...more })
    const told = () => {
      const { code, fields } = signal.reason as CurfewError
      const ofAttempt = fields.kind === 'execution' || fields.kind === 'total'
      const deadlineAt = fields.deadlineAt ?? (ofAttempt ? context.deadline : null)
      say('aborted', { code, kind: fields.kind, deadlineAt })
    }
    say('attempt_started', { deadlineAt: context.deadline })
    signal.addEventListener('abort', told)
    const ticking = setInterval(() => say('alive'), ALIVE_EVERY_MS)
    try {
      return await run(input, context)
    } finally {
      clearInterval(ticking)
      say('attempt_ended')
    }
  }
}

/** Until its signal. */
async function hang({ signal }: TaskContext): Promise<never> {
  return pause(2 ** 31 - 1, undefined as never, { signal, ref: false })
}

const backoff = { initial: 20, max: 200 }

const quick = task({ name: 'quick', backoff, run: journalled(async ({ n }) => ({ n })) })

const slow = task({
  name: 'slow',
  backoff,
  run: journalled(async ({ ms, n }, { signal }) => {
    await pause(ms, null, { signal })
    return { n }
  }),
})

const failing = task({
  name: 'failing',
  backoff,
  run: journalled(async ({ failures = 0, n }, { attempt }) => {
    await pause(5)
    if (attempt <= failures) throw new Error(`attempt ${attempt} of ${failures} that fail`)
    return { n }
  }),
})

const hanging = task({ name: 'hanging', backoff, run: journalled((_, context) => hang(context)) })

const beating = task({
  name: 'beating',
  backoff,
  run: journalled(async ({ beats = 0 }, context) => {
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
  run: journalled(async ({ beats = 0 }, context) => {
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
  run: journalled(async () => {
    process.on('SIGTERM', () => undefined)
    for (;;) await pause(10)
  }),
})

const isolated = task({
  name: 'isolated',
  isolation: 'process',
  file: import.meta.url,
  backoff,
  run: journalled(async ({ ms, n }) => {
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

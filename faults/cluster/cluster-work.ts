/** What the workers of the cluster tests can run. Every attempt is written down in the journal. */
import { setTimeout as pause } from 'node:timers/promises'
import type { AgentContext, Duration, TaskContext } from '../../src/curfew.ts'
import { agent, task, workflow } from '../../src/curfew.ts'
import { note, readJournal } from '../journal.ts'
import { journalled } from '../journalled.ts'

export interface Input {
  /** How long each attempt takes: the first, the second, …; the last stands for all that follow. */
  ms: number[]
}

const takes = ({ ms }: Input, attempt: number) => ms[Math.min(attempt, ms.length) - 1] ?? 0

const follow = async (input: Input, { signal, attempt }: TaskContext) => {
  await pause(takes(input, attempt), null, { signal })
  return { attempt, pid: process.pid }
}

/** Follows its signal. */
export const wait = task({
  name: 'wait',
  grace: '1s',
  run: journalled(follow),
})

/** The same in a process of its own, which ends with its worker's channel. */
export const apart = task({
  name: 'apart',
  grace: '1s',
  isolation: 'process',
  file: import.meta.url,
  run: journalled(follow),
})

/** In a process of its own, and deaf to everything: it has to be found and killed. */
export const deaf = task({
  name: 'deaf',
  grace: 100,
  isolation: 'process',
  file: import.meta.url,
  run: journalled(async (input: Input, { attempt }) => {
    process.on('SIGTERM', () => undefined)
    process.removeAllListeners('disconnect')
    await pause(takes(input, attempt))
    return { attempt, pid: process.pid }
  }),
})

/** Goes on to its end in the worker's own process, whatever it is told. */
export const stubborn = task({
  name: 'stubborn',
  grace: 100,
  run: journalled(async (input: Input, { attempt }) => {
    await pause(takes(input, attempt))
    return { attempt, pid: process.pid }
  }),
})

/** Shows progress and asks for more time, twice; answers how much each was granted. */
export const extending = task({
  name: 'extending',
  grace: '1s',
  attemptTimeout: '1m',
  extensions: { base: '10s', min: '1s', max: 5 },
  run: journalled(async ({ ms }: { ms: number }, context) => {
    const granted: number[] = []
    for (const completed of [1, 2]) {
      const answer = await context.extend({ progress: { completed, total: 4 } })
      granted.push(answer.granted ? answer.ms : 0)
      await pause(ms, null, { signal: context.signal })
    }
    return granted
  }),
})

export interface MarkInput {
  /** How long the side effect takes the first time. */
  ms: number
}

/** A task, a side effect that takes a while, a task: answers the processes that ran the side effect. */
export const planner = agent({
  name: 'planner',
  run: async ({ ms }: MarkInput, ctx) => {
    const first = await ctx.schedule(wait, { ms: [100] })
    await mark(ctx, 'effect', ms)
    const second = await ctx.schedule(wait, { ms: [100] })
    const effects = await ctx.run('count', () => effectsOf(ctx.agentId, 'effect'))
    return { tasks: [first.attempt, second.attempt], effects }
  },
})

/** Takes as many signals as it was told; answers their values. */
export const listener = agent({
  name: 'listener',
  run: async ({ signals, within }: { signals: number; within: Duration }, ctx) => {
    const values: unknown[] = []
    for (let i = 0; i < signals; i++) values.push(await ctx.waitForSignal('news'))
    // One more than was sent would be one that came twice.
    const more = await ctx.waitForSignal('news', { timeout: within }).catch(() => null)
    return more === null ? values : [...values, more]
  },
})

/** One after the other. */
export const pair = workflow({
  name: 'pair',
  actions: { wait },
  nodes: [
    { id: 'first', actionId: 'wait', input: 'input', output: { 'state.first': 'result.attempt' } },
    { id: 'second', actionId: 'wait', input: 'input', output: { 'state.second': 'result.attempt' } },
  ],
  transitions: [{ from: 'first', to: 'second' }],
  output: 'state',
})

export const tasks = [wait, apart, deaf, stubborn, extending]
export const agents = [planner, listener]
export const workflows = [pair]

/** So long the first time, then at once. */
async function mark(ctx: AgentContext, effect: string, ms: number): Promise<void> {
  const journal = process.env.FAULTS_JOURNAL ?? ''
  await ctx.run(effect, async ({ signal }) => {
    const again = effectsOf(ctx.agentId, effect) > 0
    note(journal, { type: 'effect_started', agentId: ctx.agentId, effect })
    if (!again) await pause(ms, null, { signal })
    note(journal, { type: 'effect_ended', agentId: ctx.agentId, effect })
  })
}

function effectsOf(agentId: string, effect: string): number {
  return readJournal(process.env.FAULTS_JOURNAL ?? '').filter(
    (fact) => fact.type === 'effect_started' && fact.agentId === agentId && fact.effect === effect,
  ).length
}

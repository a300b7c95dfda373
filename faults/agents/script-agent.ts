/**
 * The agent of the chaos run: follows a script, and says with each side effect what it has seen so far. Its clean-up
 * is one more side effect.
 */
import { setTimeout as pause } from 'node:timers/promises'
import type { AgentContext, AgentDefinition, CurfewError, StepHandle } from '../../src/curfew.ts'
import { agent, HandlerError, task } from '../../src/curfew.ts'
import { note } from '../journal.ts'
import { journalled } from '../journalled.ts'
import type { Op, Script } from './plans.ts'

/** What each op brought, in their order. */
export type Path = unknown[]

/** Long enough for a process whose lease nobody can shorten. */
const CLEANUP = '5m'

const work = task({
  name: 'work',
  grace: 0,
  run: journalled<{ ms: number; fails: boolean }>(async ({ ms, fails }, { signal }) => {
    await pause(ms, null, { signal })
    if (fails) throw new HandlerError('as planned', { code: 'planned' })
    return ms
  }),
})

export const scriptAgent: AgentDefinition<Script, Path> = agent({
  name: 'script',
  cleanup: CLEANUP,
  run: async ({ ops, end }: Script, ctx) => {
    const path: Path = []
    try {
      await follow(ctx, 'main', ops, path)
      if (end === 'throw') throw new HandlerError('as planned', { code: 'planned' })
      if (end === 'hang') await ctx.waitForSignal('never')
      return path
    } finally {
      await undo(ctx, path)
    }
  },
})

export const scriptTasks = [work]

async function follow(ctx: AgentContext, name: string, ops: readonly Op[], path: Path): Promise<void> {
  for (const [i, op] of ops.entries()) {
    // What completes just as it has to stop must not lead on.
    ctx.signal.throwIfAborted()
    path.push(await perform(ctx, `${name}.${i}`, op, path))
  }
  ctx.signal.throwIfAborted()
}

async function perform(ctx: AgentContext, name: string, op: Op, path: Path): Promise<unknown> {
  switch (op.op) {
    case 'effect':
      return sideEffect(ctx, name, op.ms, path)
    case 'sleep': {
      const before = ctx.now()
      await ctx.sleep(op.ms)
      return [before, ctx.now()]
    }
    case 'values':
      return [ctx.now(), ctx.random(), ctx.uuid()]
    case 'task': {
      const handle = ctx.schedule(work, op)
      return [handle.id, await orCode(ctx, handle)]
    }
    case 'all':
      return orCode(ctx, ctx.all(schedule(ctx, op.ms)))
    case 'any':
      return orCode(ctx, ctx.any(schedule(ctx, op.ms), { cancelRest: true }))
    case 'race':
      return orCode(ctx, ctx.race(schedule(ctx, op.ms)))
    case 'settled': {
      const { outcomes } = await ctx.allSettled(schedule(ctx, op.ms), { timeout: op.timeoutMs })
      return outcomes.map(({ status }) => status)
    }
    case 'signal':
      return ctx.waitForSignal('go')
    case 'child':
      return ctx.child(scriptAgent, { ops: op.ops, end: 'return' })
    case 'both': {
      const paths: [Path, Path] = [[...path], [...path]]
      const ends = await Promise.allSettled([
        follow(ctx, `${name}l`, op.left, paths[0]),
        follow(ctx, `${name}r`, op.right, paths[1]),
      ])
      for (const branch of ends) if (branch.status === 'rejected') throw branch.reason
      return paths.map((branch) => branch.slice(path.length))
    }
  }
}

function schedule(ctx: AgentContext, durations: readonly number[]): StepHandle<unknown>[] {
  return durations.map((ms) => ctx.schedule(work, { ms, fails: false }))
}

/** A failure is a value too, unless the agent has to stop. */
async function orCode(ctx: AgentContext, step: StepHandle): Promise<unknown> {
  try {
    return await step
  } catch (error) {
    ctx.signal.throwIfAborted()
    return (error as CurfewError).code
  }
}

/** A stop ends whatever runs, if only to clean up after something else: then it is done again. */
async function undo(ctx: AgentContext, path: Path): Promise<void> {
  const stopped = ctx.signal.aborted
  try {
    await sideEffect(ctx, 'undo', 2, path)
  } catch (error) {
    if (stopped || !ctx.signal.aborted) throw error
    await sideEffect(ctx, 'undo again', 2, path)
  }
}

let made = 0

/** Outside the store: what is written here stays, whatever becomes of the process. */
async function sideEffect(ctx: AgentContext, name: string, ms: number, path: Path): Promise<unknown> {
  const journal = process.env.FAULTS_JOURNAL ?? ''
  const seen = [...path]
  return ctx.run(name, async ({ signal }) => {
    const fact = { agentId: ctx.agentId, effect: name, value: `e${process.pid}.${++made}` }
    note(journal, { type: 'effect_started', ...fact, path: seen })
    try {
      if (ms > 0) await pause(ms, null, { signal })
      return fact.value
    } finally {
      note(journal, { type: 'effect_ended', ...fact })
    }
  })
}

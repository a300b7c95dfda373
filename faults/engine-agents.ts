/** The agents of the scripted fault tests. */
import { setTimeout as pause } from 'node:timers/promises'
import type { AgentContext, AgentDefinition } from '../src/curfew.ts'
import { agent } from '../src/curfew.ts'
import { engineTasks } from './engine-tasks.ts'
import { note, readJournal } from './journal.ts'

export interface AgentInput {
  ms?: number
  rounds?: number
}

/** Written down outside the store; so long the first time, then at once. */
async function mark(ctx: AgentContext, name: string, ms = 0): Promise<number> {
  const journal = process.env.FAULTS_JOURNAL ?? ''
  return ctx.run(name, async () => {
    const fact = { agentId: ctx.agentId, effect: name }
    const again = readJournal(journal).some(
      ({ type, agentId, effect }) => type === 'effect_started' && agentId === ctx.agentId && effect === name,
    )
    note(journal, { type: 'effect_started', ...fact })
    if (!again) await pause(ms)
    note(journal, { type: 'effect_ended', ...fact })
    return process.pid
  })
}

/** Two side effects, of which the first takes so long. Ends with the processes that did them. */
const twoMarks = agent({
  name: 'two-marks',
  run: async ({ ms = 0 }: AgentInput, ctx) => [await mark(ctx, 'first', ms), await mark(ctx, 'second')],
})

/** A task and a side effect, again and again. */
const relay = agent({
  name: 'relay',
  run: async ({ rounds = 1 }: AgentInput, ctx) => {
    const processes = new Set([await mark(ctx, 'begin')])
    for (let i = 0; i < rounds; i++) {
      await ctx.schedule(engineTasks[0] as (typeof engineTasks)[number], { ms: 1 })
      processes.add(await mark(ctx, `round ${i}`))
    }
    return [...processes]
  },
})

export const engineAgents: readonly AgentDefinition<AgentInput, number[]>[] = [twoMarks, relay]

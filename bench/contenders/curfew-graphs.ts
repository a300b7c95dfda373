// Curfew's graphs, beside agents of as many steps in the same engine: what runs them both is the same, so the
// difference is what a graph costs. As many slots as in curfew-agents.ts.

import { agent, Curfew, task, workflow } from '../../src/curfew.ts'
import { numbers } from '../benchmark.ts'

const SLOTS = 1_000

/** A chain of nodes that do nothing, and an agent that schedules as many tasks, one after the other. */
export async function openChains(store: string, steps: number) {
  const noop = task({ name: 'noop', run: (_: { step: number }) => null })
  const stepper = agent({
    name: 'steps',
    run: async (_: null, ctx) => {
      for (let step = 0; step < steps; step++) await ctx.schedule(noop, { step })
    },
  })
  const chain = workflow({
    name: 'chain',
    actions: { noop },
    nodes: numbers(steps).map((step) => ({ id: `step${step}`, actionId: 'noop' as const, input: { step } })),
    transitions: numbers(steps - 1).map((step) => ({ from: `step${step}`, to: `step${step + 1}` })),
  })
  const curfew = await Curfew.open({
    store,
    tasks: [noop],
    agents: [stepper],
    workflows: [chain],
    concurrency: SLOTS,
    turns: SLOTS,
  })
  return {
    runAgents: async (count: number) => {
      const handles = await Promise.all(numbers(count).map(() => curfew.start(stepper, null)))
      await Promise.all(handles.map((handle) => handle.result()))
    },
    runGraphs: async (count: number) => {
      const handles = await Promise.all(numbers(count).map(() => curfew.start(chain, null)))
      await Promise.all(handles.map((handle) => handle.result()))
    },
    close: () => curfew.close({ drain: false }),
  }
}

/** One run that fans out to as many branches as its input has items, each a node that does nothing, and joins them. */
export async function openFanOut(store: string) {
  const noop = task({ name: 'noop', run: (_: { item: number }) => null })
  const fanOut = workflow({
    name: 'fan-out',
    actions: { noop },
    nodes: [
      { id: 'begin' },
      { id: 'branch', actionId: 'noop', input: { item: 'branch.item' } },
      { id: 'end' },
    ],
    transitions: [
      { id: 'fan', from: 'begin', to: 'branch', foreach: { collection: 'input.items' } },
      {
        from: 'branch',
        to: 'end',
        synchronization: {
          strategy: 'all',
          siblingGroup: 'fan',
          merge: { target: 'state.outputs', strategy: 'collect' },
        },
      },
    ],
    output: 'size(state.outputs)',
  })
  const curfew = await Curfew.open({ store, tasks: [noop], workflows: [fanOut], concurrency: SLOTS })
  return {
    run: async (branches: number) => {
      const handle = await curfew.start(fanOut, { items: numbers(branches) })
      const joined = await handle.result()
      if (joined !== branches) throw new Error(`${joined} of ${branches} branches were joined`)
    },
    close: () => curfew.close({ drain: false }),
  }
}

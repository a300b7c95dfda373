// Curfew's agents. A step is a task with a row of its own, which any process may run; as many slots for
// tasks and turns as there are agents were fastest (100 of each: half of that).

import { agent, Curfew, task } from '../../src/curfew.ts'
import { Countdown, numbers } from '../benchmark.ts'
import type { OpenAgents } from '../contender.ts'

const SLOTS = 1_000

export const openCurfewAgents: OpenAgents = async ({ store, steps }) => {
  const noop = task({ name: 'noop', run: (_: { step: number }) => null })
  const stepper = agent({
    name: 'steps',
    run: async (_: null, ctx) => {
      for (let step = 0; step < steps; step++) await ctx.schedule(noop, { step })
    },
  })
  const curfew = await Curfew.open({
    store,
    tasks: [noop],
    agents: [stepper],
    concurrency: SLOTS,
    turns: SLOTS,
  })
  return {
    runAgents: async (count) => {
      const handles = await Promise.all(numbers(count).map(() => curfew.start(stepper, null)))
      await Promise.all(handles.map((handle) => handle.result()))
    },
    close: () => curfew.close({ drain: false }),
  }
}

const STARTED_AT_ONCE = 500

/** Agents that wait for the signal `go`, and call this once they have it. */
export async function openWaitingAgents(store: string, goOn: () => void) {
  let left = new Countdown(0)
  const waiter = agent({
    name: 'waiter',
    run: async (_: null, ctx) => {
      left.down()
      await ctx.waitForSignal('go')
      goOn()
    },
  })
  const curfew = await Curfew.open({ store, agents: [waiter] })
  return {
    /** Resolves when the code of all has come to where it waits. */
    start: async (count: number) => {
      left = new Countdown(count)
      const handles = []
      while (handles.length < count) {
        const slice = numbers(Math.min(STARTED_AT_ONCE, count - handles.length))
        handles.push(...(await Promise.all(slice.map(() => curfew.start(waiter, null)))))
      }
      await left.done
      return handles
    },
  }
}

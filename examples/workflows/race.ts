// Three providers race. The first good answer goes on, the others are stopped: node examples/workflows/race.ts

import { setTimeout as sleep } from 'node:timers/promises'
import { Curfew, task, workflow } from '../../src/curfew.ts'

const askProvider = task({
  name: 'ask-provider',
  run: async ({ provider }: { provider: string }, { signal }) => {
    const takes: Record<string, number> = { north: 100, east: 60_000, south: 300 }
    await sleep(takes[provider], undefined, { signal })
    if (provider === 'north') throw new Error('north is overloaded')
    return `${provider} says 42`
  },
})

export const firstAnswer = workflow({
  name: 'first-answer',
  actions: { askProvider },
  nodes: [
    { id: 'start' },
    { id: 'ask', actionId: 'askProvider', timeout: '20s', input: { provider: 'branch.item' } },
    { id: 'done', output: { 'output.answer': 'state.answer' } },
  ],
  transitions: [
    { id: 'providers', from: 'start', to: 'ask', foreach: { collection: "['north', 'east', 'south']" } },
    {
      from: 'ask',
      to: 'done',
      synchronization: {
        strategy: 'any', // a branch that fails is out of the race
        siblingGroup: 'providers',
        late: 'cancel',
        merge: { target: 'state.answer', strategy: 'last_wins' },
      },
    },
  ],
})

if (import.meta.main) {
  const curfew = await Curfew.open({ store: ':memory:', workflows: [firstAnswer] })
  const run = await curfew.start(firstAnswer)
  console.log(await run.result())
  // A run's result is told when nothing of it runs any more.
  for (const { node, status, workId } of (await run.run()).tokens) {
    if (workId) console.log(`${node}: ${status}, ${(await curfew.task(workId).explain()).summary}`)
  }
  await curfew.close()
}

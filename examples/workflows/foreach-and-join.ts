// One branch per element of a list, two at a time, and one node that is given all of them:
// node examples/workflows/foreach-and-join.ts

import { setTimeout as sleep } from 'node:timers/promises'
import { Curfew, graph, task, workflow } from '../../src/curfew.ts'

const planTopics = task({
  name: 'plan-topics',
  run: async ({ question }: { question: string }) => ({ topics: [question, 'tea', 'water', 'fire', 'cups'] }),
})

const readAbout = task({
  name: 'read-about',
  run: async ({ topic }: { topic: string }, { signal }) => {
    await sleep(100, undefined, { signal })
    return `a page about ${topic}`
  },
})

const summarize = task({
  name: 'summarize',
  run: async ({ pages }: { pages: string[] }) => `${pages.length} pages, from ${pages[0]} to ${pages.at(-1)}`,
})

export const research = workflow({
  name: 'research',
  actions: { planTopics, readAbout, summarize },
  nodes: [
    { id: 'plan', actionId: 'planTopics', timeout: '5s' },
    { id: 'read', actionId: 'readAbout', timeout: '5s', input: { topic: 'branch.topic' } },
    { id: 'write', actionId: 'summarize', timeout: '5s', input: { pages: 'state.pages' } },
  ],
  transitions: [
    {
      id: 'topics',
      from: 'plan',
      to: 'read',
      foreach: { collection: 'state.topics', itemVar: 'topic' },
      maxParallel: 2,
    },
    {
      from: 'read',
      to: 'write',
      // The outputs come in the order of the list, whoever was first.
      synchronization: { strategy: 'all', siblingGroup: 'topics', merge: { target: 'state.pages' } },
    },
  ],
})

if (import.meta.main) {
  console.log(graph(research))
  const curfew = await Curfew.open({ store: ':memory:', workflows: [research] })
  const run = await curfew.start(research, { question: 'kettles' })
  console.log(await run.result())
  await curfew.close()
}

// Several engines on one PostgreSQL: any of them runs a graph, those that have the code run its tasks.
import { expect } from 'vitest'
import { onEachStore } from '../scripts/acceptance/world.ts'
import { task, workflow } from './curfew.ts'

const add = task({ name: 'add', run: ({ n }: { n: number }) => n + 1 })
const counting = workflow({
  name: 'counting',
  actions: { add },
  nodes: [
    { id: 'first', actionId: 'add', input: { n: 'input' }, output: { 'state.n': 'result' } },
    { id: 'each', actionId: 'add', input: { n: 'state.n + branch.index' } },
    { id: 'last', actionId: 'add', input: { n: 'state.all[2]' } },
  ],
  transitions: [
    { id: 'fan', from: 'first', to: 'each', spawnCount: 3 },
    {
      from: 'each',
      to: 'last',
      synchronization: { strategy: 'all', siblingGroup: 'fan', merge: { target: 'state.all' } },
    },
  ],
})

onEachStore(
  'workflows over several engines',
  (test) => {
    test('are run by engines that know neither them nor their tasks', async ({ world }) => {
      const one = await world.open({ workflows: [counting] })
      await world.open({ turns: 1_000 })
      await world.open({ turns: 1_000 })
      const handles = await Promise.all(Array.from({ length: 30 }, (_, n) => one.start(counting, n)))
      await world.runFor(5)
      const results = await Promise.all(handles.map((handle) => handle.result()))
      expect(results).toEqual(Array.from({ length: 30 }, (_, n) => n + 5))
    })

    test('go on where the engine that ran them died', async ({ world }) => {
      const first = await world.open({ workflows: [counting], concurrency: 0 })
      const { id } = await first.start(counting, 1)
      await world.runFor(1)
      await world.crash()
      const curfew = await world.open({ workflows: [counting] })
      await world.runFor(60)
      expect(await curfew.workflow(id).result()).toBe(6)
    })
  },
  ['postgres'],
)

// Ask five shops and go on with what has arrived half a second after the first answer:
// node examples/workflows/join-in-time.ts

import { setTimeout as sleep } from 'node:timers/promises'
import { Curfew, task, workflow } from '../../src/curfew.ts'

const askPrice = task({
  name: 'ask-price',
  run: async ({ shop }: { shop: string }, { signal }) => {
    const takes: Record<string, number> = { amber: 300, birch: 60_000, cedar: 100, dune: 500, elm: 60_000 }
    await sleep(takes[shop], undefined, { signal })
    if (shop === 'cedar') throw new Error('sold out')
    return { shop, price: shop === 'amber' ? 12.5 : 11 }
  },
})

export const comparePrices = workflow({
  name: 'compare-prices',
  actions: { askPrice },
  nodes: [
    { id: 'start' }, // it has no action: it only fans out
    { id: 'ask', actionId: 'askPrice', timeout: '20s', input: { shop: 'branch.shop' } },
    {
      id: 'compare',
      output: {
        'output.prices': 'state.prices',
        'output.asked': 'join.expected',
        'output.late': 'join.timed_out',
      },
    },
  ],
  transitions: [
    { id: 'shops', from: 'start', to: 'ask', foreach: { collection: 'input.shops', itemVar: 'shop' } },
    {
      from: 'ask',
      to: 'compare',
      synchronization: {
        strategy: 'all',
        siblingGroup: 'shops',
        timeout: '500ms', // from the first arrival
        onTimeout: 'proceed_with_available',
        onBranchFailure: 'settle', // a shop that fails is one answer less, not the end of the run
        late: 'cancel',
        merge: { target: 'state.prices', strategy: 'collect' },
      },
    },
  ],
})

if (import.meta.main) {
  const curfew = await Curfew.open({ store: ':memory:', workflows: [comparePrices] })
  const run = await curfew.start(comparePrices, { shops: ['amber', 'birch', 'cedar', 'dune', 'elm'] })
  console.log(await run.result())
  for (const { type, arrived, expected, timedOut } of await run.events()) {
    if (type !== 'join_fired') continue
    console.log(`${type}: ${arrived} of ${expected}${timedOut ? ' after its timeout' : ''}`)
  }
  await curfew.close()
}

// Nodes one after the other, and a choice between two ways: node examples/workflows/sequential.ts

import { Curfew, task, workflow } from '../../src/curfew.ts'

interface Order {
  item: string
  count: number
}

const checkStock = task({
  name: 'check-stock',
  run: async ({ count }: Order) => ({ missing: Math.max(0, count - 3) }),
})

const orderMore = task({
  name: 'order-more',
  run: async ({ item, count }: Order) => `${count} ${item} ordered`,
})

const ship = task({
  name: 'ship',
  run: async ({ item, count }: Order) => `${count} ${item} shipped`,
})

export const processOrder = workflow({
  name: 'process-order',
  timeout: '10m', // the whole run; one hour unless set
  actions: { checkStock, orderMore, ship },
  nodes: [
    // Without an `input` a node is given the workflow's. The keys of its result go into `state`.
    { id: 'check', actionId: 'checkStock', timeout: '5s' },
    {
      id: 'restock',
      actionId: 'orderMore',
      timeout: '1m',
      input: { item: 'input.item', count: 'state.missing' },
    },
    { id: 'ship', actionId: 'ship', timeout: '1m' },
  ],
  transitions: [
    // Tiers are tried in their order. The first with a match fires.
    { from: 'check', to: 'restock', condition: 'state.missing > 0' },
    { from: 'check', to: 'ship', priority: 1 },
    { from: 'restock', to: 'ship' },
  ],
})

if (import.meta.main) {
  const curfew = await Curfew.open({ store: ':memory:', workflows: [processOrder] })
  for (const count of [2, 5]) {
    const run = await curfew.start(processOrder, { item: 'kettle', count }, { key: `order ${count}` })
    const result = await run.result()
    const { tokens } = await run.run()
    console.log(`${result}, by ${tokens.map(({ node }) => node).join(', ')}`)
  }
  await curfew.close()
}

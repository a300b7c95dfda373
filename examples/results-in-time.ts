// Ask five shops for a price and go on with those that answered in time: node examples/results-in-time.ts

import { setTimeout as sleep } from 'node:timers/promises'
import type { Duration } from '../src/curfew.ts'
import { agent, Curfew, task } from '../src/curfew.ts'

const shops = ['amber', 'birch', 'cedar', 'dune', 'elm']

export const askPrice = task({
  name: 'ask-price',
  retries: 1,
  backoff: { initial: '100ms' },
  run: async (input: { shop: string; product: string }, { signal }) => callShop(input.shop, signal),
})

export const comparePrices = agent({
  name: 'compare-prices',
  run: async ({ product, within }: { product: string; within: Duration }, ctx) => {
    const asked = shops.map((shop) => ctx.schedule(askPrice, { shop, product }))
    // Never throws for a task. When the time is over, what has not ended is listed and cancelled.
    const { completed, failed, timedOut } = await ctx.allSettled(asked, { timeout: within })
    const prices = completed.map(({ index, value }) => ({ shop: shops[index], price: value }))
    return {
      best: prices.toSorted((a, b) => a.price - b.price).at(0) ?? null,
      prices,
      failed: failed.map(({ index, error }) => ({ shop: shops[index], why: error.message })),
      late: timedOut.map(({ index }) => shops[index]),
    }
  },
})

/** Stands for a service you would reach with `fetch(url, { signal })`. */
async function callShop(shop: string, signal: AbortSignal): Promise<number> {
  const delays: Record<string, number> = { amber: 300, birch: 60_000, cedar: 100, dune: 600, elm: 60_000 }
  await sleep(delays[shop], undefined, { signal })
  if (shop === 'cedar') throw new Error('sold out')
  return shop === 'amber' ? 12.5 : 11
}

if (import.meta.main) {
  const curfew = await Curfew.open({ store: ':memory:', tasks: [askPrice], agents: [comparePrices] })
  // 30 s in earnest; nobody wants to wait for an example.
  const run = await curfew.start(comparePrices, { product: 'kettle', within: '2s' })
  const { best, prices, failed, late } = await run.result()
  console.log(`best: ${best?.shop} at ${best?.price}, of ${prices.length} prices`)
  for (const { shop, why } of failed) console.log(`${shop} failed: ${why}`)
  console.log(`too late: ${late.join(', ')}`)
  await curfew.close()
}

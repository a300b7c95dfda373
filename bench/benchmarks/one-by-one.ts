// Schedule one by one from 16 concurrent callers: acknowledged tasks a second, of tasks that start tomorrow
// (scheduling alone) and of tasks that this process runs meanwhile.

import type { Benchmark } from '../benchmark.ts'

const CALLERS = 16
const TOMORROW_MS = 86_400_000

export const oneByOne: Benchmark = {
  title: 'schedule one by one from 16 concurrent callers',
  rounds: 3,
  metrics: {
    perSecond: { label: 'acknowledged/s', better: 'higher', digits: 0 },
    perSecondRunning: { label: 'acknowledged/s, run meanwhile', better: 'higher', digits: 0 },
  },
  async run({ contender, store, open, quick }) {
    const seconds = quick ? 1 : 5
    const session = await open({ store, purpose: 'schedule', concurrency: 100, handler: async () => {} })
    const measure = async (options: { delayMs?: number }, forSeconds: number) => {
      let acknowledged = 0
      const startedAt = performance.now()
      const endAt = startedAt + forSeconds * 1000
      const caller = async () => {
        while (performance.now() < endAt) await session.schedule(acknowledged++, options)
      }
      await Promise.all(Array.from({ length: CALLERS }, caller))
      return acknowledged / ((performance.now() - startedAt) / 1000)
    }
    const startsAtOnce = contender === 'dbos-direct'
    await measure(startsAtOnce ? {} : { delayMs: TOMORROW_MS }, 0.5)
    const perSecond = startsAtOnce ? 'starts at once' : await measure({ delayMs: TOMORROW_MS }, seconds)
    return { perSecond, perSecondRunning: await measure({}, seconds) }
  },
}

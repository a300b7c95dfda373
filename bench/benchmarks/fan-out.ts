// One run of a graph that fans out and joins: from its start until its end in the store, and what a branch costs
// with few and with many of them.

import type { Benchmark, Measures } from '../benchmark.ts'
import { median } from '../benchmark.ts'

const SIZES = [100, 1_000, 10_000]
const QUICK_SIZES = [100, 1_000]
/** Runs of each size. */
const RUNS = [20, 5, 3]
const WARM_UP = 2

const perBranch = (branches: string) =>
  ({ label: `µs a branch of ${branches}`, better: 'lower', digits: 0 }) as const

export const fanOut: Benchmark = {
  title: 'one run that fans out to 1,000 no-op branches and joins, and the cost of a branch up to 10,000',
  rounds: 3,
  metrics: {
    thousandMs: { label: 'ms for 1,000', better: 'lower', digits: 0 },
    perBranch100: perBranch('100'),
    perBranch1000: perBranch('1,000'),
    perBranch10000: perBranch('10,000'),
    growth: { label: 'most to 100', better: 'lower', digits: 2 },
  },
  async run({ store, quick }) {
    const { openFanOut } = await import('../contenders/curfew-graphs.ts')
    const session = await openFanOut(store)
    const timed = async (branches: number) => {
      const startedAt = performance.now()
      await session.run(branches)
      return performance.now() - startedAt
    }
    for (let i = 0; i < WARM_UP; i++) for (const branches of [1_000, 100]) await timed(branches)
    const measures: Measures = {}
    for (const [i, branches] of (quick ? QUICK_SIZES : SIZES).entries()) {
      const samples: number[] = []
      while (samples.length < RUNS[i]!) samples.push(await timed(branches))
      const ms = median(samples)
      if (branches === 1_000) measures.thousandMs = ms
      measures[`perBranch${branches}`] = (ms * 1000) / branches
    }
    await session.close()
    const most = measures.perBranch10000 ?? measures.perBranch1000
    measures.growth = Number(most) / Number(measures.perBranch100)
    return measures
  },
}

// A process of its own for one run of one benchmark with one contender, so that heaps do not mix.

import type { Measures } from './benchmark.ts'
import { BENCHMARKS } from './benchmarks.ts'
import type { LoadCluster, OpenAgents } from './contender.ts'
import { CONTENDERS } from './contenders.ts'

export interface MeasureOrder {
  benchmark: string
  contender: string
  store: string
  adminUrl: string
  quick: boolean
}

export type MeasureAnswer = { measures: Measures } | { problem: string }

if (import.meta.main) {
  const { benchmark, contender, ...place } = JSON.parse(process.argv[2]!) as MeasureOrder
  const answer = await measure()
  // Engines may hold the process open for a long time; what was measured is complete.
  process.send!(answer, () => process.exit())

  async function measure(): Promise<MeasureAnswer> {
    try {
      const { load, loadAgents, loadCluster: ofContender } = CONTENDERS[contender]!
      const open = await load()
      const openAgents: OpenAgents = async (options) => {
        if (!loadAgents) throw new Error(`${contender} has no agents`)
        return (await loadAgents())(options)
      }
      const loadCluster: LoadCluster = async () => {
        if (!ofContender) throw new Error(`${contender} has no cluster`)
        return ofContender()
      }
      const contending = { contender, open, openAgents, loadCluster }
      return { measures: await BENCHMARKS[benchmark]!.run({ ...contending, ...place }) }
    } catch (error) {
      return { problem: error instanceof Error ? (error.stack ?? error.message) : String(error) }
    }
  }
}

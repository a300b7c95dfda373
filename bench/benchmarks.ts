import type { Benchmark } from './benchmark.ts'
import { agents } from './benchmarks/agents.ts'
import { attachedWorkers } from './benchmarks/attached-workers.ts'
import { backlog } from './benchmarks/backlog.ts'
import { bulk } from './benchmarks/bulk.ts'
import { cluster } from './benchmarks/cluster.ts'
import { crash } from './benchmarks/crash.ts'
import { deadlines } from './benchmarks/deadlines.ts'
import { fanOut } from './benchmarks/fan-out.ts'
import { graphs } from './benchmarks/graphs.ts'
import { idle } from './benchmarks/idle.ts'
import { mapreduce } from './benchmarks/mapreduce.ts'
import { oneByOne } from './benchmarks/one-by-one.ts'
import { pickup } from './benchmarks/pickup.ts'
import { raw } from './benchmarks/raw.ts'
import { signals } from './benchmarks/signals.ts'
import { timeouts } from './benchmarks/timeouts.ts'
import { waitingAgents } from './benchmarks/waiting-agents.ts'
import { watch } from './benchmarks/watch.ts'

/** In the order in which they run. */
export const BENCHMARKS: Record<string, Benchmark> = {
  raw,
  bulk,
  'one-by-one': oneByOne,
  pickup,
  timeouts,
  deadlines,
  crash,
  idle,
  backlog,
  agents,
  signals,
  'waiting-agents': waitingAgents,
  graphs,
  'fan-out': fanOut,
  cluster,
  'attached-workers': attachedWorkers,
  watch,
  mapreduce,
}

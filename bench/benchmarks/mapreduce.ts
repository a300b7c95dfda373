// A list of items, a command for each, so many at a time: the whole process, from its start to its exit. Curfew, as it
// is published, stores every step of it and counts limits; GNU parallel starts processes. Work folders are plain ones.

import { execFile } from 'node:child_process'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import type { Benchmark } from '../benchmark.ts'
import { median } from '../benchmark.ts'
import { findParallel } from '../peers/gnu-parallel.ts'

const ITEMS = 200
const PARALLEL = 10
const FEW = 100
const MANY = 10_000
/** Limits on and off take turns this often: the difference is far smaller than the noise of one run. */
const PAIRS = 20
/** In each round: one alone is as much noise as it is time. */
const RUNS = 7

const run = promisify(execFile)
const root = join(import.meta.dirname, '../..')
const cli = join(root, 'dist/cli/main.js')

export const mapreduce: Benchmark = {
  title: `a map-reduce of ${ITEMS} times true, ${PARALLEL} at once, as a process`,
  rounds: 3,
  metrics: {
    seconds: { label: 's for 200 items', better: 'lower', digits: 2 },
    times: { label: 'times GNU parallel, in turns', better: 'lower', digits: 2, compared: false },
    limitsPercent: {
      label: '% longer with limits than without',
      better: 'lower',
      digits: 1,
      compared: false,
    },
    limitsCpuPercent: {
      label: '% more processor time of the runner with them',
      better: 'lower',
      digits: 1,
      compared: false,
    },
    moreMb: {
      label: 'MB more heap with 10,000 items than with 100',
      better: 'lower',
      digits: 0,
      compared: false,
    },
    rssTimes: {
      label: 'times the memory of the process with them',
      better: 'lower',
      digits: 2,
      compared: false,
    },
  },
  async run({ contender, quick }) {
    if (contender === 'gnu-parallel') {
      const parallel = await gnuParallel()
      const seconds: number[] = []
      for (let i = 0; i < (quick ? 1 : RUNS); i++) seconds.push(await parallel())
      const none = {
        limitsPercent: 'none',
        limitsCpuPercent: 'none',
        moreMb: 'none',
        rssTimes: 'none',
      } as const
      return { seconds: median(seconds), times: 'none', ...none }
    }
    const folder = await mkdtemp(join(tmpdir(), 'curfew-bench-mapreduce-'))
    try {
      await run(process.execPath, [join(root, 'scripts/build.ts')])
      const pipeline = new Pipeline(folder)
      await pipeline.run(ITEMS, false)
      const parallel = await gnuParallel()
      const runs: { own: number; peer: number }[] = []
      for (let i = 0; i < (quick ? 1 : RUNS); i++)
        runs.push({ own: (await pipeline.run(ITEMS, false)).seconds, peer: await parallel() })
      const seconds = median(runs.map(({ own }) => own))
      const times = median(runs.map(({ own, peer }) => own / peer))
      const [without, limited]: [Usage[], Usage[]] = [[], []]
      for (let i = 0; i < (quick ? 1 : PAIRS); i++) {
        // Neither is always the one that comes after the other.
        const turns = [false, true].sort(() => (i % 2 === 0 ? 1 : -1))
        for (const isLimited of turns)
          (isLimited ? limited : without).push(await pipeline.run(ITEMS, isLimited, 'cpu'))
      }
      // Of each pair: what else the machine does, both of it have in common.
      const more = (key: 'seconds' | 'cpuMs') =>
        (median(limited.map((one, i) => one[key] / without[i]![key])) - 1) * 100
      const few = await pipeline.run(FEW, true, 'heap')
      const many = await pipeline.run(quick ? FEW * 10 : MANY, true, 'heap')
      const moreMb = many.heapMb - few.heapMb
      const rssTimes =
        (await pipeline.run(quick ? FEW * 10 : MANY, true, 'cpu')).rssMb /
        (await pipeline.run(FEW, true, 'cpu')).rssMb
      const limits = { limitsPercent: more('seconds'), limitsCpuPercent: more('cpuMs') }
      return { seconds, times, ...limits, moreMb, rssTimes }
    } finally {
      await rm(folder, { recursive: true, force: true })
    }
  },
}

interface Usage {
  seconds: number
  cpuMs: number
  heapMb: number
  /** At most. */
  rssMb: number
}

class Pipeline {
  readonly #folder: string

  constructor(folder: string) {
    this.#folder = folder
  }

  async run(items: number, limited: boolean, looksAt: 'cpu' | 'heap' | null = null): Promise<Usage> {
    const limits = limited
      ? '  agent_timeout_secs: 600\n  timeout_config: { timeout_policy: hybrid, command_timeouts: { shell: 60 } }\n'
      : ''
    const text = `name: bench
mode: mapreduce
map:
  input: { command: "seq ${items}" }
  max_parallel: ${PARALLEL}
${limits}  agent_template:
    - shell: "true"
`
    await writeFile(join(this.#folder, 'pipeline.yml'), text)
    await rm(join(this.#folder, 'curfew.db'), { force: true })
    const usage = join(this.#folder, 'usage.json')
    const report = `data:text/javascript,${encodeURIComponent(REPORT)}`
    const looking = looksAt === null ? [] : ['--expose-gc', '--import', report]
    const seconds = await secondsOf(() =>
      run(process.execPath, [...looking, cli, 'run', 'pipeline.yml', '--no-worktrees'], {
        cwd: this.#folder,
        env: {
          ...process.env,
          CURFEW_STATE_DIR: join(this.#folder, 'state'),
          BENCH_USAGE: usage,
          ...(looksAt === 'heap' && { BENCH_HEAP: '1' }),
        },
        maxBuffer: 2 ** 30,
      }),
    )
    if (looksAt === null) return { seconds, cpuMs: 0, heapMb: 0, rssMb: 0 }
    const { heap, cpu, rss } = JSON.parse(await readFile(usage, 'utf8')) as Record<string, number>
    return { seconds, cpuMs: cpu!, heapMb: heap! / 2 ** 20, rssMb: rss! / 2 ** 10 }
  }
}

/** What is in use at its end, when the run is still in memory: garbage that nobody has collected yet does not count. */
const REPORT = `import { writeFileSync } from 'node:fs'
let heap = 0
const look = () => { gc(); heap = Math.max(heap, process.memoryUsage().heapUsed) }
if (process.env.BENCH_HEAP) setInterval(look, 200).unref()
process.on('exit', () => {
  const { user, system } = process.cpuUsage()
  writeFileSync(process.env.BENCH_USAGE, JSON.stringify({ heap, cpu: (user + system) / 1000, rss: process.resourceUsage().maxRSS }))
})`

/** Warmed up. Answers the seconds of one run. */
async function gnuParallel(): Promise<() => Promise<number>> {
  const parallel = await findParallel()
  const items = Array.from({ length: ITEMS }, (_, i) => String(i))
  const once = () => secondsOf(() => run(parallel, ['-j', String(PARALLEL), 'true', ':::', ...items]))
  await once()
  return once
}

async function secondsOf(work: () => Promise<unknown>): Promise<number> {
  const startedAt = performance.now()
  await work()
  return (performance.now() - startedAt) / 1000
}

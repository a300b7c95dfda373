// A list of items, a command for each, so many at a time: the whole process, from its start to its exit. Curfew stores
// every step of it and counts limits; GNU parallel starts processes. Work folders are plain ones.

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
const PAIRS = 10

const run = promisify(execFile)
const cli = join(import.meta.dirname, '../../src/cli/main.ts')

export const mapreduce: Benchmark = {
  title: `a map-reduce of ${ITEMS} times true, ${PARALLEL} at once, as a process`,
  rounds: 3,
  metrics: {
    seconds: { label: 's for 200 items', better: 'lower', digits: 2 },
    limitsPercent: {
      label: '% longer with limits than without',
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
  },
  async run({ contender, quick }) {
    if (contender === 'gnu-parallel') {
      const parallel = await findParallel()
      const items = Array.from({ length: ITEMS }, (_, i) => String(i))
      const once = () => secondsOf(() => run(parallel, ['-j', String(PARALLEL), 'true', ':::', ...items]))
      await once()
      return { seconds: await once(), limitsPercent: 'none', moreMb: 'none' }
    }
    const folder = await mkdtemp(join(tmpdir(), 'curfew-bench-mapreduce-'))
    try {
      const pipeline = new Pipeline(folder)
      await pipeline.run(ITEMS, false)
      const { seconds } = await pipeline.run(ITEMS, false)
      const ratios: number[] = []
      for (let i = 0; i < (quick ? 1 : PAIRS); i++) {
        const without = await pipeline.run(ITEMS, false)
        const limited = await pipeline.run(ITEMS, true)
        ratios.push(limited.seconds / without.seconds)
      }
      const few = await pipeline.run(FEW, true, true)
      const many = await pipeline.run(quick ? FEW * 10 : MANY, true, true)
      return { seconds, limitsPercent: (median(ratios) - 1) * 100, moreMb: many.heapMb - few.heapMb }
    } finally {
      await rm(folder, { recursive: true, force: true })
    }
  },
}

class Pipeline {
  readonly #folder: string

  constructor(folder: string) {
    this.#folder = folder
  }

  async run(
    items: number,
    limited: boolean,
    looksAtHeap = false,
  ): Promise<{ seconds: number; heapMb: number }> {
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
    const seconds = await secondsOf(() =>
      run(
        process.execPath,
        ['--expose-gc', '--import', report, cli, 'run', 'pipeline.yml', '--no-worktrees'],
        {
          cwd: this.#folder,
          env: {
            ...process.env,
            CURFEW_STATE_DIR: join(this.#folder, 'state'),
            BENCH_USAGE: usage,
            ...(looksAtHeap && { BENCH_HEAP: '1' }),
          },
          maxBuffer: 2 ** 30,
        },
      ),
    )
    const { heap } = JSON.parse(await readFile(usage, 'utf8')) as { heap: number }
    return { seconds, heapMb: heap / 2 ** 20 }
  }
}

/** What is in use at its end, when the run is still in memory: garbage that nobody has collected yet does not count. */
const REPORT = `import { writeFileSync } from 'node:fs'
let heap = 0
const look = () => { gc(); heap = Math.max(heap, process.memoryUsage().heapUsed) }
if (process.env.BENCH_HEAP) setInterval(look, 500).unref()
process.on('exit', () => writeFileSync(process.env.BENCH_USAGE, JSON.stringify({ heap })))`

async function secondsOf(work: () => Promise<unknown>): Promise<number> {
  const startedAt = performance.now()
  await work()
  return (performance.now() - startedAt) / 1000
}

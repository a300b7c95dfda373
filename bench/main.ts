// npm run bench [-- names of benchmarks] [--only contender,contender] [--quick] [--rounds n]
// Runs each benchmark with each contender in a process of its own, contenders in turn and several rounds over,
// all on one durable PostgreSQL with a fresh database each; prints tables and writes bench/results/.

import { fork } from 'node:child_process'
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { cpus, loadavg, tmpdir, totalmem } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import type { PostgresServer } from '../scripts/postgres/postgres.ts'
import { startPostgres } from '../scripts/postgres/postgres.ts'
import { BENCHMARKS } from './benchmarks.ts'
import { CONTENDERS } from './contenders.ts'
import type { MeasureAnswer, MeasureOrder } from './measure-process.ts'
import { installPeers } from './peers/install.ts'
import type { Figures } from './table.ts'
import { printTable } from './table.ts'

const startedAt = new Date()
const RUN_LIMIT_MS = 10 * 60_000
const say = (line: string) => console.error(line)
const loadAtStart = loadavg()[0]!

const { values: options, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    only: { type: 'string' },
    quick: { type: 'boolean', default: false },
    rounds: { type: 'string' },
  },
})
const names = choose('benchmark', positionals, Object.keys(BENCHMARKS))
const contenders = choose('contender', options.only?.split(',') ?? [], Object.keys(CONTENDERS))

if (loadAtStart > 0.5) say(`The machine is busy (load ${loadAtStart.toFixed(1)}): the figures will be noisy.`)
if (contenders.some((name) => CONTENDERS[name]!.kind === 'peer')) await installPeers(say)
const server = await startPostgres({ durable: true, settings: { max_connections: '300' } })
try {
  const results: Record<string, Figures> = {}
  for (const name of names) {
    const figures = await runBenchmark(name)
    if (Object.keys(figures).length === 0) continue
    results[name] = figures
    console.log(printTable(name, BENCHMARKS[name]!, figures))
    await save(results)
  }
} finally {
  await server.remove()
}

async function runBenchmark(name: string): Promise<Figures> {
  const benchmark = BENCHMARKS[name]!
  const rounds = options.rounds ? Number(options.rounds) : options.quick ? 1 : benchmark.rounds
  const taking = contenders.filter((contender) => CONTENDERS[contender]!.takesPartIn.includes(name))
  const figures: Figures = {}
  for (let round = 1; round <= rounds; round++) {
    for (const contender of taking) {
      const past = figures[contender]
      // What did not end, or ended in no number, does not get better by waiting for it again.
      if (past && Object.values(past).every((values) => values.some((value) => typeof value === 'string')))
        continue
      say(`${name}, round ${round} of ${rounds}: ${contender}`)
      const measures = await runOnce(name, contender, server)
      for (const metric of Object.keys(benchmark.metrics)) {
        figures[contender] ??= {}
        figures[contender][metric] ??= []
        figures[contender][metric].push(measures[metric] ?? 'not measured')
      }
    }
  }
  return figures
}

async function runOnce(benchmark: string, contender: string, postgres: PostgresServer) {
  const folder = await mkdtemp(join(tmpdir(), 'curfew-bench-'))
  const onPostgres = CONTENDERS[contender]!.store === 'postgres'
  const store = onPostgres ? await postgres.createDatabase() : join(folder, 'bench.db')
  try {
    const order = { benchmark, contender, store, adminUrl: postgres.url(), quick: options.quick }
    const answer = await measureInProcess(order)
    if ('measures' in answer) return answer.measures
    say(`${benchmark} with ${contender}: ${answer.problem}`)
    return Object.fromEntries(Object.keys(BENCHMARKS[benchmark]!.metrics).map((metric) => [metric, 'failed']))
  } finally {
    if (onPostgres) await postgres.dropDatabase(store)
    await rm(folder, { recursive: true, force: true })
  }
}

function measureInProcess(order: MeasureOrder): Promise<MeasureAnswer> {
  const child = fork(join(import.meta.dirname, 'measure-process.ts'), [JSON.stringify(order)], {
    execArgv: ['--no-deprecation'],
  })
  return new Promise((resolve) => {
    const limit = setTimeout(() => child.kill('SIGKILL'), RUN_LIMIT_MS)
    child.once('message', (answer: MeasureAnswer) => resolve(answer))
    child.once('exit', (code, signal) => {
      clearTimeout(limit)
      resolve({ problem: `ended with ${signal ?? `code ${code}`} before it had an answer` })
    })
  })
}

async function save(results: Record<string, Figures>): Promise<void> {
  const folder = join(import.meta.dirname, 'results')
  await mkdir(folder, { recursive: true })
  const at = startedAt.toISOString()
  const machine = {
    loadAtStart,
    cpus: cpus().length,
    model: cpus()[0]?.model,
    memoryGb: Math.round(totalmem() / 2 ** 30),
  }
  const text = `${JSON.stringify({ at, node: process.version, machine, quick: options.quick, results }, null, 2)}\n`
  await writeFile(join(folder, `${at.replaceAll(':', '-').slice(0, 19)}.json`), text)
  await writeFile(join(folder, 'latest.json'), text)
}

function choose(what: string, wanted: string[], known: string[]): string[] {
  const unknown = wanted.find((name) => !known.includes(name))
  if (unknown !== undefined) {
    say(`There is no ${what} "${unknown}". There are: ${known.join(', ')}`)
    process.exit(2)
  }
  return wanted.length > 0 ? known.filter((name) => wanted.includes(name)) : known
}

// One benchmark's figures as a table for people: a row per contender, the median of the rounds, and how it
// compares with the fastest peer.

import type { Benchmark, Metric } from './benchmark.ts'
import { median } from './benchmark.ts'
import { CONTENDERS } from './contenders.ts'

/** By contender, then by metric, one value a round; texts say why there is no number. */
export type Figures = Record<string, Record<string, (number | string)[]>>

export function printTable(name: string, benchmark: Benchmark, figures: Figures): string {
  const columns = Object.entries(benchmark.metrics).flatMap(([key, metric]) => {
    const best = bestPeer(figures, key, metric)
    const limits = rawLimits(figures, key, metric)
    const values = (contender: string) => figures[contender]![key] ?? []
    const value = {
      header: metric.label,
      print: (contender: string) => printValue(values(contender), metric),
    }
    const toPeer = {
      header: 'to the best peer',
      print: (contender: string) => printRatio(values(contender), best),
    }
    const toLimit = {
      header: 'to the raw limit',
      print: (contender: string) => printRatio(values(contender), limits?.get(CONTENDERS[contender]!.store)),
    }
    return [value, ...(best === undefined ? [] : [toPeer]), ...(limits === undefined ? [] : [toLimit])]
  })
  const rows = [
    ['', ...columns.map(({ header }) => header)],
    ...Object.keys(figures).map((contender) => [contender, ...columns.map(({ print }) => print(contender))]),
  ]
  const lines = alignColumns(columns.length > MOST_COLUMNS ? transpose(rows) : rows)
  return [`\n${name}: ${benchmark.title}`, ...lines.map((line) => `  ${line}`)].join('\n')
}

/** Beyond these a line is too long to read, and columns become rows. */
const MOST_COLUMNS = 8

function transpose(rows: readonly string[][]): string[][] {
  return rows[0]!.map((_, column) => rows.map((row) => row[column]!))
}

function alignColumns(rows: readonly string[][]): string[] {
  const widths = rows[0]!.map((_, column) => Math.max(...rows.map((row) => row[column]!.length)))
  const pad = (cell: string, column: number) =>
    column === 0 ? cell.padEnd(widths[0]!) : cell.padStart(widths[column]!)
  return rows.map((row) => row.map(pad).join('  ').trimEnd())
}

export function summarise(values: readonly (number | string)[]): number | string {
  const measured = values.filter((value) => typeof value === 'number')
  return measured.length > 0 ? median(measured) : (values[0] ?? 'not measured')
}

function printValue(values: readonly (number | string)[], { digits }: Metric): string {
  const value = summarise(values)
  return typeof value === 'string' ? value : value.toFixed(digits)
}

function printRatio(values: readonly (number | string)[], best: number | undefined): string {
  const value = summarise(values)
  return typeof value === 'string' || !best || best <= 0 ? '' : `${(value / best).toFixed(2)}x`
}

function bestPeer(figures: Figures, key: string, { better, compared }: Metric): number | undefined {
  if (compared === false) return undefined
  const peers = Object.entries(figures)
    .filter(([contender]) => CONTENDERS[contender]!.kind === 'peer')
    .map(([, values]) => summarise(values[key] ?? []))
    .filter((value) => typeof value === 'number')
  if (peers.length === 0) return undefined
  return better === 'higher' ? Math.max(...peers) : Math.min(...peers)
}

/** By store, where something else than the raw limit was measured beside it. */
function rawLimits(figures: Figures, key: string, { compared }: Metric): Map<string, number> | undefined {
  const names = Object.keys(figures)
  const raw = names.filter((contender) => CONTENDERS[contender]!.kind === 'raw')
  if (compared === false || raw.length === 0 || raw.length === names.length) return undefined
  const limits = new Map<string, number>()
  for (const contender of raw) {
    const { store } = CONTENDERS[contender]!
    const value = summarise(figures[contender]![key] ?? [])
    if (typeof value === 'number') limits.set(store, Math.max(value, limits.get(store) ?? 0))
  }
  return limits
}

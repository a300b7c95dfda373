// One benchmark's figures as a table for people: a row per contender, the median of the rounds, and how it
// compares with the fastest peer.

import type { Benchmark, Metric } from './benchmark.ts'
import { median } from './benchmark.ts'
import { CONTENDERS } from './contenders.ts'

/** By contender, then by metric, one value a round; texts say why there is no number. */
export type Figures = Record<string, Record<string, (number | string)[]>>

export function printTable(name: string, benchmark: Benchmark, figures: Figures): string {
  const metrics = Object.entries(benchmark.metrics)
  const header = ['', ...metrics.flatMap(([, { label }]) => [label, 'to the best peer'])]
  const rows = Object.entries(figures).map(([contender, values]) => [
    contender,
    ...metrics.flatMap(([key, metric]) => [
      printValue(values[key] ?? [], metric),
      printRatio(values[key] ?? [], bestPeer(figures, key, metric)),
    ]),
  ])
  const useful = header.map((_, column) => column === 0 || rows.some((row) => row[column] !== ''))
  const lines = [header, ...rows].map((row) => row.filter((_, column) => useful[column]))
  const widths = lines[0]!.map((_, column) => Math.max(...lines.map((row) => row[column]!.length)))
  const text = lines.map((row) =>
    row
      .map((cell, column) => (column === 0 ? cell.padEnd(widths[0]!) : cell.padStart(widths[column]!)))
      .join('  '),
  )
  return [`\n${name}: ${benchmark.title}`, ...text.map((line) => `  ${line}`)].join('\n')
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
  return typeof value === 'string' || best === undefined || best <= 0 ? '' : `${(value / best).toFixed(2)}x`
}

function bestPeer(figures: Figures, key: string, { better }: Metric): number | undefined {
  const peers = Object.entries(figures)
    .filter(([contender]) => CONTENDERS[contender]!.kind === 'peer')
    .map(([, values]) => summarise(values[key] ?? []))
    .filter((value) => typeof value === 'number')
  if (peers.length === 0) return undefined
  return better === 'higher' ? Math.max(...peers) : Math.min(...peers)
}

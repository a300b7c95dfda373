/** `curfew timeouts stats JOB`: how often the items of a map-reduce timed out, and of what. */
import { Command } from 'commander'
import { CurfewError } from '../core/errors.ts'
import { overruledLimit } from '../core/note.ts'
import type { TaskView } from '../curfew.ts'
import type { ItemOutput } from '../mapreduce/item-work.ts'
import { withEngine } from './find-engine.ts'
import type { Io } from './io.ts'
import { itemsOf } from './mapreduce-tasks.ts'
import type { Flags } from './options.ts'
import { clientOptions } from './options.ts'
import { printJson, printLines } from './print.ts'
import { handleOf } from './work-handle.ts'

/** The words of the map-reduce format. An agent is one attempt at one item. */
export interface TimeoutStats {
  agents_started: number
  agents_completed: number
  timeouts_occurred: number
  timeout_rate_percent: number
  /** Of the last items that ended. */
  average_execution_time_secs: number
  /** Which limit: agent, command, idle. */
  by_type: Record<string, number>
  by_command_type: Record<string, number>
  /** Of the last items alone: is it getting worse? */
  trend: { agents: number; timeouts: number; timeout_rate_percent: number }
}

const AVERAGED = 100
const TREND = 1_000

export function statsCommand(io: Io): Command {
  const command = new Command('stats')
    .description('Count the timeouts of a map-reduce, by limit and type of command')
    .argument('<job>', 'the run')
    .addHelpText('after', '\nExample:\n  $ curfew timeouts stats w_01kdvq5x6w0000000000000000 --json')
  return clientOptions(command).action((id: string, flags: Flags) =>
    withEngine(io, flags, 'read', async ({ client }) => {
      const { name } = await handleOf(client, id).view()
      const items = lastOfEach(await itemsOf(client, id))
      if (items.some(({ output }) => output?.timeouts === null))
        throw new CurfewError(
          'not_monitored',
          `${name} runs with enable_monitoring: false: nothing was counted`,
        )
      const stats = statsOf(items)
      if (flags.json) printJson(io, stats)
      else printLines(io, statsLines(stats))
    }),
  )
}

/** One that is worked on once more is another task, which tells of the attempts before it too. */
export function lastOfEach<T extends Item>(items: readonly T[]): T[] {
  const byItem = new Map(items.flatMap((item) => (item.output ? [[item.output.id, item] as const] : [])))
  return items.filter((item) => item.output === null || byItem.get(item.output.id) === item)
}

type Item = TaskView & { output: ItemOutput | null }

export function statsOf(items: readonly Item[]): TimeoutStats {
  const ended = items
    .filter(({ output }) => output !== null)
    .toSorted((a, b) => (a.endedAt ?? 0) - (b.endedAt ?? 0))
  const timeouts = items.flatMap(({ output, status, details }) => {
    if (status !== 'timed_out') return output?.timeouts ?? []
    // One that could not be killed says nothing itself.
    const { type = 'agent', commandType = 'unknown' } = overruledLimit(details)?.limit ?? {}
    return [{ type, commandType }]
  })
  const started = items.reduce(
    (sum, { attempts, output }) => sum + (output?.attempts ?? Math.min(1, attempts)),
    0,
  )
  const recent = ended.slice(-TREND)
  const recentAgents = recent.reduce((sum, { output }) => sum + (output?.attempts ?? 0), 0)
  const recentTimeouts = recent.reduce((sum, { output }) => sum + (output?.timeouts?.length ?? 0), 0)
  const averaged = ended.slice(-AVERAGED)
  const ms = averaged.reduce((sum, { output }) => sum + (output?.ms ?? 0), 0)
  return {
    agents_started: started,
    agents_completed: ended.filter(
      ({ output }) => output?.status === 'successful' || output?.status === 'failed',
    ).length,
    timeouts_occurred: timeouts.length,
    timeout_rate_percent: percent(timeouts.length, started),
    average_execution_time_secs: averaged.length === 0 ? 0 : Math.round(ms / averaged.length) / 1_000,
    by_type: countBy(timeouts, ({ type }) => type),
    by_command_type: countBy(timeouts, ({ commandType }) => commandType),
    trend: {
      ...{ agents: recentAgents, timeouts: recentTimeouts },
      timeout_rate_percent: percent(recentTimeouts, recentAgents),
    },
  }
}

function percent(part: number, whole: number): number {
  return whole === 0 ? 0 : Math.round((part / whole) * 1_000) / 10
}

function countBy<T>(list: readonly T[], keyOf: (one: T) => string): Record<string, number> {
  const counts: Record<string, number> = {}
  for (const one of list) counts[keyOf(one)] = (counts[keyOf(one)] ?? 0) + 1
  return counts
}

function statsLines(stats: TimeoutStats): string[] {
  const by = (counts: Record<string, number>) =>
    Object.entries(counts)
      .map(([key, count]) => `${key} ${count}`)
      .join(', ') || 'none'
  return [
    `agents_started               ${stats.agents_started}`,
    `agents_completed             ${stats.agents_completed}`,
    `timeouts_occurred            ${stats.timeouts_occurred}`,
    `timeout_rate_percent         ${stats.timeout_rate_percent}`,
    `average_execution_time_secs  ${stats.average_execution_time_secs} (the last ${AVERAGED} items)`,
    `by type                      ${by(stats.by_type)}`,
    `by type of command           ${by(stats.by_command_type)}`,
    `lately                       ${stats.trend.timeout_rate_percent} % of the last ${stats.trend.agents}`,
  ]
}

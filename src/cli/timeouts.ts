/** `curfew timeouts list [ID]` and `curfew timeouts extend ID BY`: the limits that hold, and more time. */
import { Command } from 'commander'
import type { Client } from '../client/client.ts'
import { formatDuration } from '../core/duration.ts'
import { CurfewError } from '../core/errors.ts'
import { MAX_PAGE } from '../core/limits.ts'
import { isEnded } from '../core/states.ts'
import type { Explanation, TaskView } from '../curfew.ts'
import { Colours } from './colours.ts'
import { withEngine } from './find-engine.ts'
import type { Io } from './io.ts'
import type { Flags } from './options.ts'
import { checkDuration, clientOptions, wholeNumber } from './options.ts'
import { countdown, outputWidth, printJson, printLines, timeText } from './print.ts'
import { tableLines } from './text-table.ts'
import { explainFileCommand } from './timeouts-explain.ts'
import { statsCommand } from './timeouts-stats.ts'
import { handleOf } from './work-handle.ts'

interface LimitLine {
  id: string
  name: string
  title: string | null
  /** Which limit it is. */
  kind: string
  option: string
  timeoutMs: number | null
  setBy: string
  deadlineAt: number
  remainingMs: number
}

const DEFAULT_LIMIT = 50
/** Roots that are looked at, so many at a time. */
const MAX_ROOTS = 1_000
const AT_A_TIME = 8

export function timeoutsCommand(io: Io): Command {
  return new Command('timeouts')
    .description('See the limits that hold now, and give more time')
    .addCommand(listCommand(io))
    .addCommand(extendCommand(io))
    .addCommand(explainFileCommand(io))
    .addCommand(statsCommand(io))
}

function listCommand(io: Io): Command {
  const command = new Command('list')
    .description('List every limit that is in force, the one that ends first on top')
    .argument('[id]', 'only of this work and what is below it')
    .option('--limit <number>', `at most so many (default: ${DEFAULT_LIMIT})`)
    .addHelpText(
      'after',
      `
Examples:
  $ curfew timeouts list
  $ curfew timeouts list j_01kdvq5x6w0000000000000000 --json`,
    )
  return clientOptions(command).action((id: string | undefined, flags: Flags & { limit?: string }) => {
    const limit =
      flags.limit === undefined ? DEFAULT_LIMIT : wholeNumber(flags.limit, '--limit', 1, 1_000_000)
    return withEngine(io, flags, 'read', async ({ client }) => {
      const { explained, more } =
        id === undefined
          ? await explainOpen(client)
          : { explained: [await handleOf(client, id).explain()], more: false }
      const own = explained.flatMap(limitsOf)
      const joins = await joinsOf(client, explained.flatMap(openWorkflows), nowBy(io, own))
      const all = [...own, ...joins].toSorted((a, b) => a.deadlineAt - b.deadlineAt)
      const limits = all.slice(0, limit)
      if (flags.json) return printJson(io, { limits, total: all.length })
      if (limits.length === 0) io.stderr.write('No limit is in force.\n')
      else printLines(io, limitLines(io, limits))
      if (all.length > limit) io.stderr.write(`${all.length - limit} more end later: --limit.\n`)
      if (more) io.stderr.write(`Only the ${MAX_ROOTS} newest were looked at: name one by its id.\n`)
    })
  })
}

function extendCommand(io: Io): Command {
  const command = new Command('extend')
    .description('Give work more time: every limit that holds for it, and above it, moves')
    .argument('<id>', 'of the work')
    .argument('<by>', 'how much more, as 90s, 10m or 2h')
    .addHelpText('after', '\nExample:\n  $ curfew timeouts extend j_01kdvq5x6w0000000000000000 30m')
  return clientOptions(command).action((id: string, by: string, flags: Flags) => {
    checkDuration(by, 'BY')
    return withEngine(io, flags, 'write', async ({ client }) => {
      const handle = handleOf(client, id)
      const { deadlineAt } = await handle.extend(by)
      if (flags.json) return printJson(io, { id, by, deadlineAt })
      // Without a deadline it may still have to start in time, or to give signs of life.
      const until = deadlineAt ?? (await handle.explain()).binding?.deadlineAt ?? null
      printLines(io, [until === null ? 'It has no limit.' : `It has until ${timeText(until)}.`])
    })
  })
}

/** Everything that is open and has nothing open above it, with what is below. */
async function explainOpen(client: Client): Promise<{ explained: Explanation[]; more: boolean }> {
  const open: Pick<TaskView, 'id' | 'parentId'>[] = []
  const ids = new Set<string>()
  let uppermost = 0
  let cursor: string | null = null
  do {
    const page: { tasks: TaskView[]; cursor: string | null } = await client.list({
      status: ['pending', 'running', 'cancelling'],
      limit: MAX_PAGE,
      ...(cursor !== null && { cursor }),
    })
    for (const { id, parentId } of page.tasks) {
      open.push({ id, parentId })
      ids.add(id)
      if (parentId === null) uppermost++
    }
    cursor = page.cursor
  } while (cursor !== null && uppermost < MAX_ROOTS)
  // Detached work, and that of a clean-up, goes on below what has ended.
  const roots = open.filter(({ parentId }) => parentId === null || !ids.has(parentId))
  const more = cursor !== null || roots.length > MAX_ROOTS
  const explained: Explanation[] = []
  for (let i = 0; i < Math.min(roots.length, MAX_ROOTS); i += AT_A_TIME) {
    const some = roots.slice(i, i + AT_A_TIME).map(({ id }) => ifThere(() => handleOf(client, id).explain()))
    explained.push(...(await Promise.all(some)).flat())
  }
  return { explained, more }
}

/** It may have been removed meanwhile. */
async function ifThere<T>(read: () => Promise<T>): Promise<T[]> {
  try {
    return [await read()]
  } catch (error) {
    if (error instanceof CurfewError && error.code === 'not_found') return []
    throw error
  }
}

function limitsOf({ id, name, title, limits, below }: Explanation): LimitLine[] {
  const own = limits.flatMap((limit) => {
    const { kind, option, timeoutMs, setBy, deadlineAt, remainingMs, active } = limit
    if (!active || deadlineAt === null || remainingMs === null) return []
    return [{ id, name, title, kind, option, timeoutMs, setBy, deadlineAt, remainingMs }]
  })
  return [...own, ...below.flatMap(limitsOf)]
}

function openWorkflows(work: Explanation): Explanation[] {
  const isOpen = work.kind === 'workflow' && !isEnded(work.status)
  return [...(isOpen ? [work] : []), ...work.below.flatMap(openWorkflows)]
}

/** On the clock of the store, if a limit tells what it says. */
function nowBy(io: Io, [known]: readonly LimitLine[]): number {
  return known ? known.deadlineAt - known.remainingMs : io.clock.wall()
}

/** What a join waits for its branches is a limit too, and stands with its run. */
async function joinsOf(client: Client, workflows: readonly Explanation[], now: number): Promise<LimitLine[]> {
  const lines: LimitLine[] = []
  for (let i = 0; i < workflows.length; i += AT_A_TIME) {
    const some = workflows.slice(i, i + AT_A_TIME).map(async ({ id, name, title }) => {
      const [run] = await ifThere(() => client.workflow(id).run())
      return (run?.joins ?? []).flatMap(({ transition, timeoutMs, deadlineAt, arrived, fired }) => {
        if (deadlineAt === null || arrived === 0 || fired) return []
        const join = { kind: 'synchronization', option: transition, timeoutMs, setBy: 'transition' }
        return [{ id, name, title, ...join, deadlineAt, remainingMs: deadlineAt - now }]
      })
    })
    lines.push(...(await Promise.all(some)).flat())
  }
  return lines
}

function limitLines(io: Io, limits: readonly LimitLine[]): string[] {
  const colours = new Colours(io, io.stdout)
  return tableLines(
    limits,
    [
      {
        title: 'LEFT',
        text: ({ remainingMs }) => countdown(remainingMs),
        colour: (text, { remainingMs }) => (remainingMs < 10_000 ? colours.style('yellow', text) : text),
      },
      { title: 'LIMIT', text: ({ kind }) => kind },
      { title: 'OF', text: ({ name, title }) => title ?? name, shrinksTo: 8 },
      { title: 'ID', text: ({ id }) => id },
      { title: 'LENGTH', text: ({ timeoutMs }) => (timeoutMs === null ? '' : formatDuration(timeoutMs)) },
      { title: 'OPTION', text: ({ option }) => option, shrinksTo: 8, optional: true },
      { title: 'SET BY', text: ({ setBy }) => setBy, optional: true },
    ],
    { width: outputWidth(io), colours },
  )
}

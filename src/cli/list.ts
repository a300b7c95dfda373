/** `curfew list`: work, by kind, the newest first. */
import { Command } from 'commander'
import type { ListOptions } from '../client/list-options.ts'
import { MAX_PAGE } from '../core/limits.ts'
import type { WorkKind } from '../core/own-work.ts'
import { TASK_STATUSES, TASK_TIMEOUT_KINDS } from '../core/states.ts'
import type { TaskView } from '../curfew.ts'
import { Colours } from './colours.ts'
import { withEngine } from './find-engine.ts'
import type { Io } from './io.ts'
import type { Flags } from './options.ts'
import { clientOptions, collect, oneOf, wholeNumber } from './options.ts'
import { countdown, outputWidth, printJson, printLines, roughDuration } from './print.ts'
import { tableLines } from './text-table.ts'

const KINDS: readonly WorkKind[] = ['task', 'agent', 'workflow', 'job']
const DEFAULT_LIMIT = 50

interface ListFlags extends Flags {
  status?: string[]
  kind?: string
  name?: string
  queue?: string
  parent?: string
  timeoutKind?: string
  parked?: boolean
  limit?: string
  cursor?: string
  all?: boolean
}

export function listCommand(io: Io): Command {
  const command = new Command('list')
    .description('List work by kind, the newest first')
    .option('--status <status>', `one or more of ${TASK_STATUSES.join(', ')}`, collect)
    .option('--kind <kind>', KINDS.join(', '))
    .option('--name <name>', 'of its definition')
    .option('--queue <queue>', 'of tasks')
    .option('--parent <id>', 'what this agent, workflow or job has begun')
    .option('--timeout-kind <kind>', `what ended by this limit: ${TASK_TIMEOUT_KINDS.join(', ')}`)
    .option('--parked', 'only what is parked')
    .option('--limit <number>', `at most so many (default: ${DEFAULT_LIMIT})`)
    .option('--cursor <cursor>', 'go on where an earlier list ended')
    .option('--all', 'all there is, however much')
    .addHelpText(
      'after',
      `
Examples:
  $ curfew list --kind job --status running
  $ curfew list --status failed,timed_out --json | jq -r '.works[].id'`,
    )
  return clientOptions(command).action((flags: ListFlags) => {
    const options = listOptions(flags)
    return withEngine(io, flags, 'read', async ({ client }) => {
      const works: TaskView[] = []
      let cursor = options.cursor ?? null
      do {
        const page = await client.list({ ...options, ...(cursor !== null && { cursor }) })
        works.push(...page.tasks)
        cursor = page.cursor
      } while (flags.all && cursor !== null)
      if (flags.json) return printJson(io, { works, cursor })
      if (works.length === 0) io.stderr.write('There is none.\n')
      else printLines(io, listLines(io, works))
      if (cursor !== null) io.stderr.write(`There are more: --cursor ${cursor}, or --all.\n`)
    })
  })
}

function listOptions(flags: ListFlags): ListOptions {
  const { name, queue, parent, cursor } = flags
  const limit = flags.all ? MAX_PAGE : DEFAULT_LIMIT
  return {
    ...(flags.status && { status: flags.status.map((one) => oneOf(one, '--status', TASK_STATUSES)) }),
    ...(flags.kind !== undefined && { kind: oneOf(flags.kind, '--kind', KINDS) }),
    ...(flags.timeoutKind !== undefined && {
      timeoutKind: oneOf(flags.timeoutKind, '--timeout-kind', TASK_TIMEOUT_KINDS),
    }),
    ...(name !== undefined && { name }),
    ...(queue !== undefined && { queue }),
    ...(parent !== undefined && { parent }),
    ...(cursor !== undefined && { cursor }),
    ...(flags.parked && { parked: true }),
    limit: flags.limit === undefined ? limit : wholeNumber(flags.limit, '--limit', 1, MAX_PAGE),
  }
}

function listLines(io: Io, works: readonly TaskView[]): string[] {
  const colours = new Colours(io, io.stdout)
  const now = io.clock.wall()
  return tableLines(
    works,
    [
      { title: 'ID', text: ({ id }) => id },
      { title: 'KIND', text: ({ kind }) => kind, optional: true },
      {
        title: 'NAME',
        text: ({ name, title }) => (title === null || title === name ? name : `${name} (${title})`),
        shrinksTo: 8,
      },
      {
        title: 'STATUS',
        text: ({ status, parked }) => (parked === null ? status : `${status}, parked`),
        colour: (text, { status }) => colours.status(status, text),
      },
      { title: 'AGE', text: ({ createdAt }) => roughDuration(Math.max(0, now - createdAt)), optional: true },
      { title: 'TOOK', text: (work) => tookText(work, now), optional: true },
      { title: 'LEFT', text: (work) => leftText(work, now) },
    ],
    { width: outputWidth(io), colours },
  )
}

function tookText({ startedAt, endedAt }: TaskView, now: number): string {
  return startedAt === null ? '' : roughDuration(Math.max(0, (endedAt ?? now) - startedAt))
}

function leftText({ endedAt, deadlineAt, attemptDeadlineAt }: TaskView, now: number): string {
  const deadlines = [deadlineAt, attemptDeadlineAt].filter((at) => at !== null)
  return endedAt !== null || deadlines.length === 0 ? '' : countdown(Math.min(...deadlines) - now)
}

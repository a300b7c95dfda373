/** `curfew status ID`: the record of a piece of work, and what it consists of. */
import { Command } from 'commander'
import type { JobHandle, MemberView, RunView, TaskView, WorkflowHandle } from '../curfew.ts'
import { Colours } from './colours.ts'
import { withEngine } from './find-engine.ts'
import type { Io } from './io.ts'
import type { Flags } from './options.ts'
import { clientOptions } from './options.ts'
import { oneLine, printable } from './plain-text.ts'
import {
  countdown,
  outputWidth,
  printJson,
  printLines,
  progressText,
  roughDuration,
  timeText,
} from './print.ts'
import { tableLines } from './text-table.ts'
import { handleOf } from './work-handle.ts'

export function statusCommand(io: Io): Command {
  const command = new Command('status')
    .description('Show the record of a task, agent, workflow or job')
    .argument('<id>', 'of the work')
    .addHelpText(
      'after',
      `
Examples:
  $ curfew status j_01kdvq5x6w0000000000000000
  $ curfew status w_01kdvq5x6w0000000000000000 --json | jq .status

Exits 0 however the work ended; "curfew watch" exits as it ended.`,
    )
  return clientOptions(command).action((id: string, flags: Flags) =>
    withEngine(io, flags, 'read', async ({ client }) => {
      const handle = handleOf(client, id)
      const view = await handle.view()
      const workflows = view.kind === 'job' ? await (handle as JobHandle).workflows() : null
      const run = view.kind === 'workflow' ? await (handle as WorkflowHandle).run() : null
      if (flags.json) printJson(io, { ...view, ...(workflows && { workflows }), ...(run && { run }) })
      else {
        printLines(io, recordLines(io, view))
        if (workflows) printLines(io, ['', ...workflowLines(io, workflows)])
        if (run && run.tokens.length > 0) printLines(io, ['', ...runLines(io, run)])
      }
    }),
  )
}

function recordLines(io: Io, view: TaskView): string[] {
  const colours = new Colours(io, io.stdout)
  const now = io.clock.wall()
  const since = (at: number | null) =>
    at === null
      ? ''
      : `${timeText(at)} (${roughDuration(Math.abs(now - at))} ${at > now ? 'from now' : 'ago'})`
  const { kind, name, status, failure, timeoutKind, timeoutMs, progress } = view
  const left = (at: number | null) =>
    at === null ? '' : `${timeText(at)}${view.endedAt === null ? ` (in ${countdown(at - now)})` : ''}`
  const after = timeoutMs === null ? '' : ` after ${roughDuration(timeoutMs)}`
  const fields: [string, string][] = [
    ['id', view.id],
    ['key', view.key ?? ''],
    ['parent', view.parentId ?? ''],
    ['node', view.parentId === null ? '' : (view.title ?? '')],
    ['parked', view.parked ?? ''],
    ['queue', kind === 'task' ? view.queue : ''],
    [kind === 'task' ? 'attempts' : 'turns', String(view.attempts)],
    ['created', since(view.createdAt)],
    ['starts', view.startedAt === null && view.startAt > now ? since(view.startAt) : ''],
    ['started', since(view.startedAt)],
    ['ended', since(view.endedAt)],
    [
      'took',
      view.startedAt !== null && view.endedAt !== null ? roughDuration(view.endedAt - view.startedAt) : '',
    ],
    ['deadline', left(view.deadlineAt)],
    ['attempt until', left(view.attemptDeadlineAt)],
    ['timeout', timeoutKind === null ? '' : `${timeoutKind}${after}`],
    ['receipt', view.receipt ?? ''],
    ['progress', progress === null ? '' : progressText(progress)],
    ['failure', failure === null ? '' : `${failure.code}: ${failure.message}`],
    ['output', view.status === 'completed' ? JSON.stringify(view.output) : ''],
  ]
  const word = view.settled || view.endedAt === null ? status : `${status}, still stopping`
  return [
    `${kind} ${colours.bold(oneLine(name))} is ${colours.status(status, word)}`,
    ...fields
      .filter(([, value]) => value !== '')
      .map(([label, value]) => `  ${colours.dim(label.padEnd(14))}${printable(value)}`),
  ]
}

function workflowLines(io: Io, workflows: readonly MemberView[]): string[] {
  const colours = new Colours(io, io.stdout)
  return tableLines(
    workflows,
    [
      { title: 'WORKFLOW', text: ({ id }) => id, shrinksTo: 12 },
      {
        title: 'STATUS',
        text: ({ status }) => status,
        colour: (text, { status }) => colours.status(status, text),
      },
      { title: 'RUNS', text: ({ kind, name }) => `${kind} ${name}`, shrinksTo: 12 },
      { title: 'ID', text: ({ runId }) => runId ?? '' },
      { title: 'WAITS FOR', text: ({ dependsOn }) => dependsOn.join(' '), shrinksTo: 9 },
      { title: 'BECAUSE', text: ({ failure }) => failure?.message ?? '', shrinksTo: 20 },
    ],
    { width: outputWidth(io), colours },
  )
}

function runLines(io: Io, { tokens, joins }: RunView): string[] {
  const colours = new Colours(io, io.stdout)
  const width = outputWidth(io)
  const lines = tableLines(
    tokens,
    [
      { title: 'NODE', text: ({ node }) => node, shrinksTo: 12 },
      {
        title: 'STATUS',
        text: ({ status }) => status,
        colour: (text, { status }) => colours.status(status, text),
      },
      {
        title: 'BRANCH',
        text: ({ branches }) => branches.map(({ group, index }) => `${group}[${index}]`).join(' '),
      },
      { title: 'RETRIES', text: ({ retries }) => (retries === 0 ? '' : String(retries)) },
      { title: 'ID', text: ({ workId }) => workId ?? '' },
    ],
    { width, colours },
  )
  const waiting = joins.filter(({ fired }) => !fired)
  if (waiting.length === 0) return lines
  const columns = [
    { title: 'JOIN', text: ({ transition }: (typeof joins)[number]) => transition, shrinksTo: 12 },
    {
      title: 'ARRIVED',
      text: ({ arrived, expected }: (typeof joins)[number]) => `${arrived} of ${expected}`,
    },
    { title: 'UNTIL', text: ({ deadlineAt }: (typeof joins)[number]) => timeText(deadlineAt) },
  ]
  return [...lines, '', ...tableLines(waiting, columns, { width, colours })]
}

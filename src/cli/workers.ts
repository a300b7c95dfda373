/** `curfew workers`: who is attached to the manager, and what it has to do. */
import { Command } from 'commander'
import type { WorkerView } from '../curfew.ts'
import { Colours } from './colours.ts'
import { usageError } from './exit-code.ts'
import { withEngine } from './find-engine.ts'
import type { Io } from './io.ts'
import type { Flags } from './options.ts'
import { clientOptions, collect } from './options.ts'
import { outputWidth, printJson, printLines, roughDuration } from './print.ts'
import { tableLines } from './text-table.ts'

export function workersCommand(io: Io): Command {
  const command = new Command('workers')
    .description('List the workers that are attached')
    .option('--label <key=value>', 'only those that carry it; may be given several times', collect)
    .addHelpText(
      'after',
      `
Examples:
  $ curfew workers --manager http://127.0.0.1:4242
  $ curfew workers --label zone=eu --json`,
    )
  return clientOptions(command).action((flags: Flags & { label?: string[] }) => {
    const wanted = (flags.label ?? []).map(readLabel)
    return withEngine(io, flags, 'read', async ({ client, standsStill }) => {
      const all = standsStill ? [] : await client.workers()
      const workers = all.filter(({ labels }) => wanted.every(([key, value]) => labels[key] === value))
      if (flags.json) return printJson(io, { workers })
      if (all.length === 0) io.stderr.write('No worker is attached.\n')
      else if (workers.length === 0) io.stderr.write(`Of ${all.length} attached, no worker carries it.\n`)
      else printLines(io, workerLines(io, workers))
    })
  })
}

function readLabel(text: string): [key: string, value: string] {
  const at = text.indexOf('=')
  if (at < 1) throw usageError(`--label '${text}' is not of the form key=value`)
  return [text.slice(0, at), text.slice(at + 1)]
}

function workerLines(io: Io, workers: readonly WorkerView[]): string[] {
  const colours = new Colours(io, io.stdout)
  const now = io.clock.wall()
  return tableLines(
    workers,
    [
      { title: 'ID', text: ({ id }) => id },
      { title: 'HOST', text: ({ host, pid }) => `${host}:${pid}`, shrinksTo: 12 },
      {
        title: 'STATUS',
        text: ({ status }) => status,
        colour: (text, { status }) => colours.style(status === 'attached' ? 'green' : 'yellow', text),
      },
      { title: 'RUNNING', text: ({ running, concurrency }) => `${running} of ${concurrency}` },
      { title: 'ABANDONED', text: ({ abandoned }) => (abandoned === 0 ? '' : String(abandoned)) },
      {
        title: 'QUEUES',
        text: ({ queues, allQueues }) => (allQueues ? 'all' : queues.join(' ')),
        shrinksTo: 8,
      },
      { title: 'RUNS', text: ({ tasks, agents }) => namesOf([...tasks, ...agents]), shrinksTo: 12 },
      {
        title: 'LABELS',
        text: ({ labels }) =>
          Object.entries(labels)
            .map(([key, value]) => `${key}=${value}`)
            .join(' '),
        shrinksTo: 8,
      },
      {
        title: 'SINCE',
        text: ({ attachedAt }) => roughDuration(Math.max(0, now - attachedAt)),
        optional: true,
      },
    ],
    { width: outputWidth(io), colours },
  )
}

/** Those of users: what Curfew runs for itself is the same everywhere. */
function namesOf(names: readonly string[]): string {
  return names.filter((name) => !name.startsWith('$')).join(' ')
}

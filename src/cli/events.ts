/** `curfew events ID`: what has happened to a piece of work, and with `--follow` what does. */
import { Command } from 'commander'
import type { TaskEventView } from '../curfew.ts'
import { Colours } from './colours.ts'
import type { Engine } from './find-engine.ts'
import { nobodyWorks, withEngine } from './find-engine.ts'
import type { Io } from './io.ts'
import type { Flags } from './options.ts'
import { clientOptions, wholeNumber } from './options.ts'
import { oneLine } from './plain-text.ts'
import { printJsonLine, printLines, timeText } from './print.ts'
import { handleOf } from './work-handle.ts'

interface EventsFlags extends Flags {
  follow?: boolean
  after?: string
}

export function eventsCommand(io: Io): Command {
  const command = new Command('events')
    .description('Print what has happened to work, one event a line.')
    .argument('<id>', 'of the work')
    .option('-f, --follow', 'go on until it has ended')
    .option('--after <sequence>', 'only what came after this one')
    .addHelpText(
      'after',
      `
Examples:
  $ curfew events j_01kdvq5x6w0000000000000000 --follow
  $ curfew events t_01kdvq5x6w0000000000000000 --json | jq -r .type`,
    )
  return clientOptions(command).action((id: string, flags: EventsFlags) => {
    const after = flags.after === undefined ? 0 : wholeNumber(flags.after, '--after', 0, 2 ** 31 - 1)
    const print = eventPrinter(io, flags.json === true)
    return withEngine(io, flags, 'read', async (engine) => {
      if (flags.follow && engine.via !== 'reader') return follow(io, engine, id, after, print)
      const handle = handleOf(engine.client, id)
      for (const event of await handle.events()) if (event.seq > after) print(event)
      if (flags.follow && !(await handle.view()).settled) throw nobodyWorks(engine)
    })
  })
}

async function follow(
  io: Io,
  { client }: Engine,
  id: string,
  after: number,
  print: (event: TaskEventView) => void,
): Promise<void> {
  for await (const seen of client.watch(id, { lastSequence: after, signal: io.outputClosed })) {
    if (seen.truncated) io.stderr.write('Some events are not on record any more.\n')
    seen.events.forEach(print)
  }
}

function eventPrinter(io: Io, json: boolean): (event: TaskEventView) => void {
  if (json) return (event) => printJsonLine(io, event)
  const colours = new Colours(io, io.stdout)
  return ({ seq, at, type, taskId: _, ...fields }) => {
    const told = Object.entries(fields).map(([key, value]) => `${key}=${valueText(value)}`)
    const head = `${colours.dim(`${String(seq).padStart(3)}  ${timeText(at)}`)}  ${colours.bold(oneLine(type))}`
    printLines(io, [[head, ...told].join('  ').trimEnd()])
  }
}

function valueText(value: unknown): string {
  return oneLine(typeof value === 'string' && /^\S+$/.test(value) ? value : JSON.stringify(value))
}

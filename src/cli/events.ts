/** `curfew events ID`: what has happened to a piece of work, and with `--follow` what does. */
import { Command } from 'commander'
import type { TaskEventView } from '../curfew.ts'
import { Colours } from './colours.ts'
import type { Engine } from './find-engine.ts'
import { lost, nobodyWorks, withEngine } from './find-engine.ts'
import { follow } from './follow.ts'
import type { Io } from './io.ts'
import { mapreduceEvents } from './mapreduce-tasks.ts'
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
    .description('Print what has happened to work, one event a line')
    .argument('<id>', 'of the work')
    .option('-f, --follow', 'go on until it has ended')
    .option('--after <sequence>', 'only what came after the event of this number')
    .addHelpText(
      'after',
      `
Examples:
  $ curfew events j_01kdvq5x6w0000000000000000 --follow
  $ curfew events t_01kdvq5x6w0000000000000000 --json | jq -r .type`,
    )
  return clientOptions(command).action((id: string, flags: EventsFlags) => {
    let after = flags.after === undefined ? 0 : wholeNumber(flags.after, '--after', 0, 2 ** 31 - 1)
    const printer = eventPrinter(io, flags.json === true)
    const print = (event: TaskEventView) => {
      if (event.seq <= after) return
      after = event.seq
      printer(event)
    }
    return withEngine(io, flags, 'read', async (engine) => {
      if (flags.follow) return followEvents(io, engine, id, after, print)
      const { client } = engine
      const own = await handleOf(client, id).events()
      const below = after === 0 ? await mapreduceEvents(client, id) : []
      if (below.length === 0) for (const event of own) print(event)
      else for (const event of [...own, ...below].toSorted((a, b) => a.at - b.at)) printer(event)
    })
  })
}

async function followEvents(
  io: Io,
  engine: Engine,
  id: string,
  lastSequence: number,
  print: (event: TaskEventView) => void,
): Promise<void> {
  const { gone, standsStill } = engine
  const last = await follow(io, engine, id, {
    ...{ display: null, signal: AbortSignal.any([io.outputClosed, gone]), lastSequence, once: standsStill },
    onSeen: ({ truncated, events }) => {
      if (truncated) io.stderr.write('Some events are not on record any more.\n')
      events.forEach(print)
    },
  })
  if (gone.aborted && !last?.settled) throw lost(engine)
  if (standsStill && !last?.settled) throw nobodyWorks(engine)
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

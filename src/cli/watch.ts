/** `curfew watch ID`: the live tree of a piece of work, until it has settled. */
import { Command } from 'commander'
import type { TaskView } from '../curfew.ts'
import { openDisplay } from './display.ts'
import { EXIT, exitCodeOf } from './exit-code.ts'
import type { Engine } from './find-engine.ts'
import { nobodyWorks, withEngine } from './find-engine.ts'
import { follow } from './follow.ts'
import type { Io } from './io.ts'
import type { Flags } from './options.ts'
import { clientOptions } from './options.ts'
import { printJsonLine } from './print.ts'
import { handleOf } from './work-handle.ts'
import { WorkTree } from './work-tree.ts'

export function watchCommand(io: Io): Command {
  const command = new Command('watch')
    .description('Show work and everything below it, with countdowns, until it has ended.')
    .argument('<id>', 'of the work')
    .addHelpText(
      'after',
      `
Examples:
  $ curfew watch j_01kdvq5x6w0000000000000000
  $ curfew watch t_01kdvq5x6w0000000000000000 --json | jq -r .work.status

Exits as the work ended: 0 completed, 1 failed, 124 timed out, 130 cancelled.`,
    )
  return clientOptions(command).action((id: string, flags: Flags) =>
    withEngine(io, flags, 'read', async (engine) => {
      const last =
        engine.via === 'reader' ? await look(io, engine, id, flags) : await watch(io, engine, id, flags)
      io.exitCode = last?.settled ? exitCodeOf(last.status) : EXIT.interrupted
    }),
  )
}

function watch(io: Io, { client }: Engine, id: string, { json }: Flags): Promise<TaskView | null> {
  return follow(io, client, id, {
    display: json ? null : openDisplay(io, io.stdout),
    signal: io.outputClosed,
    ...(json && { onSeen: (seen) => printJsonLine(io, seen) }),
  })
}

/** Nobody works on it: it is as it is. */
async function look(io: Io, engine: Engine, id: string, { json }: Flags): Promise<TaskView> {
  const view = await handleOf(engine.client, id).view()
  if (json) {
    const events = await handleOf(engine.client, id).events()
    const lastSequence = events.at(-1)?.seq ?? 0
    printJsonLine(io, {
      work: view,
      events,
      lastSequence,
      truncated: false,
      final: view.settled,
      below: false,
    })
  } else {
    openDisplay(io, io.stdout).show(await new WorkTree(engine.client, id).look(view, () => io.clock.wall()))
  }
  if (!view.settled) throw nobodyWorks(engine)
  return view
}

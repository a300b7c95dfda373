/** `curfew watch ID`: the live tree of a piece of work, until it has settled. */
import { Command } from 'commander'
import { openDisplay } from './display.ts'
import { EXIT, exitCodeOf } from './exit-code.ts'
import { lost, nobodyWorks, withEngine } from './find-engine.ts'
import { follow } from './follow.ts'
import type { Io } from './io.ts'
import type { Flags } from './options.ts'
import { clientOptions } from './options.ts'
import { printJsonLine } from './print.ts'

export function watchCommand(io: Io): Command {
  const command = new Command('watch')
    .description('Show work and everything below it, with countdowns, until it has ended')
    .argument('<id>', 'of the work')
    .addHelpText(
      'after',
      `
Examples:
  $ curfew watch j_01kdvq5x6w0000000000000000
  $ curfew watch t_01kdvq5x6w0000000000000000 --json | jq -r .work.status

Exits as the work ended: 0 completed, 1 failed, 124 timed out, 130 cancelled.`,
    )
  return clientOptions(command).action((id: string, flags: Flags) => {
    const display = flags.json ? null : openDisplay(io, io.stdout)
    // A process that goes does not end the watching of what it has left.
    let lastSequence = 0
    return withEngine(io, flags, 'read', async (engine) => {
      const { gone, standsStill } = engine
      const signal = AbortSignal.any([io.outputClosed, gone])
      const last = await follow(io, engine, id, {
        ...{ display, signal, lastSequence },
        onSeen: (seen) => {
          lastSequence = seen.lastSequence
          if (flags.json) printJsonLine(io, seen)
        },
        once: standsStill,
      })
      if (gone.aborted && !last?.settled) throw lost(engine)
      if (standsStill && !last?.settled) throw nobodyWorks(engine)
      io.exitCode = last?.settled ? exitCodeOf(last.status) : EXIT.interrupted
    })
  })
}

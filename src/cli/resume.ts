/** `curfew resume ID`: goes on with work that was left, or was parked. */
import { Command } from 'commander'
import { addSettings, loadConfig } from './config.ts'
import { findEngine, placeOf } from './find-engine.ts'
import type { Io } from './io.ts'
import { loadModules } from './load-modules.ts'
import type { Flags } from './options.ts'
import { jsonOption } from './options.ts'
import { printJson, printLines } from './print.ts'
import { runToEnd } from './run-to-end.ts'
import { handleOf } from './work-handle.ts'

export function resumeCommand(io: Io): Command {
  const command = new Command('resume')
    .description('Go on with work that a process left, or that is parked, until it has ended')
    .argument('<id>', 'of the work')
    .option('--no-wait', 'only let parked work go on; whoever works on the store runs it')
    .addHelpText(
      'after',
      `
Examples:
  $ curfew resume j_01kdvq5x6w0000000000000000 --module tasks.ts
  $ curfew resume g_01kdvq5x6w0000000000000000 --manager http://127.0.0.1:4242 --no-wait

With nobody there it takes the store and runs the work here. Its clocks ran on meanwhile.
Exits as "curfew run" does.`,
    )
  return jsonOption(addSettings(command, 'run')).action(
    async (id: string, flags: Flags & { wait: boolean }) => {
      const config = await loadConfig(io, 'run', flags)
      const place = placeOf(io, config)
      if (!flags.wait) {
        const engine = await findEngine(io, config, 'write')
        try {
          await engine.client.resume(id)
        } finally {
          await engine.close()
        }
        if (flags.json) printJson(io, { id })
        else printLines(io, [`${id} goes on.`])
        return
      }
      const definitions = await loadModules(config.settings.modules, io.cwd)
      await runToEnd(io, {
        ...{ config, place, definitions, json: flags.json === true, cancelsOthers: false },
        begin: async ({ client }) => {
          const { parked } = await handleOf(client, id).view()
          if (parked !== null) await client.resume(id)
          return id
        },
      })
    },
  )
}

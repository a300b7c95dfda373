/** `curfew manager`: an engine without code of its own. It drives jobs and workflows; workers run what is in them. */
import { Command } from 'commander'
import { addSettings, loadConfig } from './config.ts'
import type { Io } from './io.ts'
import { keepOpen } from './open-manager.ts'
import type { Flags } from './options.ts'
import { jsonOption } from './options.ts'

export function managerCommand(io: Io): Command {
  const command = new Command('manager')
    .description('Keep a store: take work, drive it, and serve workers')
    .addHelpText(
      'after',
      `
Examples:
  $ curfew manager --store ./curfew.db
  $ curfew manager --store postgres://me@db/curfew --listen 0.0.0.0:4242 --tokens-file tokens.txt`,
    )
  return jsonOption(addSettings(command, 'manager')).action(async (flags: Flags) => {
    const config = await loadConfig(io, 'manager', flags)
    await keepOpen(io, flags, config, { concurrency: 0 }, { role: 'manager' })
  })
}

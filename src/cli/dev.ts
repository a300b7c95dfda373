/** `curfew dev`: manager and worker in one process, over a file beside the code. */
import { Command } from 'commander'
import { addSettings, loadConfig } from './config.ts'
import type { Io } from './io.ts'
import { loadModules } from './load-modules.ts'
import { keepOpen } from './open-manager.ts'
import type { Flags } from './options.ts'
import { jsonOption } from './options.ts'

export function devCommand(io: Io): Command {
  const command = new Command('dev')
    .description('Run a manager and a worker in one process, with the code of modules')
    .argument('[modules...]', 'files that export tasks, agents and workflows')
    .addHelpText(
      'after',
      `
Examples:
  $ curfew dev tasks.ts
  $ curfew dev tasks.ts agents.ts --store ./try.db --log info`,
    )
  return jsonOption(addSettings(command, 'dev', ['modules'])).action(
    async (modules: string[], flags: Flags) => {
      const config = await loadConfig(io, 'dev', { ...flags, modules })
      const { queues, concurrency, allowPrivate } = config.settings
      const { tasks, agents, workflows } = await loadModules(config.settings.modules, io.cwd)
      const known = { tasks, agents, workflows }
      const own = {
        ...{ ...known, concurrency, http: { allowPrivate } },
        ...(queues !== null && { workQueues: queues }),
      }
      await keepOpen(io, flags, config, own, { role: 'dev', known })
    },
  )
}

/** `curfew worker`: runs the code of modules for managers. */
import { Command } from 'commander'
import { addSettings, loadConfig } from './config.ts'
import { callerOf } from './credentials.ts'
import type { Io } from './io.ts'
import { loadModules } from './load-modules.ts'
import { storeLogger } from './logger.ts'
import type { Flags } from './options.ts'
import { jsonOption } from './options.ts'
import { stay, tellReady } from './stay.ts'

export function workerCommand(io: Io): Command {
  const command = new Command('worker')
    .description('Run the tasks, agents and workflows of modules, for managers')
    .argument('[modules...]', 'files that export tasks, agents and workflows')
    .addHelpText(
      'after',
      `
Examples:
  $ curfew worker tasks.ts --manager http://127.0.0.1:4242
  $ curfew worker tasks.ts --manager https://a:4242 --manager https://b:4242 --queues mail,bank`,
    )
  return jsonOption(addSettings(command, 'worker', ['modules'])).action(
    async (modules: string[], flags: Flags) => {
      const config = await loadConfig(io, 'worker', { ...flags, modules })
      const { managers, queues, concurrency, turns, labels, drain, log, allowPrivate } = config.settings
      const caller = await callerOf(io, config)
      const { tasks, agents, workflows } = await loadModules(config.settings.modules, io.cwd)
      const known = { tasks, agents, workflows }
      const { Curfew } = await import('../curfew.ts')
      await stay(io, drain, async () => {
        const worker = await Curfew.work({
          ...{ ...caller, ...known, managers, concurrency, turns, labels, http: { allowPrivate } },
          ...(queues !== null && { queues }),
          ...{ witness: true, logger: storeLogger(io, log) },
        })
        const attached = worker.attached().then((manager) => {
          tellReady(io, flags, { role: 'worker', addresses: [manager], nodeId: worker.workerId, known })
          return new Promise<never>(() => undefined)
        })
        return { close: (options) => worker.close(options), failed: attached }
      })
    },
  )
}

/** `curfew run FILE`: a definition, to its end. */
import { Command } from 'commander'
import { IdSource } from '../core/id.ts'
import { SystemRandomness } from '../core/system-clock.ts'
import { addSettings, loadConfig } from './config.ts'
import { checkFile, definitionOf, refuseForJob } from './definition-file.ts'
import type { Engine } from './find-engine.ts'
import { placeOf } from './find-engine.ts'
import type { Io } from './io.ts'
import { registryOf } from './known-names.ts'
import { loadModules } from './load-modules.ts'
import type { Flags } from './options.ts'
import { checkDuration, jsonOption, readInput } from './options.ts'
import { runToEnd } from './run-to-end.ts'

interface RunFlags extends Flags {
  input?: string
  key?: string
  timeout?: string
}

export function runCommand(io: Io): Command {
  const command = new Command('run')
    .description('Run a workflow or job from a file to its end, with live progress')
    .argument('<file>', 'YAML or JSON')
    .option('--input <json>', 'of a workflow: JSON, @FILE, or - for stdin')
    .option('--key <key>', 'the same key again goes on with what was started with it')
    .option('--timeout <duration>', 'of a workflow: instead of the one in the file')
    .addHelpText(
      'after',
      `
Examples:
  $ curfew run research.yml --module tasks.ts --input '{"topics":["time"]}'
  $ curfew run nightly.yml --manager http://127.0.0.1:4242 --json

It runs here, over --store, unless a manager is named. Its output goes to stdout, progress to stderr.
Ctrl-C cancels it and waits until everything has stopped; once more ends at once.
Exits 0 completed, 1 failed, 2 invalid definition or usage, 124 timed out, 130 interrupted or cancelled.`,
    )
  return jsonOption(addSettings(command, 'run')).action(async (file: string, flags: RunFlags) => {
    checkDuration(flags.timeout, '--timeout')
    const config = await loadConfig(io, 'run', flags)
    const place = placeOf(io, config)
    const definitions = await loadModules(config.settings.modules, io.cwd)
    // Whoever runs it knows more names than this process; here, what is not known will never run.
    const registry = 'managers' in place ? undefined : registryOf(definitions)
    const checked = definitionOf(await checkFile(io, file, registry))
    refuseForJob(checked, { input: flags.input, timeout: flags.timeout })
    const input = await readInput(io, flags.input)
    await runToEnd(io, {
      ...{ config, place, definitions, json: flags.json === true, cancelsOthers: true },
      begin: async (engine) => {
        const key = flags.key ?? ownKey(io, engine)
        const { id, existing } = await engine.client.submitNamed({
          definition: checked.text,
          ...(input !== undefined && { input }),
          ...(key !== undefined && { key }),
          ...(flags.timeout !== undefined && { timeout: flags.timeout }),
        })
        if (existing && flags.key !== undefined) io.stderr.write(`It was started before: ${id}\n`)
        return id
      },
    })
  })
}

/** A process that goes while it is asked may have stored it: with a key it is not started twice. */
function ownKey(io: Io, { via }: Engine): string | undefined {
  if (via !== 'process') return undefined
  return new IdSource(new SystemRandomness()).next('r', io.clock.wall())
}

/** `curfew run FILE`: a definition, to its end. */
import { Command } from 'commander'
import { assert } from '../core/errors.ts'
import { IdSource } from '../core/id.ts'
import { SystemRandomness } from '../core/system-clock.ts'
import { definitionKind } from '../definitions/definition-kind.ts'
import { Colours } from './colours.ts'
import { addSettings, loadConfig } from './config.ts'
import type { CheckedFile, MapreduceFile } from './definition-file.ts'
import {
  checkText,
  definitionOf,
  isMapreduceFile,
  readTextFile,
  refuseForJob,
  textWithOutlines,
} from './definition-file.ts'
import { usageError } from './exit-code.ts'
import type { Engine } from './find-engine.ts'
import { placeOf } from './find-engine.ts'
import type { Io } from './io.ts'
import { registryOf } from './known-names.ts'
import { loadModules } from './load-modules.ts'
import type { MapreduceFlags } from './mapreduce-flags.ts'
import { givenValues, mapreduceOptions, refuseMapreduceFlags, withFlags } from './mapreduce-flags.ts'
import { planMapreduce } from './mapreduce-plan.ts'
import { planLines } from './mapreduce-plan-text.ts'
import type { Flags } from './options.ts'
import { checkDuration, jsonOption, readInput } from './options.ts'
import { printJson, printLines } from './print.ts'
import { runMapreduce } from './run-mapreduce.ts'
import type { RunToEnd } from './run-to-end.ts'
import { runToEnd } from './run-to-end.ts'
import { problemLines } from './validate.ts'
import { WorkedMembers } from './worked-members.ts'

interface RunFlags extends Flags, MapreduceFlags {
  input?: string
  key?: string
}

export function runCommand(io: Io): Command {
  const command = new Command('run')
    .description('Run a workflow, job or map-reduce from a file to its end, with live progress')
    .argument('<file>', 'YAML or JSON')
    .option('--input <json>', 'of a workflow: JSON, @FILE, or - for stdin')
    .option('--key <key>', 'the same key again goes on with what was started with it')
    .option('--timeout <duration>', 'of a workflow or map-reduce: instead of the one in the file')
    .addHelpText(
      'after',
      `
Examples:
  $ curfew run research.yml --module tasks.ts --input '{"topics":["time"]}'
  $ curfew run nightly.yml --manager http://127.0.0.1:4242 --json
  $ curfew run pipeline.yml --param branch=main --max-items 5 --dry-run

It runs here, over --store, unless a manager is named. Its output goes to stdout, progress to stderr.
Ctrl-C cancels it and waits until everything has stopped; once more ends at once. A map-reduce is stopped and
can be resumed: curfew resume ID.
Exits 0 completed, 1 failed or with items in the dead letters, 2 invalid definition or usage, 124 timed out,
130 interrupted or cancelled.`,
    )
  return jsonOption(addSettings(mapreduceOptions(command), 'run')).action(runFile)

  async function runFile(file: string, flags: RunFlags): Promise<void> {
    const text = await readTextFile(io, file)
    const kind = definitionKind(text)
    if (kind === 'mapreduce') return runMapreduceFile(io, file, text, flags)
    checkDuration(flags.timeout, '--timeout')
    refuseMapreduceFlags(file, kind, flags)
    const config = await loadConfig(io, 'run', flags)
    const place = placeOf(io, config)
    const definitions = await loadModules(config.settings.modules, io.cwd)
    // Whoever runs it knows more names than this process; here, what is not known will never run.
    const registry = 'managers' in place ? undefined : registryOf(definitions)
    const checked = definitionOf(checkText(io, file, text, { registry }))
    refuseForJob(checked, { input: flags.input, timeout: flags.timeout })
    const input = await readInput(io, flags.input)
    const common = { config, place, definitions, json: flags.json === true, cancelsOthers: true }
    if (checked.members.length > 0) return runWithMembers(io, checked, flags, common)
    await runToEnd(io, {
      ...common,
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
  }
}

/** A job with map-reduces: their commands run here, whoever has the store. */
async function runWithMembers(
  io: Io,
  checked: CheckedFile,
  flags: RunFlags,
  common: Omit<RunToEnd, 'begin'>,
): Promise<void> {
  const { file, problems, members: files } = checked
  if (flags.key !== undefined) {
    const hint = 'curfew resume JOB goes on with one that was left.'
    throw usageError(`--key: workflow ${files[0]?.id} of ${file} is a map-reduce`, hint)
  }
  for (const warning of problemLines(new Colours(io, io.stderr), problems)) io.stderr.write(`${warning}\n`)
  const members = await WorkedMembers.create(io, files, common)
  await runToEnd(io, {
    ...{ ...common, members },
    begin: async ({ client }) => {
      const { requestId } = members
      const definition = textWithOutlines(checked, (workflow) => members.outline(workflow))
      const { id } = await client.submitNamed({ definition, requestId })
      members.started()
      return id
    },
  })
}

async function runMapreduceFile(io: Io, file: string, text: string, flags: RunFlags): Promise<void> {
  if (flags.input !== undefined)
    throw usageError(
      `--input: ${file} is a map-reduce`,
      'Its items stand in map.input; --args takes a value.',
    )
  if (flags.key !== undefined)
    throw usageError(`--key: ${file} is a map-reduce`, 'curfew resume JOB goes on with one that was left.')
  const { args, params } = givenValues(flags)
  const valid = definitionOf(checkText(io, file, text, { params }))
  assert(isMapreduceFile(valid), 'a map-reduce has the definition of one')
  const checked: MapreduceFile = { ...valid, definition: withFlags(valid.definition, flags) }
  const json = flags.json === true
  if (!flags.dryRun) {
    const warnings = problemLines(new Colours(io, io.stderr), checked.problems)
    for (const warning of warnings) io.stderr.write(`${warning}\n`)
    return runMapreduce(io, { checked, args, params, flags, json })
  }
  const plan = await planMapreduce(io, checked, { args, params }, { useGit: flags.worktrees !== false })
  if (json) printJson(io, plan)
  else printLines(io, planLines(io, plan))
}

/** A process that goes while it is asked may have stored it: with a key it is not started twice. */
function ownKey(io: Io, { via }: Engine): string | undefined {
  if (via !== 'process') return undefined
  return new IdSource(new SystemRandomness()).next('r', io.clock.wall())
}

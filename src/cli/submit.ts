/** `curfew submit`: stores work for whoever runs it, and answers its id. */
import { existsSync } from 'node:fs'
import path from 'node:path'
import { Command } from 'commander'
import { CurfewError } from '../core/errors.ts'
import type { Config } from './config.ts'
import { joined, loadConfig } from './config.ts'
import type { GraphFile } from './definition-file.ts'
import { checkFile, definitionOf, refuseForJob, refuseMapreduce, refuseMembers } from './definition-file.ts'
import { openDisplay } from './display.ts'
import { usageError } from './exit-code.ts'
import type { Engine, StorePlace } from './find-engine.ts'
import { connectManagers, findProcess, onceFree, openOwn, placeOf } from './find-engine.ts'
import { follow } from './follow.ts'
import type { Io } from './io.ts'
import { loadModules } from './load-modules.ts'
import type { Flags } from './options.ts'
import { checkDuration, clientOptions, readInput } from './options.ts'
import { printOutcome } from './outcome.ts'
import { printJson, printLines } from './print.ts'

interface SubmitFlags extends Flags {
  input?: string
  key?: string
  timeout?: string
  delay?: string
  traceparent?: string
  wait?: boolean
}

const KINDS = ['task', 'agent', 'workflow'] as const
/** After a word alone. */
const MISSING = new Map<string, string>([
  ...KINDS.map((kind) => [kind, `the name of the ${kind}`] as const),
  ['job', 'the file of the job'],
])
const USAGE = 'Write submit FILE, or submit task NAME, submit agent NAME, submit workflow NAME.'
const TAKE_WITHIN_MS = 5_000

type What = { file: GraphFile } | { kind: (typeof KINDS)[number]; name: string }

export function submitCommand(io: Io): Command {
  const command = new Command('submit')
    .description('Store work for whoever runs it, and print its id')
    .usage('[options] FILE | task NAME | agent NAME | workflow NAME')
    .argument('<what>', 'a file that defines a workflow or job; or task, agent or workflow and its name')
    .argument('[name]', 'as a worker has announced it, or a module exports it')
    .option('--input <json>', 'JSON, @FILE, or - for stdin')
    .option('--key <key>', 'the same key again answers what was submitted with it')
    .option('--timeout <duration>', 'instead of the one of the definition')
    .option('--delay <duration>', 'of a task: it starts that much later')
    .option('--traceparent <context>', 'a W3C trace context, which reaches the handlers')
    .option(
      '--module <file>',
      'with nobody there: a file that exports what the definition names; may be given several times',
      joined,
    )
    .option('--wait', 'wait until it has ended; print and exit as "curfew run" does')
    .addHelpText(
      'after',
      `
Examples:
  $ curfew submit nightly.yml --key 2026-11-15 --manager http://127.0.0.1:4242
  $ curfew submit task resize --input '{"file":"cat.png"}' --wait`,
    )
  return clientOptions(command).action(
    async (first: string, name: string | undefined, flags: SubmitFlags) => {
      const what = await readWhat(io, first, name)
      checkFlags(what, flags)
      const input = await readInput(io, flags.input)
      const config = await loadConfig(io, 'client', flags)
      const engine = await findSubmitEngine(io, config, what, flags.wait === true)
      try {
        const { key, timeout, delay, traceparent } = flags
        const submitted = await engine.client.submitNamed({
          ...('file' in what ? { definition: what.file.text } : { [what.kind]: what.name }),
          ...(input !== undefined && { input }),
          ...(key !== undefined && { key }),
          ...(timeout !== undefined && { timeout }),
          ...(delay !== undefined && { delay }),
          ...(traceparent !== undefined && { traceparent }),
        })
        if (submitted.existing) io.stderr.write('It was submitted before.\n')
        if (flags.wait) await waitFor(io, engine, submitted.id, flags)
        else if (flags.json) printJson(io, submitted)
        else printLines(io, [submitted.id])
      } finally {
        await engine.close()
      }
    },
  )
}

async function readWhat(io: Io, first: string, name: string | undefined): Promise<What> {
  const kind = KINDS.find((one) => one === first)
  if (kind !== undefined && name !== undefined) return { kind, name }
  if (name !== undefined) throw usageError(`'${first}' is none of ${KINDS.join(', ')}`, USAGE)
  // A file may have any name.
  const missing = MISSING.get(first)
  if (missing !== undefined && !existsSync(path.resolve(io.cwd, first)))
    throw usageError(`submit ${first}: ${missing} is missing`, USAGE)
  const file = refuseMapreduce(definitionOf(await checkFile(io, first)), 'submitted yet')
  refuseMembers(file, 'submitted yet')
  return { file }
}

function checkFlags(what: What, { input, timeout, delay }: SubmitFlags): void {
  checkDuration(timeout, '--timeout')
  checkDuration(delay, '--delay')
  if (delay !== undefined && !('kind' in what && what.kind === 'task')) {
    throw usageError('--delay is for tasks only')
  }
  if ('file' in what) refuseForJob(what.file, { input, timeout })
}

/** With nobody there it is stored by this process, which must know what is named. */
async function findSubmitEngine(io: Io, config: Config, what: What, wait: boolean): Promise<Engine> {
  const place = placeOf(io, config)
  if ('managers' in place) return connectManagers(io, place.managers, config)
  return onceFree(io, TAKE_WITHIN_MS, async () => {
    return (await findProcess(io, place)) ?? (await openForSubmit(io, config, place, what, wait))
  })
}

async function openForSubmit(
  io: Io,
  config: Config,
  place: StorePlace,
  what: What,
  wait: boolean,
): Promise<Engine> {
  if (wait && place.isFile) {
    throw new CurfewError('nobody_works', `nobody works on ${place.store}: it would wait for ever`, {
      hint: 'curfew run FILE runs it here; curfew dev works on everything in the store.',
    })
  }
  const { tasks, agents, workflows } = await loadModules(config.settings.modules, io.cwd)
  const witness = 'file' in what && hasShell(what.file)
  return openOwn(io, config, place, { tasks, agents, workflows, witness, concurrency: 0 })
}

/** A workflow with commands is taken only where they could run. */
function hasShell({ definition }: GraphFile): boolean {
  const models =
    definition.kind === 'job'
      ? definition.model.workflows.flatMap((one) => one.definition ?? [])
      : [definition.model]
  return models.some(({ actions }) => Object.values(actions).some(({ kind }) => kind === 'shell'))
}

async function waitFor(io: Io, engine: Engine, id: string, { json }: Flags): Promise<void> {
  const { client, gone, who } = engine
  const display = openDisplay(io, io.stderr)
  const last = await follow(io, engine, id, { display, signal: AbortSignal.any([io.outputClosed, gone]) })
  if (!last?.settled) {
    throw new CurfewError('nobody_works', `${who} is gone; ${id} is stored`, {
      hint: `curfew resume ${id} goes on with it.`,
      fields: { id },
    })
  }
  await printOutcome(io, client, id, { json: json === true })
}

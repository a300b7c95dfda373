/** The command line: `curfew COMMAND`. Commands are put together here, and what they throw becomes an exit code. */
import { readFileSync } from 'node:fs'
import path from 'node:path'
import { Command } from 'commander'
import { CurfewError } from '../core/errors.ts'
import { cancelCommand } from './cancel.ts'
import { configCommand } from './config-command.ts'
import { devCommand } from './dev.ts'
import { dlqCommand } from './dlq.ts'
import { eventsCommand } from './events.ts'
import { explainCommand } from './explain.ts'
import { graphCommand } from './graph.ts'
import type { Io } from './io.ts'
import { asksForJson } from './io.ts'
import { listCommand } from './list.ts'
import { managerCommand } from './manager.ts'
import { printError } from './print-error.ts'
import { resumeCommand } from './resume.ts'
import { runCommand } from './run.ts'
import { signalCommand } from './signal.ts'
import { statusCommand } from './status.ts'
import { submitCommand } from './submit.ts'
import { timeoutsCommand } from './timeouts.ts'
import { tokenCommand } from './token.ts'
import { validateCommand } from './validate.ts'
import { watchCommand } from './watch.ts'
import { workerCommand } from './worker.ts'
import { workersCommand } from './workers.ts'
import { worktreesCommand } from './worktrees.ts'

type MakeCommand = (io: Io) => Command

/** In the order of the help. */
const GROUPS: Record<string, Record<string, MakeCommand>> = {
  'Run work:': { run: runCommand, submit: submitCommand, resume: resumeCommand },
  'Look at it:': {
    ...{ status: statusCommand, watch: watchCommand, list: listCommand },
    ...{ explain: explainCommand, events: eventsCommand },
  },
  'Change it:': { cancel: cancelCommand, signal: signalCommand, timeouts: timeoutsCommand },
  'Definitions:': { validate: validateCommand, graph: graphCommand },
  'Map-reduce:': { dlq: dlqCommand, worktrees: worktreesCommand },
  'Processes:': {
    ...{ manager: managerCommand, worker: workerCommand, dev: devCommand, workers: workersCommand },
    ...{ config: configCommand, token: tokenCommand },
  },
}

/** Answers what to exit with. */
export async function main(args: readonly string[], io: Io): Promise<number> {
  try {
    const program = await makeProgram(io, args[0])
    await program.parseAsync(withoutHelp(args, program), { from: 'user' })
    return io.exitCode
  } catch (error) {
    return printError(io, error, { json: asksForJson(args) })
  }
}

/** Help for a command that is none would be that for all of them, without a word on it: it is told as when it is called. */
function withoutHelp(args: readonly string[], { commands }: Command): string[] {
  const [first, name = '-'] = args
  const isUnknown = first === 'help' && !name.startsWith('-') && !commands.some((one) => one.name() === name)
  return isUnknown ? args.slice(1) : [...args]
}

/** The process ends, and the command is not done: told, and no success. */
export function cutShort(args: readonly string[], io: Io): number {
  const hint = 'Code of a module called process.exit, or waits for something that never comes.'
  const error = new CurfewError('cut_short', 'the process ended before the command was done', { hint })
  return printError(io, error, { json: asksForJson(args) })
}

/** With the command that is called alone, where it is known; else with all of them. */
export async function makeProgram(io: Io, called = ''): Promise<Command> {
  const program = new Command('curfew')
    .description('Durable jobs and workflows whose deadlines hold.')
    .version(readVersion(), '--version', 'print the version')
    .helpCommand('help [command]', 'Say how a command is called')
    .exitOverride()
    .configureOutput({
      writeOut: (text) => io.stdout.write(text),
      writeErr: (text) => io.stderr.write(text),
      // They are printed where all errors are.
      outputError: () => undefined,
      getOutHelpWidth: () => io.columns,
      getErrHelpWidth: () => io.columns,
      getOutHasColors: () => false,
      getErrHasColors: () => false,
    })
    .addHelpText(
      'after',
      '\nSee curfew COMMAND --help for its options and examples, and curfew config for what is set here.',
    )
  const isKnown = Object.values(GROUPS).some((commands) => Object.hasOwn(commands, called))
  for (const [group, commands] of Object.entries(GROUPS)) {
    program.commandsGroup(group)
    for (const [name, make] of Object.entries(commands))
      if (!isKnown || name === called) program.addCommand(make(io))
  }
  for (const command of program.commands) inherit(command, program)
  return program
}

/** Commands that were made apart have settings of their own. */
function inherit(command: Command, parent: Command): void {
  command.copyInheritedSettings(parent)
  for (const inner of command.commands) inherit(inner, command)
}

function readVersion(): string {
  const file = path.join(import.meta.dirname, '../../package.json')
  return (JSON.parse(readFileSync(file, 'utf8')) as { version: string }).version
}

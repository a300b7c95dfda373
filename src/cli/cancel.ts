/** `curfew cancel ID`: the intent is stored, then everything of it is stopped. */
import { Command } from 'commander'
import { CurfewError } from '../core/errors.ts'
import type { CancelAnswer, CancelOutcome, JobWorkflowHandle } from '../curfew.ts'
import { Colours } from './colours.ts'
import { EXIT, usageError } from './exit-code.ts'
import { withEngine } from './find-engine.ts'
import type { Io } from './io.ts'
import type { Flags } from './options.ts'
import { checkDuration, clientOptions } from './options.ts'
import { oneLine } from './plain-text.ts'
import { outputWidth, printJson, printLines } from './print.ts'
import { tableLines } from './text-table.ts'
import type { AnyHandle } from './work-handle.ts'
import { handleOf } from './work-handle.ts'

interface CancelFlags extends Flags {
  workflow?: string
  dependents: boolean
  wait?: boolean
  timeout?: string
}

const WORDS: Record<Exclude<CancelAnswer, 'not_found'>, string> = {
  cancelled: 'It was running, and is being stopped.',
  pending_cancelled: 'It waited, and will not start.',
  already_cancelled: 'It was cancelled before.',
  already_completed: 'It has ended before.',
}

export function cancelCommand(io: Io): Command {
  const command = new Command('cancel')
    .description('Stop work and everything below it')
    .argument('<id>', 'of the work')
    .option('--workflow <id>', 'of a job: only this one of its workflows, and those that depend on it')
    .option('--no-dependents', 'with --workflow: it alone')
    .option('--wait', 'wait until everything has really stopped, and show the receipts')
    .option('--timeout <duration>', 'with --wait: wait no longer; the work is stopped all the same')
    .addHelpText(
      'after',
      `
Examples:
  $ curfew cancel j_01kdvq5x6w0000000000000000 --wait
  $ curfew cancel j_01kdvq5x6w0000000000000000 --workflow load --no-dependents

With --wait it exits 1 when something still runs, 124 when --timeout was over first.`,
    )
  return clientOptions(command).action((id: string, flags: CancelFlags) => {
    checkFlags(flags)
    return withEngine(io, flags, 'write', async ({ client }) => {
      const target =
        flags.workflow === undefined ? handleOf(client, id) : client.job(id).workflow(flags.workflow)
      const answer = await cancel(target, flags)
      if (answer === 'not_found') throw notFound(id, flags.workflow)
      const timeout = flags.timeout === undefined ? {} : { timeout: flags.timeout }
      const outcome = flags.wait ? await target.cancelled(timeout) : null
      if (flags.json) printJson(io, { id, workflow: flags.workflow ?? null, answer, ...outcome })
      // That it was not cancelled is what the answer says; what has ended before may still run.
      const told = answer === 'already_completed' ? outcome && whatStillRuns(outcome) : outcome
      if (!flags.json) printLines(io, [WORDS[answer], ...(told ? outcomeLines(io, told) : [])])
      if (told && !told.success) io.exitCode = EXIT.failed
    })
  })
}

function checkFlags({ workflow, dependents, wait, timeout }: CancelFlags): void {
  if (!dependents && workflow === undefined) throw usageError('--no-dependents needs --workflow')
  if (timeout !== undefined && !wait) throw usageError('--timeout needs --wait')
  checkDuration(timeout, '--timeout')
}

function cancel(target: AnyHandle | JobWorkflowHandle, { dependents }: CancelFlags): Promise<CancelAnswer> {
  return 'jobId' in target ? target.cancel({ dependents }) : target.cancel()
}

function whatStillRuns({ errors: [, ...errors], ledger }: CancelOutcome): CancelOutcome | null {
  return errors.length === 0 ? null : { success: false, errors, ledger }
}

function notFound(id: string, workflow: string | undefined): CurfewError {
  const what = workflow === undefined ? `no work ${id}` : `no workflow '${workflow}' of a job ${id}`
  return new CurfewError('not_found', `there is ${what}`, {
    hint: 'curfew list shows what there is. Records are removed some time after their end.',
    fields: { id, workflow },
  })
}

function outcomeLines(io: Io, { success, errors, ledger }: CancelOutcome): string[] {
  const colours = new Colours(io, io.stdout)
  const columns = [
    { title: 'TASK', text: ({ name }: (typeof ledger)[number]) => name, shrinksTo: 8 },
    { title: 'ID', text: ({ taskId }: (typeof ledger)[number]) => taskId },
    { title: 'ATTEMPT', text: ({ attempt }: (typeof ledger)[number]) => String(attempt) },
    { title: 'RECEIPT', text: ({ receipt }: (typeof ledger)[number]) => receipt ?? '' },
  ]
  return [
    ...(ledger.length === 0 ? [] : tableLines(ledger, columns, { width: outputWidth(io), colours })),
    ...errors.map((error) => colours.style('red', oneLine(error))),
    success ? 'Everything has stopped.' : 'Not everything has stopped.',
  ]
}

/** `curfew dlq retry JOB [ITEM…]`: works on dead letters once more, in a run of its own. */
import { Command } from 'commander'
import { CurfewError } from '../core/errors.ts'
import { IdSource } from '../core/id.ts'
import { MAX_CONCURRENCY, MAX_NAMED_ITEMS } from '../core/limits.ts'
import { SystemRandomness } from '../core/system-clock.ts'
import type { DeadLetter, DeadLetterChoiceOptions, DeadLetters } from '../curfew.ts'
import { addSettings, loadConfig } from './config.ts'
import type { ChoiceFlags } from './dlq-options.ts'
import { errorTypeOf, errorTypeOption, isJob, itemsOf, openLetters, refuseJob } from './dlq-options.ts'
import { findEngine } from './find-engine.ts'
import type { Io } from './io.ts'
import { limitOf, refuseConcurrency } from './mapreduce-flags.ts'
import { jsonOption, wholeNumber } from './options.ts'
import { checkRetry, retryLetters } from './retry-mapreduce.ts'

interface RetryFlags extends ChoiceFlags {
  timeout?: string
  maxParallel?: string
}

export function dlqRetryCommand(io: Io): Command {
  const command = errorTypeOption(new Command('retry'))
    .description('Work on dead letters once more, until all have ended')
    .argument('<job>', 'the run they are of')
    .argument('[item...]', 'only these; without any all that are open')
    .option('--timeout <duration>', 'for each item, instead of the limits it had')
    .option('--max-parallel <number>', 'items at a time, instead of what the file says')
    .addHelpText(
      'after',
      `
Examples:
  $ curfew dlq retry w_01kdvq5x6w0000000000000000 --error-type timeout --timeout 10m
  $ curfew dlq retry w_01kdvq5x6w0000000000000000 item-3 --max-parallel 1

An item that is done now is resolved; one that is not stays, with a longer history.
Refused (exit 1) while another retry works on one of them. Otherwise it exits as "curfew run" does.`,
    )
  return jsonOption(addSettings(command, 'run')).action(
    async (jobId: string, itemIds: string[], flags: RetryFlags) => {
      const { maxParallel: parallel, ...rest } = flags
      const maxParallel =
        parallel === undefined
          ? {}
          : { maxParallel: wholeNumber(parallel, '--max-parallel', 1, MAX_CONCURRENCY) }
      refuseConcurrency(flags, 'is set by --max-parallel')
      if (flags.timeout !== undefined) limitOf(flags.timeout, '--timeout')
      const choice = { ...itemsOf(itemIds), ...errorTypeOf(flags) }
      const config = await loadConfig(io, 'run', flags)
      if (!isJob(jobId)) checkRetry(io, jobId)
      const retryId = new IdSource(new SystemRandomness()).next('w', io.clock.wall())
      const engine = await findEngine(io, config, 'write')
      const { deadLetters } = engine.client
      const claim = async () => {
        await refuseJob(engine.client, jobId)
        return claimAll(deadLetters, jobId, retryId, await withItems(io, deadLetters, jobId, choice))
      }
      const letters = await claim().finally(() => engine.close())
      const json = flags.json === true
      await retryLetters(io, { jobId, letters, retryId, flags: { ...rest, ...maxParallel }, json })
    },
  )
}

/** However many are named. */
async function claimAll(
  deadLetters: DeadLetters,
  jobId: string,
  retryId: string,
  choice: DeadLetterChoiceOptions,
): Promise<DeadLetter[]> {
  const { itemIds = [] } = choice
  const first = { ...choice, ...(itemIds.length > 0 && { itemIds: itemIds.slice(0, MAX_NAMED_ITEMS) }) }
  let letters = await deadLetters.claim(jobId, { ...first, retryId })
  for (let from = MAX_NAMED_ITEMS; from < itemIds.length; from += MAX_NAMED_ITEMS) {
    const some = { ...choice, itemIds: itemIds.slice(from, from + MAX_NAMED_ITEMS) }
    // With those before: it answers all that the run has.
    letters = await deadLetters.claim(jobId, { ...some, retryId })
  }
  return letters
}

/** Without its item there is nothing to work on: such a letter is not taken. */
async function withItems(
  io: Io,
  deadLetters: DeadLetters,
  jobId: string,
  choice: DeadLetterChoiceOptions,
): Promise<DeadLetterChoiceOptions> {
  const whole: string[] = []
  const cut: string[] = []
  for await (const { itemId, body } of openLetters(deadLetters, jobId, choice))
    (body.eligible === false ? cut : whole).push(itemId)
  if (cut.length === 0) return choice
  const message = `${cut.join(', ')}: too large for a dead letter, so that it cannot be tried again from it`
  if (whole.length === 0) throw new CurfewError('not_eligible', message)
  io.stderr.write(`${message}\n`)
  return { ...choice, itemIds: whole }
}

/** `curfew dlq discard JOB [ITEM…]`: nobody will work on them again. */
import { Command } from 'commander'
import type { ChoiceFlags } from './dlq-options.ts'
import { errorTypeOf, errorTypeOption, itemsOf } from './dlq-options.ts'
import { withEngine } from './find-engine.ts'
import type { Io } from './io.ts'
import { clientOptions } from './options.ts'
import { printJson, printLines } from './print.ts'

export function dlqDiscardCommand(io: Io): Command {
  const command = errorTypeOption(new Command('discard'))
    .description('Give dead letters up for good; they are removed after 7 days')
    .argument('<job>', 'the run they are of')
    .argument('[item...]', 'only these; without any all of the job')
    .addHelpText(
      'after',
      `
Examples:
  $ curfew dlq discard w_01kdvq5x6w0000000000000000 item-3 item-7
  $ curfew dlq discard w_01kdvq5x6w0000000000000000 --error-type conflict

Exits 1 when there is no such dead letter, or when one is being retried; nothing is discarded then.`,
    )
  return clientOptions(command).action((jobId: string, itemIds: string[], flags: ChoiceFlags) => {
    const choice = { ...itemsOf(itemIds), ...errorTypeOf(flags) }
    return withEngine(io, flags, 'write', async ({ client }) => {
      const discarded = await client.deadLetters.discard(jobId, choice)
      if (flags.json) printJson(io, { jobId, discarded })
      else printLines(io, [discarded === 1 ? '1 was discarded.' : `${discarded} were discarded.`])
    })
  })
}

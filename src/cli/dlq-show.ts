/** `curfew dlq show JOB ITEM`: everything there is to know about an item that was given up. */
import { Command } from 'commander'
import { refuseJob } from './dlq-options.ts'
import { withEngine } from './find-engine.ts'
import type { Io } from './io.ts'
import { letterDocument } from './letter-document.ts'
import { letterLines } from './letter-lines.ts'
import type { Flags } from './options.ts'
import { clientOptions } from './options.ts'
import { printJson, printLines } from './print.ts'

export function dlqShowCommand(io: Io): Command {
  const command = new Command('show')
    .description(
      'Show a dead letter: the item, why it was given up, every attempt, and what is left of its work',
    )
    .argument('<job>', 'the run it is of')
    .argument('<item>', 'as "dlq list" has it')
    .addHelpText(
      'after',
      `
Examples:
  $ curfew dlq show w_01kdvq5x6w0000000000000000 item-3
  $ curfew dlq show w_01kdvq5x6w0000000000000000 item-3 --json | jq .timeout

Exits 0 whatever became of it, 1 when there is none.`,
    )
  return clientOptions(command).action((jobId: string, itemId: string, flags: Flags) =>
    withEngine(io, flags, 'read', async ({ client }) => {
      await refuseJob(client, jobId)
      const letter = letterDocument(await client.deadLetters.get(jobId, itemId))
      if (flags.json) printJson(io, letter)
      else printLines(io, letterLines(io, letter))
    }),
  )
}

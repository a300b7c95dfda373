/** `curfew dlq list [JOB]`: dead letters, by job, the newest first. */
import { Command } from 'commander'
import { MAX_PAGE } from '../core/limits.ts'
import type { DeadLetterView } from '../curfew.ts'
import { Colours } from './colours.ts'
import type { ChoiceFlags } from './dlq-options.ts'
import { errorTypeOf, errorTypeOption, refuseJob, stateOf, stateOption } from './dlq-options.ts'
import { withEngine } from './find-engine.ts'
import type { Io } from './io.ts'
import { clientOptions, wholeNumber } from './options.ts'
import { outputWidth, printJson, printLines, roughDuration } from './print.ts'
import { tableLines } from './text-table.ts'

const DEFAULT_LIMIT = 50

interface ListFlags extends ChoiceFlags {
  limit?: string
  cursor?: string
  all?: boolean
}

export function dlqListCommand(io: Io): Command {
  const command = stateOption(errorTypeOption(new Command('list')))
    .description('List dead letters: by job, the newest first')
    .argument('[job]', 'only of this run')
    .option('--limit <number>', `at most so many (default: ${DEFAULT_LIMIT})`)
    .option('--cursor <cursor>', 'go on where an earlier list ended')
    .option('--all', 'all of them')
    .addHelpText(
      'after',
      `
Examples:
  $ curfew dlq list
  $ curfew dlq list w_01kdvq5x6w0000000000000000 --error-type timeout
  $ curfew dlq list --state all --json | jq -r '.letters[] | .jobId + " " + .itemId'

Exits 0, also when there is none.`,
    )
  return clientOptions(command).action((jobId: string | undefined, flags: ListFlags) => {
    const filter = {
      ...(jobId !== undefined && { jobId }),
      ...stateOf(flags),
      ...errorTypeOf(flags),
      limit: limitOf(flags),
    }
    return withEngine(io, flags, 'read', async ({ client }) => {
      await refuseJob(client, jobId)
      const letters: DeadLetterView[] = []
      let cursor = flags.cursor ?? null
      do {
        const page = await client.deadLetters.list({ ...filter, ...(cursor !== null && { cursor }) })
        letters.push(...page.letters)
        cursor = page.cursor
      } while (flags.all && cursor !== null)
      if (flags.json) return printJson(io, { letters: letters.map(({ body: _, ...head }) => head), cursor })
      if (letters.length === 0) io.stderr.write('There is none.\n')
      else printLines(io, letterLines(io, letters))
      if (cursor !== null) io.stderr.write(`There are more: --cursor '${cursor}', or --all.\n`)
    })
  })
}

function limitOf({ all, limit }: ListFlags): number {
  if (limit !== undefined) return wholeNumber(limit, '--limit', 1, MAX_PAGE)
  return all ? MAX_PAGE : DEFAULT_LIMIT
}

function letterLines(io: Io, letters: readonly DeadLetterView[]): string[] {
  const colours = new Colours(io, io.stdout)
  const now = io.clock.wall()
  const isMixed = letters.some(({ state }) => state !== 'open')
  return tableLines(
    letters,
    [
      { title: 'JOB', text: ({ jobId }) => jobId },
      { title: 'ITEM', text: ({ itemId }) => itemId },
      { title: 'NAME', text: ({ name, itemId }) => (name === itemId ? '' : name), shrinksTo: 8 },
      { title: 'STATE', text: ({ state }) => (isMixed ? state : '') },
      {
        title: 'ERROR',
        text: ({ errorType }) => errorType,
        colour: (text, { errorType }) => colours.style(errorType === 'timeout' ? 'yellow' : 'red', text),
      },
      { title: 'ATTEMPTS', text: ({ attempts }) => String(attempts), optional: true },
      { title: 'AGE', text: ({ createdAt }) => roughDuration(Math.max(0, now - createdAt)), optional: true },
      { title: 'RETRIED BY', text: ({ retryId }) => retryId ?? '', optional: true },
      { title: 'MESSAGE', text: ({ message }) => message, shrinksTo: 16 },
    ],
    { width: outputWidth(io), colours },
  )
}

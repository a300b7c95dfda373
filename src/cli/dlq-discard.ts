/** `curfew dlq discard JOB [ITEM…]`: nobody will work on them again. The work that was kept for them goes too. */
import { Command } from 'commander'
import type { Client } from '../client/client.ts'
import type { DeadLetterChoiceOptions } from '../curfew.ts'
import type { KeptRef } from '../mapreduce/kept-refs.ts'
import { listKeptRefs, removeKeptRef } from '../mapreduce/kept-refs.ts'
import { RunFolder, runsFolder } from '../mapreduce/run-folder.ts'
import type { ChoiceFlags } from './dlq-options.ts'
import { errorTypeOf, errorTypeOption, itemsOf, openLetters, refuseJob } from './dlq-options.ts'
import { withEngine } from './find-engine.ts'
import type { Io } from './io.ts'
import { runsOfLetter } from './known-runs.ts'
import { clientOptions } from './options.ts'
import { printable } from './plain-text.ts'
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

The branch and the refs under which the work of an item was kept are removed from the repository, and named with
their commits. A branch that is checked out stays, as does everything with --keep-work.
Exits 1 when there is no such dead letter, or when one is being retried; nothing is discarded then.`,
    )
    .option('--keep-work', 'leave the branches and refs of the items in the repository')
  return clientOptions(command).action((jobId: string, itemIds: string[], flags: DiscardFlags) => {
    const choice = { ...itemsOf(itemIds), ...errorTypeOf(flags) }
    return withEngine(io, flags, 'write', async ({ client }) => {
      await refuseJob(client, jobId)
      const worked = flags.keepWork ? null : await workedOn(client, jobId, choice)
      const discarded = await client.deadLetters.discard(jobId, choice)
      const kept = worked ? await removeKept(io, jobId, worked) : []
      if (flags.json) return printJson(io, { jobId, discarded, kept })
      printLines(io, [
        discarded === 1 ? '1 was discarded.' : `${discarded} were discarded.`,
        ...kept.map(({ branch, ref, commit, failed }) => {
          const what = failed === null ? `removed; it was ${commit}` : `stays: ${printable(failed)}`
          return `${branch ?? ref} ${what}`
        }),
      ])
    })
  })
}

interface DiscardFlags extends ChoiceFlags {
  keepWork?: boolean
}

/** Of open letters: the item, in every run that worked on it. A letter is the only one of its item. */
async function workedOn(
  client: Client,
  jobId: string,
  choice: DeadLetterChoiceOptions,
): Promise<Set<string>> {
  const worked = new Set<string>()
  for await (const letter of openLetters(client.deadLetters, jobId, choice))
    for (const id of runsOfLetter(letter)) worked.add(`${id} ${letter.itemId}`)
  return worked
}

async function removeKept(io: Io, jobId: string, worked: ReadonlySet<string>) {
  const runs = runsFolder(io.env)
  const cwd = RunFolder.exists(runs, jobId) ? RunFolder.look(runs, jobId).record.cwd : io.cwd
  const { repository, refs } = await listKeptRefs(cwd, { clock: io.clock, env: { ...io.env } })
  const removed: (KeptRef & { failed: string | null })[] = []
  for (const ref of refs)
    if (repository && worked.has(`${ref.jobId} ${ref.itemId}`))
      removed.push({ ...ref, failed: await removeKeptRef(repository, ref) })
  return removed
}

/** `curfew dlq export JOB`: dead letters as JSON, one a line. */
import type { FileHandle } from 'node:fs/promises'
import { open } from 'node:fs/promises'
import path from 'node:path'
import { Command } from 'commander'
import { CurfewError } from '../core/errors.ts'
import type { ChoiceFlags } from './dlq-options.ts'
import { errorTypeOf, errorTypeOption, refuseJob, stateOf, stateOption } from './dlq-options.ts'
import { withEngine } from './find-engine.ts'
import type { Io } from './io.ts'
import { letterDocument } from './letter-document.ts'
import { clientOptions } from './options.ts'
import { printJson } from './print.ts'

interface ExportFlags extends ChoiceFlags {
  output?: string
}

export function dlqExportCommand(io: Io): Command {
  const command = stateOption(errorTypeOption(new Command('export')))
    .description('Write dead letters as JSON, one a line, as "dlq show --json" has them')
    .argument('<job>', 'the run they are of')
    .option('--output <file>', 'instead of stdout; what is there is replaced')
    .addHelpText(
      'after',
      `
Examples:
  $ curfew dlq export w_01kdvq5x6w0000000000000000 --output letters.jsonl
  $ curfew dlq export w_01kdvq5x6w0000000000000000 | jq -c '[.itemId, .item]'

With --output and --json it prints { file, count }. Exits 0, also when there is none.`,
    )
  return clientOptions(command).action(async (jobId: string, flags: ExportFlags) => {
    const filter = { ...stateOf(flags), ...errorTypeOf(flags) }
    const { output } = flags
    const file = output === undefined ? null : await openFile(path.resolve(io.cwd, output))
    try {
      // Looking may begin again, elsewhere.
      const written = new Set<string>()
      await withEngine(io, flags, 'read', async ({ client }) => {
        await refuseJob(client, jobId)
        for await (const letter of client.deadLetters.read(jobId, filter)) {
          if (written.has(letter.itemId) || io.outputClosed.aborted) continue
          const line = `${JSON.stringify(letterDocument(letter))}\n`
          if (file) await file.write(line)
          else io.stdout.write(line)
          written.add(letter.itemId)
        }
      })
      tell(io, flags, written.size)
    } finally {
      await file?.close()
    }
  })
}

function tell(io: Io, { output, json }: ExportFlags, count: number): void {
  if (output !== undefined && json) printJson(io, { file: output, count })
  else if (count === 0) io.stderr.write('There is none.\n')
  else if (output !== undefined) io.stderr.write(`${count} written to ${output}.\n`)
}

/** Items are data of a user: for nobody else's eyes. */
async function openFile(file: string): Promise<FileHandle> {
  try {
    return await open(file, 'w', 0o600)
  } catch (error) {
    throw new CurfewError('no_such_file', `${file} cannot be written: ${(error as Error).message}`, {
      hint: 'Is there such a folder, and may you write to it?',
      cause: error,
    })
  }
}

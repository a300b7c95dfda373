/** `curfew signal ID NAME [VALUE]`: kept until the agent asks for it. */
import { Command } from 'commander'
import { withEngine } from './find-engine.ts'
import type { Io } from './io.ts'
import type { Flags } from './options.ts'
import { clientOptions, readInput } from './options.ts'
import { printJson, printLines } from './print.ts'

export function signalCommand(io: Io): Command {
  const command = new Command('signal')
    .description('Send a signal to an agent')
    .argument('<id>', 'of the agent')
    .argument('<name>', 'of the signal')
    .argument('[value]', 'JSON, @FILE, or - for stdin', 'null')
    .addHelpText(
      'after',
      `
Examples:
  $ curfew signal g_01kdvq5x6w0000000000000000 approved
  $ curfew signal g_01kdvq5x6w0000000000000000 answer '{"by":"ada","yes":true}'`,
    )
  return clientOptions(command).action(async (id: string, name: string, text: string, flags: Flags) => {
    const value = await readInput(io, text, 'VALUE')
    await withEngine(io, flags, 'write', async ({ client }) => {
      await client.agent(id).signal(name, value)
      if (flags.json) printJson(io, { id, name, value })
      else printLines(io, [`Signal ${name} is stored.`])
    })
  })
}

/** `curfew token create`: a token for a caller, shown once, and the line by which managers know it. */
import { Command } from 'commander'
import type { TokenEntry } from '../curfew.ts'
import type { Io } from './io.ts'
import { jsonOption } from './options.ts'
import { printJson, printLines } from './print.ts'

interface CreateFlags {
  role: TokenEntry['role']
  name?: string
  json?: boolean
}

export function tokenCommand(io: Io): Command {
  const create = new Command('create')
    .description('Make a token; it is printed once and kept nowhere, managers are given its hash')
    .requiredOption(
      '--role <role>',
      'what its holder may do: client, worker, peer, admin or read-only (required)',
    )
    .option('--name <name>', 'whose it is, for logs')
    .addHelpText(
      'after',
      `
Examples:
  $ curfew token create --role worker --name rack-7
  $ curfew token create --role read-only --name dashboard --json`,
    )
    .action(async (flags: CreateFlags) => {
      const { createToken, tokenText } = await import('../curfew.ts')
      const { token, entry } = createToken(flags.role, flags.name)
      const line = tokenText(entry)
      if (flags.json) return printJson(io, { token, line })
      printLines(io, [
        `token:         ${token}`,
        `configuration: ${line}`,
        '',
        'Give the token to its holder, as CURFEW_TOKEN or with --token: it cannot be shown again.',
        'Add the line to the tokens of the managers (CURFEW_TOKENS, tokensFile, or tokens in curfew.config.ts).',
      ])
    })
  return new Command('token')
    .description('Make tokens for those who call managers')
    .addCommand(jsonOption(create))
}

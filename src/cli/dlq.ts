/** `curfew dlq`: the dead letters of map-reduces, the items that were given up. */
import { Command } from 'commander'
import { dlqDiscardCommand } from './dlq-discard.ts'
import { dlqExportCommand } from './dlq-export.ts'
import { dlqListCommand } from './dlq-list.ts'
import { dlqRetryCommand } from './dlq-retry.ts'
import { dlqShowCommand } from './dlq-show.ts'
import type { Io } from './io.ts'

export function dlqCommand(io: Io): Command {
  return new Command('dlq')
    .description('Look at dead letters, the items of a map-reduce that were given up, and try them again')
    .addCommand(dlqListCommand(io))
    .addCommand(dlqShowCommand(io))
    .addCommand(dlqRetryCommand(io))
    .addCommand(dlqDiscardCommand(io))
    .addCommand(dlqExportCommand(io))
}

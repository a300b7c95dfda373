/** `curfew worktrees`: the folders of items that are still there, and the work of items that was kept. */
import { Command } from 'commander'
import type { Io } from './io.ts'
import { worktreesCleanCommand } from './worktrees-clean.ts'
import { worktreesListCommand } from './worktrees-list.ts'

export function worktreesCommand(io: Io): Command {
  return new Command('worktrees')
    .description('Look at the work folders and the kept work of map-reduce items, and clean up')
    .addCommand(worktreesListCommand(io))
    .addCommand(worktreesCleanCommand(io))
}

/** `curfew explain ID`: what it does or waits for, or why it ended; every limit, where it was set, and which binds. */
import { Command } from 'commander'
import { formatDuration } from '../core/duration.ts'
import { actionKind } from '../core/own-work.ts'
import type { Explanation } from '../curfew.ts'
import { Colours } from './colours.ts'
import { withEngine } from './find-engine.ts'
import type { Io } from './io.ts'
import type { Flags } from './options.ts'
import { clientOptions } from './options.ts'
import { oneLine } from './plain-text.ts'
import { countdown, printJson, printLines } from './print.ts'
import type { Branch } from './tree-text.ts'
import { treeLines } from './tree-text.ts'
import { handleOf } from './work-handle.ts'

export function explainCommand(io: Io): Command {
  const command = new Command('explain')
    .description('Say what work does, waits for or ended with, and which limits hold for it')
    .argument('<id>', 'of the work')
    .addHelpText(
      'after',
      `
Examples:
  $ curfew explain j_01kdvq5x6w0000000000000000
  $ curfew explain t_01kdvq5x6w0000000000000000 --json | jq .binding`,
    )
  return clientOptions(command).action((id: string, flags: Flags) =>
    withEngine(io, flags, 'read', async ({ client }) => {
      const explanation = await handleOf(client, id).explain()
      if (flags.json) printJson(io, explanation)
      else printLines(io, treeLines(branchOf(explanation, new Colours(io, io.stdout))))
    }),
  )
}

function branchOf(explanation: Explanation, colours: Colours): Branch {
  const { id, kind, name, title, status, summary, limits, binding, warnings, attempts, below } = explanation
  const label = colours.bold(oneLine(title ?? name))
  const what = actionKind(name) ?? (title === null || title === name ? kind : `${kind} ${oneLine(name)}`)
  const head = `${label} ${colours.dim(`${what} ${id}`)} ${colours.status(status)}`
  const bound = binding !== null && binding.id !== id
  const lines = [head, oneLine(summary), ...limits.map((limit) => limitText(limit, bound, colours))]
  if (bound) {
    lines.push(
      `bound by the ${binding.kind} limit of ${oneLine(binding.name)}, which ends in ${countdown(binding.remainingMs)}`,
    )
  }
  if (attempts.length > 1) {
    for (const { attempt, status: how, receipt, failure } of attempts) {
      const why = failure === null ? '' : `: ${oneLine(failure.message)}`
      lines.push(`attempt ${attempt} ${colours.status(how)}${receipt === null ? '' : ` (${receipt})`}${why}`)
    }
  }
  for (const warning of warnings) lines.push(colours.style('yellow', `warning: ${oneLine(warning)}`))
  return { lines, below: below.map((inner) => branchOf(inner, colours)) }
}

/** `bound`: by something above it, which ends sooner. */
function limitText(limit: Explanation['limits'][number], bound: boolean, colours: Colours): string {
  const { kind, option, timeoutMs, setBy, remainingMs, active, binding } = limit
  const left = active && remainingMs !== null ? `, ends in ${countdown(remainingMs)}` : ', not in force'
  const text = `${option} ${formatDuration(timeoutMs)} (${kind}), set by ${setBy}${left}`
  return binding && !bound ? `${text} ${colours.style('yellow', '← binds')}` : colours.dim(text)
}

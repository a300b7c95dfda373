/** What is said of a map-reduce once it has ended, or was interrupted. */
import { formatDuration } from '../core/duration.ts'
import type { Colours } from './colours.ts'
import type { MapreduceSummary, TimeoutOfItem } from './mapreduce-snapshot.ts'
import { countPieces, endedPieces } from './mapreduce-view.ts'
import { oneLine, printable } from './plain-text.ts'
import { roughDuration } from './print.ts'
import type { Piece } from './styled-line.ts'
import { styledLine } from './styled-line.ts'

const SLOWEST_SHOWN = 5
/** Of those that ran out of the same limit. */
const TIMEOUTS_SHOWN = 5

export function summaryText(summary: MapreduceSummary, { colours }: { colours: Colours }): string[] {
  const { jobId, name, status, failure, ms, counts, slowest, timeouts, deadLetters, lettersOf, notes } =
    summary
  const { lettersRefused } = summary
  const line = (...pieces: Piece[]) => styledLine(pieces, null, colours)
  const word = colours.status(status === 'interrupted' ? 'cancelled' : status, status.replace('_', ' '))
  const groups = Map.groupBy(timeouts, ({ kind, commandIndex, source, limitMs }) =>
    [kind, commandIndex, source, limitMs].join('\0'),
  )
  return [
    `map-reduce ${colours.bold(oneLine(name))} ${word} after ${roughDuration(ms)} ${colours.dim(`(${jobId})`)}`,
    ...(failure === null ? [] : [`  ${printable(failure.message)}`]),
    line(...countPieces(counts).flatMap((piece, i): Piece[] => (i === 0 ? [piece] : [' ', piece]))),
    ...(slowest.length === 0 ? [] : [colours.dim('Slowest:')]),
    ...slowest.slice(0, SLOWEST_SHOWN).map((one) => line('  ', ...endedPieces({ ...one, message: null }))),
    ...(timeouts.length === 0 ? [] : [colours.dim('Timed out:')]),
    ...[...groups.values()].flatMap((group) => timeoutLines(group, colours)),
    ...notes.map(printable),
    ...lettersRefused.map(({ name: item, message }) =>
      colours.style('red', `${oneLine(item)} is NOT in the dead letters: ${printable(message)}`),
    ),
    ...(deadLetters === 0
      ? []
      : [`${deadLetters} in the dead letters: ${colours.bold(`curfew dlq list ${lettersOf}`)}`]),
    ...(status === 'interrupted' ? [`To go on with it: ${colours.bold(`curfew resume ${jobId}`)}`] : []),
  ]
}

/** Every item is done, or was skipped. */
export function hasNoLetters({ deadLetters, lettersRefused }: MapreduceSummary): boolean {
  return deadLetters === 0 && lettersRefused.length === 0
}

/** Of the same limit. */
function timeoutLines(group: readonly TimeoutOfItem[], colours: Colours): string[] {
  const one = group[0]!
  const limit = formatDuration(one.limitMs)
  const count = new Set(group.map(({ itemId }) => itemId)).size
  const items = `${count} ${count === 1 ? 'item' : 'items'}`
  const more = group.length - TIMEOUTS_SHOWN
  return [
    `  ${colours.style('yellow', `${whatOf(one)}: ${limit}`)}, set by ${oneLine(setBy(one))}: ${items}`,
    ...group.slice(0, TIMEOUTS_SHOWN).map(({ name, elapsedMs, resolution }) => {
      return `    ${oneLine(name)} after ${roughDuration(elapsedMs)}, ${oneLine(resolution)}`
    }),
    ...(more > 0 ? [`    … ${more} more`] : []),
    `    ${colours.dim(`For more time, ${howToRaise(one)}.`)}`,
  ]
}

function whatOf({ kind, commandIndex, type }: TimeoutOfItem): string {
  const command =
    commandIndex === null ? '' : ` of command ${commandIndex}${type === null ? '' : `, ${oneLine(type)}`}`
  if (kind === 'agent') return 'limit of the agent'
  return `${kind === 'idle' ? 'idle limit' : 'limit'}${command}`
}

function setBy({ source }: TimeoutOfItem): string {
  return source === 'step' ? 'timeout of the step' : source
}

function howToRaise({ kind, source, commandIndex, type }: TimeoutOfItem): string {
  if (kind === 'agent') return 'raise agent_timeout_secs of map'
  if (kind === 'idle') return 'raise idle_timeout_secs, or let the command print as it goes'
  const key = /^command_timeouts\["(.*)"\]$/.exec(source)?.[1]
  if (key !== undefined) return `raise ${oneLine(key)} in command_timeouts of timeout_config`
  if (source === 'step') return `raise timeout of command ${commandIndex}`
  return `set timeout of command ${commandIndex}, or ${oneLine(type ?? 'its type')} in command_timeouts of timeout_config`
}

/** A dead letter for people, from why it was given up to what can be done about it. */
import { Colours } from './colours.ts'
import type { Io } from './io.ts'
import type { KeptWork, LetterAttempt, LetterDocument, LetterStep, LetterTimeout } from './letter-document.ts'
import { oneLine, printable } from './plain-text.ts'
import { outputWidth, roughDuration, timeText } from './print.ts'
import type { Column } from './text-table.ts'
import { tableLines } from './text-table.ts'

const MOST_OUTPUT_LINES = 20
const MOST_VALUE = 2_000
const MOST_FILES = 20

export function letterLines(io: Io, letter: LetterDocument): string[] {
  const colours = new Colours(io, io.stdout)
  const { partial, output } = letter
  const table = <Row>(title: string, rows: readonly Row[] | undefined, columns: readonly Column<Row>[]) =>
    rows && rows.length > 0
      ? section(title, tableLines(rows, columns, { width: outputWidth(io), colours }))
      : []
  const section = (title: string, lines: readonly string[]) =>
    lines.length === 0 ? [] : ['', colours.bold(title), ...lines]
  return [
    ...headLines(io, colours, letter),
    ...table('Attempts', letter.history, ATTEMPT_COLUMNS),
    ...table('Commands of the last attempt', partial?.steps, STEP_COLUMNS),
    ...section(
      'Captured',
      fieldLines(
        colours,
        Object.entries(partial?.captures ?? {}).map(([name, value]) => [name, valueText(value)]),
      ),
    ),
    ...section('Work that is not merged', keptLines(colours, partial?.kept)),
    ...section('The end of stdout', tailLines(output?.stdout)),
    ...section('The end of stderr', tailLines(output?.stderr)),
    ...section('What to do', nextLines(colours, letter)),
  ]
}

function headLines(io: Io, colours: Colours, letter: LetterDocument): string[] {
  const { jobId, itemId, name, state, errorType, message, timeout, failure } = letter
  const now = io.clock.wall()
  const since = (at: number | null) =>
    at === null ? '' : `${timeText(at)} (${roughDuration(Math.max(0, now - at))} ago)`
  const who = name === itemId ? itemId : `${itemId} (${oneLine(name)})`
  return [
    `${colours.bold(who)} of ${jobId} is ${colours.style(state === 'open' ? 'red' : 'green', state)}`,
    ...fieldLines(colours, [
      [
        'error',
        timeout
          ? `${errorType}: ${timeoutText(timeout)}`
          : `${errorType}${failure?.code ? `: ${failure.code}` : ''}`,
      ],
      ['message', message],
      ['limit set by', timeout?.source ?? ''],
      ['stopped', timeout?.resolution ?? ''],
      ['item', valueText(letter.item)],
      ['file', letter.file ?? ''],
      ['given up', since(letter.createdAt)],
      ['changed', letter.updatedAt === letter.createdAt ? '' : since(letter.updatedAt)],
      ['retried', since(letter.retriedAt)],
      ['retried by', letter.retryId ?? ''],
      ['attempts', String(letter.attempts)],
    ]),
  ]
}

function timeoutText({
  kind,
  type,
  commandIndex,
  command,
  commandType,
  limitMs,
  elapsedMs,
}: LetterTimeout): string {
  const index = commandIndex ?? command
  const during = index === undefined ? '' : `, in command ${index}${commandType ? ` (${commandType})` : ''}`
  return `${kind ?? type ?? ''} limit of ${spanText(limitMs)}, stopped after ${spanText(elapsedMs)}${during}`
}

const ATTEMPT_COLUMNS: readonly Column<LetterAttempt>[] = [
  { title: 'STARTED', text: ({ startedAt }) => timeText(startedAt ?? null) },
  { title: 'RUN', text: ({ jobId }) => jobId ?? '', optional: true },
  { title: 'TOOK', text: ({ tookMs }) => spanText(tookMs) },
  { title: 'STATUS', text: ({ status }) => status ?? '' },
  { title: 'LIMIT', text: ({ timeout }) => spanText(timeout?.limitMs) },
  { title: 'STOPPED', text: ({ timeout }) => timeout?.resolution ?? '', optional: true },
  { title: 'COMMAND', text: ({ timeout, failure }) => timeout?.text ?? failure?.text ?? '', shrinksTo: 12 },
  { title: 'WHY', text: ({ failure, timeout }) => failure?.message ?? timeout?.source ?? '', shrinksTo: 12 },
]

const STEP_COLUMNS: readonly Column<LetterStep>[] = [
  { title: '#', text: ({ command }) => String(command ?? '') },
  { title: 'TYPE', text: ({ commandType }) => commandType ?? '' },
  { title: 'STATUS', text: ({ status }) => status ?? '' },
  { title: 'EXIT', text: ({ exitCode }) => String(exitCode ?? '') },
  { title: 'TOOK', text: ({ tookMs }) => spanText(tookMs) },
  { title: 'LIMIT', text: ({ limitMs }) => spanText(limitMs ?? undefined) },
  { title: 'SET BY', text: ({ source }) => source ?? '', optional: true },
  { title: 'COMMAND', text: ({ text }) => text ?? '', shrinksTo: 12 },
]

function keptLines(colours: Colours, kept: KeptWork | null | undefined): string[] {
  if (!kept) return []
  const { ref, commit, changedFiles = [], diffStat } = kept
  const name = ref ?? commit
  const more = changedFiles.length > MOST_FILES ? `, and ${changedFiles.length - MOST_FILES} more` : ''
  return [
    ...fieldLines(colours, [
      ['ref', ref ?? ''],
      ['commit', commit ?? ''],
      ['files', `${changedFiles.slice(0, MOST_FILES).join(', ')}${more}`],
      ['look at it', name ? `git diff HEAD...${name}` : ''],
      ['take it', name ? `git merge ${name}` : ''],
    ]),
    ...indented(diffStat ?? ''),
  ]
}

function tailLines(text: string | undefined): string[] {
  const lines = indented(text ?? '')
  const cut = lines.length - MOST_OUTPUT_LINES
  return cut > 0 ? [`  … ${cut} lines before`, ...lines.slice(cut)] : lines
}

function indented(text: string): string[] {
  const trimmed = text.trimEnd()
  return trimmed === '' ? [] : trimmed.split(/\r?\n/).map((line) => `  ${printable(line)}`)
}

function nextLines(
  colours: Colours,
  { jobId, itemId, eligible, retryId, errorType }: LetterDocument,
): string[] {
  if (!eligible) return []
  const longer = errorType === 'timeout' ? ' --timeout 10m' : ''
  return fieldLines(colours, [
    ['watch it', retryId === null ? '' : `curfew watch ${retryId}`],
    ['retry it', `curfew dlq retry ${jobId} ${itemId}${longer}`],
    ['discard it', `curfew dlq discard ${jobId} ${itemId}`],
  ])
}

function fieldLines(colours: Colours, fields: readonly (readonly [string, string])[]): string[] {
  return fields
    .filter(([, value]) => value !== '')
    .map(([label, value]) => `  ${colours.dim(printable(label).padEnd(14))}${printable(value)}`)
}

function valueText(value: unknown): string {
  const text = (typeof value === 'string' ? value : JSON.stringify(value)) ?? ''
  return text.length > MOST_VALUE ? `${text.slice(0, MOST_VALUE)}… (--json shows it whole)` : text
}

function spanText(ms: number | undefined): string {
  return ms === undefined ? '' : roughDuration(ms)
}

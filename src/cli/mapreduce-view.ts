/** A running map-reduce as lines of a terminal: never more, and never wider, than it has. */
import { formatDuration } from '../core/duration.ts'
import type { Colours } from './colours.ts'
import type {
  EndedItem,
  ItemCounts,
  MapreduceSnapshot,
  PhaseSnapshot,
  RunningItem,
} from './mapreduce-snapshot.ts'
import { cutTo, oneLine, padTo, widthOf } from './plain-text.ts'
import { countdown, roughDuration } from './print.ts'
import type { Piece, Style } from './styled-line.ts'
import { styledLine, wrappedLines } from './styled-line.ts'

export interface Screen {
  width: number
  height: number
  colours: Colours
  now: number
}

const WIDEST_BAR = 30
const NARROWEST_BAR = 5
/** Beside a bar stands what it is of, and how far it is. */
const BESIDE_BAR = 30
const WIDEST_NAME = 40
const MOST_RECENT = 5

export function renderMapreduce(snapshot: MapreduceSnapshot, screen: Screen): string[] {
  const { width, height, colours, now } = screen
  const line = (...pieces: Piece[]) => styledLine(pieces, width, colours)
  const counts = wrappedLines(countPieces(snapshot.counts), width, colours)
  const phases = snapshot.phases
    .filter(({ state }) => state !== 'none')
    .map((phase) => line(...phasePieces(phase, snapshot.counts, screen)))
  const head = [line(...titlePieces(snapshot, now)), ...phases, ...counts]
  // Where there is no room for all of it, how many items are where says most.
  if (head.length > height) return [...counts, ...phases].slice(0, Math.max(1, height))
  const rows = height - head.length
  const recent = Math.min(snapshot.recent.length, MOST_RECENT, Math.floor(rows / 3))
  return [
    ...head,
    ...runningLines(snapshot.running, rows - recent, screen),
    ...(recent === 0 ? [] : snapshot.recent.slice(-recent).map((one) => line('  ', ...endedPieces(one)))),
  ]
}

function titlePieces({ jobId, name, startedAt, deadlineAt }: MapreduceSnapshot, now: number): Piece[] {
  const style = deadlineAt === null ? null : nearness(now - startedAt, deadlineAt - startedAt)
  return [
    ['bold', oneLine(name)],
    ` ${elapsedText(now - startedAt)}`,
    ...(deadlineAt === null ? [] : [', ', [style, `${countdown(deadlineAt - now)} left`] as const]),
    ['dim', ` (${jobId})`],
  ]
}

function phasePieces(phase: PhaseSnapshot, counts: ItemCounts, { width, now }: Screen): Piece[] {
  const { state, startedAt, endedAt, step } = phase
  const [done, of] =
    phase.phase === 'map' ? [endedCount(counts), counts.total] : [step?.index ?? 0, step?.of ?? 0]
  const share = state === 'done' ? 1 : of === 0 ? 0 : Math.min(1, done / of)
  const style = PHASE_STYLES[state]
  const took = startedAt === null ? '' : ` ${elapsedText((endedAt ?? now) - startedAt)}`
  const far = phase.phase === 'map' ? `${done}/${of}` : step ? `step ${step.index + 1}/${step.of}` : state
  const word =
    state === 'running' ? far : phase.phase === 'map' && state !== 'waiting' ? `${state} ${far}` : state
  return [
    padTo(phase.phase, 7),
    ...barPieces(share, width, style),
    [style, word],
    took,
    ...(state === 'running' && step ? stepPieces(step, now) : []),
  ]
}

const PHASE_STYLES: Record<PhaseSnapshot['state'], Style> = {
  waiting: 'gray',
  running: 'cyan',
  done: 'green',
  failed: 'red',
  none: 'gray',
}

function barPieces(share: number, width: number, style: Style): Piece[] {
  const columns = Math.min(WIDEST_BAR, width - BESIDE_BAR)
  if (columns < NARROWEST_BAR) return []
  // It is full only when everything is done.
  const full = Math.floor(share * columns)
  return ['[', [style, '#'.repeat(full)], ['dim', '.'.repeat(columns - full)], '] ']
}

function stepPieces(step: NonNullable<PhaseSnapshot['step']>, now: number): Piece[] {
  const ms = now - step.startedAt
  return [', ', limitPiece(ms, step.limitMs), ' ', ['dim', step.text]]
}

/** How many there are of each, those that there are none of left out; they add up. */
export function countPieces(counts: ItemCounts): Piece[] {
  const { total, ...each } = counts
  const shown = (Object.keys(COUNT_WORDS) as (keyof typeof COUNT_WORDS)[]).filter((key) => each[key] > 0)
  const head = `${total} ${total === 1 ? 'item' : 'items'}${shown.length > 0 ? ':' : ''}`
  return [
    head,
    ...shown.map((key, i): Piece => {
      const [word, style] = COUNT_WORDS[key]
      return [style, `${each[key]} ${word}${i < shown.length - 1 ? ',' : ''}`]
    }),
  ]
}

const COUNT_WORDS: Record<Exclude<keyof ItemCounts, 'total'>, [word: string, style: Style]> = {
  waiting: ['waiting', 'gray'],
  running: ['running', 'cyan'],
  successful: ['successful', 'green'],
  failed: ['failed', 'red'],
  timedOut: ['timed out', 'yellow'],
  skipped: ['skipped', 'gray'],
  cancelled: ['cancelled', 'magenta'],
}

export function endedCount({ total, waiting, running }: ItemCounts): number {
  return total - waiting - running
}

interface Binding {
  ms: number
  limitMs: number | null
  of: string
  /** Of the limit that is used up; -1 where there is none. */
  share: number
}

/** Those that are nearest to a limit, as many as there is room for. */
function runningLines(items: readonly RunningItem[], rows: number, screen: Screen): string[] {
  const { width, colours, now } = screen
  if (rows <= 0) return []
  const sorted = items
    .map((item) => ({ item, binding: bindingOf(item, now) }))
    .toSorted((a, b) => b.binding.share - a.binding.share || a.item.startedAt - b.item.startedAt)
  const shown = sorted.slice(0, items.length > rows ? rows - 1 : rows)
  const texts = shown.map(({ item, binding }) => ({
    time: limitText(binding.ms, binding.limitMs),
    name: cutTo(oneLine(item.name), Math.min(WIDEST_NAME, Math.floor(width / 3))),
  }))
  const timeWidth = Math.max(0, ...texts.map(({ time }) => time.length))
  const nameWidth = Math.max(0, ...texts.map(({ name }) => widthOf(name)))
  const lines = shown.map(({ item, binding }, i) => {
    const { time, name } = texts[i]!
    const pieces: Piece[] = [
      '  ',
      [nearness(binding.ms, binding.limitMs), padTo(time, timeWidth)],
      `  ${padTo(name, nameWidth)}`,
      ...(item.attempt > 1 ? [['yellow', `  attempt ${item.attempt}`] as const] : []),
      ['dim', `  ${binding.of}${item.command ? `: ${item.command.text}` : ''}`],
    ]
    return styledLine(pieces, width, colours).trimEnd()
  })
  const more = items.length - shown.length
  return more === 0 ? lines : [...lines, styledLine([['dim', `  … ${more} more run`]], width, colours)]
}

/** The limit of which most is used up. */
function bindingOf({ startedAt, agentLimitMs, command }: RunningItem, now: number): Binding {
  const agentMs = now - startedAt
  const agent = { ms: agentMs, limitMs: agentLimitMs, of: 'agent', share: shareOf(agentMs, agentLimitMs) }
  if (!command) return agent
  const ms = now - command.startedAt
  const of = `${command.type} ${command.index}`
  const share = shareOf(ms, command.limitMs)
  if (share > agent.share) return { ms, limitMs: command.limitMs, of, share }
  return { ...agent, of: agentLimitMs === null ? of : `agent, ${of}` }
}

function shareOf(ms: number, limitMs: number | null): number {
  return limitMs === null || limitMs <= 0 ? -1 : Math.max(0, ms / limitMs)
}

function limitPiece(ms: number, limitMs: number | null): Piece {
  return [nearness(ms, limitMs), limitText(ms, limitMs)]
}

function limitText(ms: number, limitMs: number | null): string {
  return `${elapsedText(ms)}${limitMs === null ? '' : ` / ${formatDuration(limitMs)}`}`
}

/** Green, yellow once half of it is used up, red near its end. */
function nearness(ms: number, limitMs: number | null): Style | null {
  const share = shareOf(ms, limitMs)
  if (share < 0) return null
  return share >= 0.8 ? 'red' : share >= 0.5 ? 'yellow' : 'green'
}

export function endedPieces({ name, status, message, ms }: EndedItem): Piece[] {
  const [word, style] = ENDED[status] ?? [status, null]
  const why = message === null ? [] : [`: ${message}`]
  return [oneLine(name), ' ', [style, word], ` after ${roughDuration(Math.max(0, ms))}`, ...why]
}

const ENDED: Record<string, [word: string, style: Style]> = {
  successful: ['successful', 'green'],
  completed: ['successful', 'green'],
  failed: ['failed', 'red'],
  timed_out: ['timed out', 'yellow'],
  skipped: ['skipped', 'gray'],
  cancelled: ['cancelled', 'magenta'],
}

/** In whole seconds, which can be read while they change. */
export function elapsedText(ms: number): string {
  return ms < 1_000 ? '0s' : formatDuration(Math.floor(ms / 1_000) * 1_000)
}

/** A tree of work as lines: for a terminal, redrawn in place; else one line for each change. */
import { isEnded } from '../core/states.ts'
import type { Colours } from './colours.ts'
import { cutTo, oneLine, widthOf } from './plain-text.ts'
import { countdown, progressText, roughDuration } from './print.ts'
import { treeLines } from './tree-text.ts'
import type { WorkNode } from './work-tree.ts'

/** Leaves of one kind below one parent that are shown one by one. */
const MOST_ALIKE = 3

interface Drawing {
  now: number
  columns: number
  rows: number
  colours: Colours
}

/** At most `rows` lines, each at most `columns` wide. */
export function drawTree(root: WorkNode, { now, columns, rows, colours }: Drawing): string[] {
  const lines = treeLines(branchOf(root))
  const shown = lines.length <= rows ? lines : lines.slice(0, Math.max(1, rows - 1))
  const drawn = shown.map((line) => colourLine(line, columns, colours))
  if (shown.length < lines.length) {
    drawn.push(colours.dim(cutTo(`… ${lines.length - shown.length} more`, columns)))
  }
  return drawn

  function branchOf(node: WorkNode): { lines: string[]; below: ReturnType<typeof branchOf>[] } {
    return { lines: [nodeText(node, now)], below: shortened(node.below).map((one) => branch(one)) }
  }
  function branch(one: WorkNode | string): ReturnType<typeof branchOf> {
    return typeof one === 'string' ? { lines: [one], below: [] } : branchOf(one)
  }
}

/** Many leaves that have nothing to say become one line. */
function shortened(nodes: readonly WorkNode[]): (WorkNode | string)[] {
  const quiet = Map.groupBy(
    nodes.filter(
      ({ status, below }) => below.length === 0 && (status === 'completed' || status === 'pending'),
    ),
    ({ label, status }) => `${label}\0${status}`,
  )
  const shown: (WorkNode | string)[] = []
  const told = new Set<string>()
  for (const node of nodes) {
    const key = `${node.label}\0${node.status}`
    const alike = node.below.length === 0 ? (quiet.get(key)?.length ?? 0) : 0
    if (alike <= MOST_ALIKE) shown.push(node)
    else if (!told.has(key)) {
      told.add(key)
      shown.push(`${oneLine(node.label)}${MARK}${node.status}${MARK} ${alike} of them`)
    }
  }
  return shown
}

/** Around the status in a line, so that it can be coloured once the line was cut. */
const MARK = '\u0001'

function nodeText(node: WorkNode, now: number): string {
  const { label, status, parked, startedAt, endedAt, progress, limit, why } = node
  const took = startedAt === null ? '' : ` ${elapsed(startedAt, endedAt, now)}`
  const left = limit && !isEnded(status) ? `, ${countdown(limit.deadlineAt - now)} left (${limit.kind})` : ''
  const done = progress && !isEnded(status) ? `, ${progressText(progress)}` : ''
  const reason = why === null ? '' : `: ${oneLine(why)}`
  const word = parked && !isEnded(status) ? `${status}, parked` : status
  return `${oneLine(label)}${MARK}${word}${MARK}${took}${left}${done}${reason}`
}

/** Of what runs, in steps that can be read while they change. */
function elapsed(startedAt: number, endedAt: number | null, now: number): string {
  if (endedAt !== null) return roughDuration(endedAt - startedAt)
  const ms = Math.max(0, now - startedAt)
  return ms < 1_000 ? `${(Math.floor(ms / 100) / 10).toFixed(1)}s` : roughDuration(ms)
}

function colourLine(line: string, columns: number, colours: Colours): string {
  const [label = '', word, rest = ''] = line.split(MARK)
  if (word === undefined) return cutTo(line, columns)
  const status = word.split(',', 1)[0]!
  const cut = cutTo(`${label} ${word}${rest}`, columns)
  const from = label.length + 1
  if (widthOf(cut) < widthOf(`${label} ${word}`)) return cut
  const to = from + word.length
  return `${cut.slice(0, from)}${colours.status(status, cut.slice(from, to))}${cut.slice(to)}`
}

/** One line for every change since the last time, and who was not there then. */
export class Changes {
  readonly #seen = new Map<string, string>()

  lines(root: WorkNode, now: number, colours: Colours): string[] {
    const lines: string[] = []
    const tell = (node: WorkNode, here: readonly string[]) => {
      const state = `${node.status}${node.parked ? ', parked' : ''}`
      const changed = this.#seen.get(node.id) !== state
      this.#seen.set(node.id, state)
      // What waits has not changed yet.
      if (!changed || state === 'pending') return
      const [, word = '', rest = ''] = nodeText(node, now).split(MARK)
      lines.push(`${here.join('/')} ${colours.status(node.status, word)}${rest}`)
    }
    const walk = (node: WorkNode, path: readonly string[]) => {
      const here = [...path, oneLine(node.label)]
      // It began before what is below it, and ends after it.
      if (!isEnded(node.status)) tell(node, here)
      for (const inner of node.below) walk(inner, here)
      if (isEnded(node.status)) tell(node, here)
    }
    walk(root, [])
    return lines
  }
}

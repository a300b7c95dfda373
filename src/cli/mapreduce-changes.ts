/**
 * What happens in a map-reduce as lines that stay: one for every phase and step that begins or ends, for every item
 * that starts or ends. Ends that were not told one by one are counted, so that nothing is left out.
 */
import type { Colours } from './colours.ts'
import type { EndedItem, MapreduceSnapshot, PhaseSnapshot } from './mapreduce-snapshot.ts'
import { countPieces, elapsedText, endedCount, endedPieces } from './mapreduce-view.ts'
import { roughDuration } from './print.ts'
import type { Piece } from './styled-line.ts'
import { styledLine } from './styled-line.ts'

export class MapreduceChanges {
  readonly #colours: Colours
  readonly #phases = new Map<string, { state: PhaseSnapshot['state']; step: number | null }>()
  /** The attempt of each item that runs. */
  #running = new Map<string, number>()
  /** The last ends, which were told. */
  #recent: readonly EndedItem[] = []
  /** How many were told in all, one by one or counted. */
  #told = 0
  #last: MapreduceSnapshot | null = null

  constructor(colours: Colours) {
    this.#colours = colours
  }

  lines(snapshot: MapreduceSnapshot, now: number): string[] {
    const line = (...pieces: Piece[]) => this.#line(snapshot, now, pieces)
    const isFirst = this.#last === null
    this.#last = snapshot
    // What ended, ended before what starts now could take its place; a phase begins before its items and ends after.
    const phases = snapshot.phases.map((phase) => ({ ...this.#changeOf(phase), phase: phase.phase }))
    return [
      ...(isFirst ? [line(['bold', snapshot.name], ' begins', ['dim', ` (${snapshot.jobId})`])] : []),
      ...phases.flatMap(({ phase, began }) => began.map((pieces) => line(`${phase} `, ...pieces))),
      ...this.#endedLines(snapshot, isFirst, line),
      ...this.#startedLines(snapshot, line),
      ...phases.flatMap(({ phase, ended }) => ended.map((pieces) => line(`${phase} `, ...pieces))),
    ]
  }

  /** Of the snapshot that was seen last. */
  countLine(now: number): string {
    const snapshot = this.#last
    if (!snapshot) return ''
    const pieces = countPieces(snapshot.counts).flatMap((piece, i): Piece[] =>
      i === 0 ? [piece] : [' ', piece],
    )
    return this.#line(snapshot, now, pieces)
  }

  #line({ startedAt }: MapreduceSnapshot, now: number, pieces: readonly Piece[]): string {
    return styledLine([['dim', `[${elapsedText(now - startedAt)}] `], ...pieces], null, this.#colours)
  }

  #changeOf({ phase, state, step, startedAt, endedAt }: PhaseSnapshot): {
    began: Piece[][]
    ended: Piece[][]
  } {
    const before = this.#phases.get(phase) ?? { state: 'waiting', step: null }
    const at = step?.index ?? null
    this.#phases.set(phase, { state, step: at })
    const isOver = state === 'done' || state === 'failed'
    const hasBegun = state === 'running' || isOver
    const wasWaiting = before.state === 'waiting' || before.state === 'none'
    const isNewStep = step !== null && state === 'running' && (wasWaiting || before.step !== at)
    const took = startedAt === null || endedAt === null ? '' : ` after ${roughDuration(endedAt - startedAt)}`
    return {
      began: [
        ...(hasBegun && wasWaiting ? [['begins']] : []),
        ...(isNewStep ? [[`step ${step.index + 1} of ${step.of}: ${step.text}`]] : []),
      ],
      ended:
        isOver && before.state !== state
          ? [[[state === 'done' ? 'green' : 'red', state] as const, took]]
          : [],
    }
  }

  #startedLines({ running }: MapreduceSnapshot, line: (...pieces: Piece[]) => string): string[] {
    const before = this.#running
    this.#running = new Map(running.map(({ itemId, attempt }) => [itemId, attempt]))
    return running
      .filter(({ itemId, attempt }) => before.get(itemId) !== attempt)
      .map(({ name, attempt }) => {
        return line(`${name} `, ['cyan', 'started'], attempt > 1 ? `, attempt ${attempt}` : '')
      })
  }

  #endedLines(
    { recent, counts }: MapreduceSnapshot,
    isFirst: boolean,
    line: (...pieces: Piece[]) => string,
  ): string[] {
    const before = new Set(this.#recent.map(keyOf))
    const fresh = recent.filter((one) => !before.has(keyOf(one)))
    this.#recent = recent
    this.#told += fresh.length
    const untold = endedCount(counts) - this.#told
    if (untold > 0) this.#told += untold
    return [
      ...(untold > 0 ? [line(isFirst ? `${untold} ended before` : `${untold} more ended`)] : []),
      ...fresh.map((one) => line(...endedPieces(one))),
    ]
  }
}

function keyOf({ itemId, status, ms }: EndedItem): string {
  return `${itemId}\0${status}\0${ms}`
}

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
  /** The end that was told last, and how many there had been then. */
  #lastEnd: EndedItem | null = null
  #ended = 0
  #last: MapreduceSnapshot | null = null

  constructor(colours: Colours) {
    this.#colours = colours
  }

  lines(snapshot: MapreduceSnapshot, now: number): string[] {
    const line = (...pieces: Piece[]) => this.#line(snapshot, now, pieces)
    const isFirst = this.#last === null
    this.#last = snapshot
    // A phase begins before its items and ends after them; what ended made room for what starts.
    const items = [...this.#endedLines(snapshot, isFirst, line), ...this.#startedLines(snapshot, line)]
    const phases = snapshot.phases.flatMap((phase) => {
      const { began, ended } = this.#changeOf(phase)
      const told = (changes: Piece[][]) => changes.map((pieces) => line(`${phase.phase} `, ...pieces))
      return [...told(began), ...(phase.phase === 'map' ? items.splice(0) : []), ...told(ended)]
    })
    const begins = line(['bold', snapshot.name], ' begins', ['dim', ` (${snapshot.jobId})`])
    return [...(isFirst ? [begins] : []), ...phases, ...items]
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
    const at = this.#lastEnd === null ? -1 : placeOf(this.#lastEnd, recent)
    const fresh = recent.slice(at + 1)
    // With the last one still in the list, all that came after it are in it too.
    const untold = at === -1 ? endedCount(counts) - this.#ended - fresh.length : 0
    this.#lastEnd = recent.at(-1) ?? this.#lastEnd
    this.#ended = endedCount(counts)
    return [
      ...(untold > 0 ? [line(isFirst ? `${untold} ended before` : `${untold} more ended`)] : []),
      ...fresh.map((one) => line(...endedPieces(one))),
    ]
  }
}

/** An item may end twice in the same way, so the same object counts first. */
function placeOf(end: EndedItem, recent: readonly EndedItem[]): number {
  const at = recent.lastIndexOf(end)
  if (at !== -1) return at
  const { itemId, status, ms } = end
  return recent.findLastIndex((one) => one.itemId === itemId && one.status === status && one.ms === ms)
}

/** What is wrong with a definition, and where. All problems are gathered and told together. */
import { CurfewError } from '../core/errors.ts'

export interface Problem {
  severity: 'error' | 'warning'
  /** Stable: `unknown_key`, `unknown_node`, … */
  code: string
  message: string
  /** What to write instead. */
  suggestion: string | null
  /** Of a definition in a file. Lines and columns count from 1. */
  file: string | null
  line: number | null
  column: number | null
  /** Where in the definition: `nodes[2].timeout_ms`. */
  path: string
}

/** A definition that cannot run. `problems` holds all of them, warnings too. */
export class DefinitionError extends CurfewError {
  readonly problems: readonly Problem[]

  constructor(what: string, problems: readonly Problem[]) {
    const errors = problems.filter(({ severity }) => severity === 'error')
    const count = errors.length === 1 ? 'a problem' : `${errors.length} problems`
    super('invalid_definition', [`${what} has ${count}:`, ...errors.map(formatProblem)].join('\n'), {
      fields: { problems },
    })
    this.problems = problems
  }
}

/** `research.yml:12:5: error: nodes[2]: there is no action 'fech'`, the suggestion on a line of its own. */
export function formatProblem(problem: Problem): string {
  const { file, line, column, path, severity, message, suggestion } = problem
  const place = [file, line, column].filter((part) => part !== null).join(':')
  const where = path === '' ? message : `${path}: ${message}`
  return `${place === '' ? '' : `${place}: `}${severity}: ${where}${suggestion === null ? '' : `\n  ${suggestion}`}`
}

/** In the order of the text. Without lines, in the order in which they were found. */
export function byPlace(problems: readonly Problem[]): Problem[] {
  return problems.toSorted((a, b) => (a.line ?? 0) - (b.line ?? 0) || (a.column ?? 0) - (b.column ?? 0))
}

export function hasErrors(problems: readonly Problem[]): boolean {
  return problems.some(({ severity }) => severity === 'error')
}

/** The name that was probably meant: few letters away, and nearer than to any other word. */
export function nearest(name: string, names: Iterable<string>): string | null {
  let best: string | null = null
  let bestDistance = Math.min(3, Math.max(1, Math.floor(name.length / 3))) + 1
  for (const candidate of names) {
    if (Math.abs(candidate.length - name.length) >= bestDistance) continue
    const distance =
      candidate.toLowerCase() === name.toLowerCase() ? 0 : editDistance(name, candidate, bestDistance)
    if (distance < bestDistance) [best, bestDistance] = [candidate, distance]
  }
  return best
}

export function didYouMean(name: string, names: Iterable<string>): string | null {
  const meant = nearest(name.slice(0, 200), names)
  return meant === null ? null : `Did you mean '${meant}'?`
}

/** Letters to add, drop, change or swap with their neighbour; `atMost` or more is not counted out. */
function editDistance(a: string, b: string, atMost: number): number {
  let before: number[] = []
  let row = Array.from({ length: b.length + 1 }, (_, j) => j)
  for (let i = 1; i <= a.length; i++) {
    const next = [i]
    for (let j = 1; j <= b.length; j++) {
      const same = a[i - 1] === b[j - 1]
      let cost = Math.min(row[j]! + 1, next[j - 1]! + 1, row[j - 1]! + (same ? 0 : 1))
      if (i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]) {
        cost = Math.min(cost, before[j - 2]! + 1)
      }
      next.push(cost)
    }
    if (Math.min(...next) >= atMost) return atMost
    ;[before, row] = [row, next]
  }
  return row[b.length]!
}

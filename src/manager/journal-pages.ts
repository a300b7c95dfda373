/** The journal of an agent, page by page, for a worker that does not have the run in memory. */
import type { JournalCursor, JournalPage, JournalResult, JournalStep } from '../core/agent-journal.ts'
import { MAX_JOURNAL_BYTES, MAX_JOURNAL_PAGE } from '../core/limits.ts'
import { childResult, childStep, journalled } from '../engine/agent-results.ts'
import type { Work } from '../store/statement.ts'
import { run } from '../store/statement.ts'
import type { Statements } from '../store/statements.ts'

export function* journalPage(
  { agents }: Statements,
  agentId: string,
  { part, after }: JournalCursor,
): Work<JournalPage> {
  const limit = MAX_JOURNAL_PAGE
  switch (part) {
    case 'steps': {
      const [agent] = after < 0 ? yield* run(agents.input(agentId)) : []
      const { rows, more } = fitting(yield* run(agents.journal(agentId, 0, after, limit)))
      const next = more ? { part, after: rows.at(-1)?.no ?? 0 } : ({ part: 'open', after: -1 } as const)
      return {
        input: agent?.input ?? null,
        steps: rows.flatMap((row) => journalled<JournalStep>(row)),
        results: [],
        next,
      }
    }
    case 'open': {
      const { rows, more } = fitting(yield* run(agents.unendedChildren(agentId, after, limit)))
      const next = more ? { part, after: rows.at(-1)?.step ?? 0 } : ({ part: 'work', after: 0 } as const)
      return { input: null, steps: rows.map(childStep), results: [], next }
    }
    case 'work': {
      const { rows, more } = fitting(yield* run(agents.endedChildren(agentId, after, limit)))
      const last = rows.at(-1)?.resultSeq ?? 0
      const next = more ? { part, after: last } : ({ part: 'results', after: 0 } as const)
      return { input: null, steps: rows.map(childStep), results: rows.map(childResult), next }
    }
    case 'results': {
      const { rows, more } = fitting(yield* run(agents.journal(agentId, 1, after, limit)))
      const next = more ? { part, after: rows.at(-1)?.no ?? 0 } : null
      return { input: null, steps: [], results: rows.flatMap((row) => journalled<JournalResult>(row)), next }
    }
  }
}

/** As many of a page's records as one answer carries; whether others may follow. */
function fitting<Row extends object>(page: Row[]): { rows: Row[]; more: boolean } {
  let bytes = 0
  for (const [i, row] of page.entries()) {
    for (const value of Object.values(row)) if (typeof value === 'string') bytes += value.length
    if (bytes > MAX_JOURNAL_BYTES && i > 0) return { rows: page.slice(0, i), more: true }
  }
  return { rows: page, more: page.length === MAX_JOURNAL_PAGE }
}

/** The journal of an agent, page by page, for a worker that does not have the run in memory. */
import type { JournalCursor, JournalPage, JournalResult, JournalStep } from '../core/agent-journal.ts'
import { MAX_JOURNAL_PAGE } from '../core/limits.ts'
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
      const rows = yield* run(agents.journal(agentId, 0, after, limit))
      const next = nextOf(rows.length, { part, after: rows.at(-1)?.no ?? 0 }, { part: 'open', after: -1 })
      return {
        input: agent?.input ?? null,
        steps: rows.flatMap((row) => journalled<JournalStep>(row)),
        results: [],
        next,
      }
    }
    case 'open': {
      const rows = yield* run(agents.unendedChildren(agentId, after, limit))
      const next = nextOf(rows.length, { part, after: rows.at(-1)?.step ?? 0 }, { part: 'work', after: 0 })
      return { input: null, steps: rows.map(childStep), results: [], next }
    }
    case 'work': {
      const rows = yield* run(agents.endedChildren(agentId, after, limit))
      const last = rows.at(-1)?.resultSeq ?? 0
      const next = nextOf(rows.length, { part, after: last }, { part: 'results', after: 0 })
      return { input: null, steps: rows.map(childStep), results: rows.map(childResult), next }
    }
    case 'results': {
      const rows = yield* run(agents.journal(agentId, 1, after, limit))
      const next = nextOf(rows.length, { part, after: rows.at(-1)?.no ?? 0 }, null)
      return { input: null, steps: [], results: rows.flatMap((row) => journalled<JournalResult>(row)), next }
    }
  }
}

function nextOf(found: number, more: JournalCursor, then: JournalCursor | null): JournalCursor | null {
  return found < MAX_JOURNAL_PAGE ? then : more
}

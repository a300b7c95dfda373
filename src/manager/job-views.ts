/** Jobs as they are now: rebuilt from what is on record, by telling the machine again what has happened. */
import type { JournalResult } from '../core/agent-journal.ts'
import type { Failure } from '../core/failure.ts'
import { decodeJson } from '../core/json.ts'
import { MAX_JOURNAL_PAGE } from '../core/limits.ts'
import type { TaskStatus } from '../core/states.ts'
import { outcomeError } from '../core/task-errors.ts'
import { childResult, journalled } from '../engine/agent-results.ts'
import { decodeWaits } from '../engine/agent-waits.ts'
import type { Member } from '../graph/job-run.ts'
import { JobRun } from '../graph/job-run.ts'
import type { JobStart } from '../graph/start-input.ts'
import { badEnd } from '../graph/work-end.ts'
import type { Work } from '../store/statement.ts'
import { run } from '../store/statement.ts'
import type { Statements } from '../store/statements.ts'
import type { TaskRow } from '../store/task-row.ts'
import type { MemberView } from '../wire/run-view.ts'

/** What the code of a job is told of a request to cancel one of its workflows. */
export interface MemberCancel {
  id: string
  dependents: boolean
}

export function* memberViews(
  statements: Statements,
  row: TaskRow,
  { outputs }: { outputs: boolean },
): Work<MemberView[]> {
  const { job, runs } = yield* readJob(statements, row, { outputs })
  const cancelled = new Set(decodeWaits(row.waits).cancelled)
  const views: MemberView[] = []
  for (const member of job.members.values()) {
    views.push(memberView(member, runs.get(member.model.id), { row, cancelled }))
  }
  return views
}

/** What a request to cancel one of its workflows is about; null when there is no such workflow. */
export function* memberCancel(
  statements: Statements,
  row: TaskRow,
  id: string,
): Work<{ status: TaskStatus; dependents: readonly string[] } | null> {
  const { job, runs } = yield* readJob(statements, row, { outputs: false })
  const member = job.members.get(id)
  if (!member) return null
  const cancelled = new Set(decodeWaits(row.waits).cancelled)
  const { status } = memberView(member, runs.get(id), { row, cancelled })
  return { status, dependents: job.dependentsOf(id).map(({ model }) => model.id) }
}

function memberView(
  member: Member,
  child: TaskRow | undefined,
  of: { row: TaskRow; cancelled: ReadonlySet<string> },
): MemberView {
  const { id, kind, name, dependsOn } = member.model
  const base = { id, kind, name, dependsOn }
  if (!child) {
    const failure = whyNot(member, of.row.status, of.cancelled.has(id))
    const status = failure ? 'cancelled' : 'pending'
    return { ...base, status, runId: null, output: null, failure, timeoutKind: null }
  }
  const { id: runId, status, timeoutKind } = child
  const output = child.output === null ? null : decodeJson(child.output)
  const failure = child.failure === null ? null : (decodeJson(child.failure) as Failure)
  return { ...base, status, runId, output, failure, timeoutKind }
}

/** Why a workflow without a run will never have one; null while it may. */
function whyNot({ status, failure }: Member, jobStatus: TaskStatus, cancelled: boolean): Failure | null {
  if (status === 'cancelled') return failure
  if (cancelled) return { code: 'cancelled', message: 'it was cancelled', retryable: false }
  if (jobStatus === 'pending' || jobStatus === 'running') return null
  const word = jobStatus === 'timed_out' ? 'timed out' : jobStatus === 'failed' ? 'failed' : 'was cancelled'
  return { code: 'job_ended', message: `the job ${word} before it could start`, retryable: false }
}

function* readJob(
  { agents }: Statements,
  { id }: TaskRow,
  { outputs }: { outputs: boolean },
): Work<{ job: JobRun; runs: Map<string | null, TaskRow> }> {
  const [stored] = yield* run(agents.input(id))
  const rows = yield* run(agents.childrenOf(id, { outputs }))
  const results = rows.filter(({ resultSeq }) => resultSeq !== null).map(childResult)
  for (let after = 0, more = true; more; ) {
    const page = yield* run(agents.journal(id, 1, after, MAX_JOURNAL_PAGE))
    results.push(...page.flatMap((one) => journalled<JournalResult>(one)))
    more = page.length === MAX_JOURNAL_PAGE
    after = page.at(-1)?.no ?? 0
  }
  results.sort((a, b) => a.seq - b.seq)
  const memberOf = new Map(rows.map(({ step, title }) => [step, title ?? '']))
  const { model } = decodeJson(stored?.input ?? '') as JobStart
  return { job: rebuildJob(model, results, memberOf), runs: new Map(rows.map((one) => [one.title, one])) }
}

/** `memberOf`: which workflow the work of a step is. Outputs are left out. */
function rebuildJob(
  model: JobStart['model'],
  results: readonly JournalResult[],
  memberOf: ReadonlyMap<number | null, string>,
): JobRun {
  const job = new JobRun(model)
  job.start()
  for (const result of results) {
    if (result.type === 'stop') break // its code is told of nothing any more
    if (result.type === 'work') {
      const { outcome } = result
      const end =
        outcome.status === 'completed'
          ? ({ status: 'completed', output: null } as const)
          : badEnd(outcomeError(outcome.task))
      job.happen({ type: 'ended', id: memberOf.get(result.step) ?? '', end })
    } else if (result.type === 'signal') {
      job.happen({ type: 'cancel', ...(decodeJson(result.value) as MemberCancel) })
    }
  }
  return job
}

/** Runs as they are now: rebuilt from their journals, by telling the machine again what has happened. */
import type { JournalResult, WorkOutcome } from '../core/agent-journal.ts'
import { JOURNAL_START } from '../core/agent-journal.ts'
import { decodeJson } from '../core/json.ts'
import { isEnded } from '../core/states.ts'
import { outcomeError } from '../core/task-errors.ts'
import type { WorkflowModel } from '../definitions/workflow-model.ts'
import { decodeWaits } from '../engine/agent-waits.ts'
import { readablePolicyOf } from '../engine/inherited-policy.ts'
import { activeLimits } from '../engine/task-limits.ts'
import { GraphDriver } from '../graph/graph-driver.ts'
import { GraphRun } from '../graph/graph-run.ts'
import type { Token } from '../graph/graph-scope.ts'
import type { GraphEvent, WorkEnd } from '../graph/graph-types.ts'
import type { WorkflowStart } from '../graph/start-input.ts'
import { planOf } from '../graph/start-input.ts'
import { nodeEnd } from '../graph/work-end.ts'
import type { Work } from '../store/statement.ts'
import { run } from '../store/statement.ts'
import type { Statements } from '../store/statements.ts'
import type { TaskRow } from '../store/task-row.ts'
import type { JoinView, RunView, TokenView } from '../wire/run-view.ts'
import { journalPage } from './journal-pages.ts'

/** Everything on record of an agent. */
export function* readJournal(
  statements: Statements,
  agentId: string,
): Work<{ input: string; results: JournalResult[]; stepIds: Map<number, string> }> {
  let input = 'null'
  const results: JournalResult[] = []
  const stepIds = new Map<number, string>()
  let cursor: Parameters<typeof journalPage>[2] | null = JOURNAL_START
  while (cursor) {
    const page: Awaited<ReturnType<typeof journalPage> extends Work<infer P> ? P : never> =
      yield* journalPage(statements, agentId, cursor)
    input = page.input ?? input
    results.push(...page.results)
    for (const { no, id } of page.steps) if (id !== undefined) stepIds.set(no, id)
    cursor = page.next
  }
  return { input, results: results.sort((a, b) => a.seq - b.seq), stepIds }
}

export interface RebuiltRun {
  graph: GraphRun
  /** The step of the last work of each token. */
  steps: Map<number, number>
  /** The step of each join's timer. */
  timers: Map<number, number>
  /** What it records. */
  events: GraphEvent[]
}

/** Counts steps as the agent that runs it does. */
export function rebuildRun(
  start: { model: WorkflowModel; hash: string; input: unknown },
  results: readonly JournalResult[],
): RebuiltRun {
  const graph = new GraphRun(planOf(start.hash, start.model), start.input)
  const steps = new Map<number, number>()
  const timers = new Map<number, number>()
  const events: GraphEvent[] = []
  const tokenOf = new Map<number, number>()
  const timerOf = new Map<number, number>()
  let next = 0
  const driver = new GraphDriver(graph, {
    run: ({ token }) => {
      tokenOf.set(next, token)
      steps.set(token, next++)
    },
    timer: (timer) => {
      timerOf.set(next, timer)
      timers.set(timer, next++)
    },
    clear: () => void next++,
    stop: () => void next++,
    record: (event) => {
      events.push(event)
      next++
    },
  })
  driver.start()
  for (const result of results) {
    if (result.type === 'stop') {
      const { code, timeoutMs } = result.reason
      const reason = code === 'timed_out' ? 'timed_out' : 'cancelled'
      driver.happen({ type: 'stopped', reason, timeoutMs })
    } else if (result.type === 'time') {
      const timer = timerOf.get(result.step)
      if (timer !== undefined) driver.happen({ type: 'time', timer })
    } else if (result.type === 'work') {
      const token = tokenOf.get(result.step)
      if (token !== undefined && steps.get(token) === result.step) {
        driver.happen({ type: 'ended', token, end: workEnd(result.outcome) })
      }
    }
  }
  return { graph, steps, timers, events }
}

function workEnd(outcome: WorkOutcome): WorkEnd {
  if (outcome.status === 'completed') return { status: 'completed', output: decodeJson(outcome.output) }
  return nodeEnd(outcomeError(outcome.task))
}

export function* runView(statements: Statements, row: TaskRow): Work<RunView> {
  const { input, results, stepIds } = yield* readJournal(statements, row.id)
  const start = decodeJson(input) as WorkflowStart
  const { id, status } = row
  const about = { id, workflow: start.model.name, hash: start.hash, status }
  // It has not begun, or was stopped before.
  if (row.attempt === 0) return { ...about, state: {}, tokens: [], joins: [] }
  const { graph, steps, timers } = rebuildRun(start, results)
  // One whose code was not told any more.
  if (isEnded(status)) {
    graph.happen({ type: 'stopped', reason: row.timeoutKind === null ? 'cancelled' : 'timed_out' })
  }
  const ids = [...steps.values()].flatMap((step) => stepIds.get(step) ?? [])
  const rows = new Map((yield* run(statements.readTasks(ids))).map((one) => [one.id, one]))
  const due = new Map(decodeWaits(row.waits).timers)
  const tokens = graph.tokens.map((token): TokenView => {
    const step = steps.get(token.no)
    const workId = (step === undefined ? undefined : stepIds.get(step)) ?? null
    const work = workId === null ? undefined : rows.get(workId)
    const executing = token.status === 'dispatched' && work?.status === 'running'
    return {
      id: token.no,
      node: token.node.id,
      status: executing ? 'executing' : token.status,
      retries: token.retries,
      branches: token.scopes.map(({ scope, branch }) => ({ group: scope.group, index: branch.index })),
      workId,
      deadlineAt: deadlineOf(token, work, row),
      timeoutType: token.status === 'timed_out' ? token.timeoutType : null,
    }
  })
  const joins = graph.scopes.flatMap((scope) =>
    scope.joins.map((join): JoinView => {
      const step = join.timeoutTimer === null ? undefined : timers.get(join.timeoutTimer)
      return {
        transition: join.transition.id,
        group: scope.group,
        expected: scope.total,
        arrived: join.arrived.size,
        fired: join.fired,
        timeoutMs: join.timeoutMs,
        deadlineAt: (step === undefined ? undefined : due.get(step)) ?? null,
      }
    }),
  )
  return { ...about, state: graph.values.state, tokens, joins }
}

function deadlineOf(token: Token, work: TaskRow | undefined, run: TaskRow): number | null {
  if (token.status === 'timed_out' && token.timeoutType === 'workflow') return run.deadlineAt
  if (!work) return null
  if (token.status === 'timed_out' && token.timeoutType === 'execution') {
    if (work.timeoutKind === 'queue') return work.queueDeadlineAt
    return work.timeoutKind === 'execution' ? work.attemptDeadlineAt : work.deadlineAt
  }
  const limits = activeLimits(work, readablePolicyOf(work))
  const latest = limits.filter(({ kind }) => kind !== 'heartbeat' && kind !== 'stuck')
  return latest.length === 0 ? null : Math.min(...latest.map(({ deadlineAt }) => deadlineAt))
}

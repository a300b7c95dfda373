// A run is what its journal says: what happened to it, told again to the decision functions, gives the same events,
// the same states and the same end. Every scenario of a run ends with this.

import { expect } from 'vitest'
import { decodeJson } from '../../src/core/json.ts'
import type { WorkflowHandle } from '../../src/curfew.ts'
import type { GraphEnd, GraphEvent } from '../../src/graph/graph-types.ts'
import type { WorkflowStart } from '../../src/graph/start-input.ts'
import { readJournal, rebuildRun } from '../../src/manager/run-views.ts'
import { openStore } from '../../src/store/open-store.ts'
import { run } from '../../src/store/statement.ts'
import type { TaskRow } from '../../src/store/task-row.ts'
import type { World } from './world.ts'

/** What a machine records; everything else among the events of a run is the agent's. */
const RECORDED: Record<GraphEvent['type'], true> = {
  token_timed_out: true,
  token_failed: true,
  join_fired: true,
  join_failed: true,
  join_warning: true,
}

/** A run in memory is not on record anywhere else: open those with `residents: { count: 0 }`, see `residence.ts`. */
export async function expectReplay(world: World, ...handles: WorkflowHandle[]): Promise<void> {
  if (world.kind === 'memory') return
  const before = await Promise.all(
    handles.map(async (handle) => ({ view: await handle.run(), events: await handle.events() })),
  )
  await world.crash()
  for (const { view, events } of before) {
    const { row, rebuilt, titles } = await rebuild(world, view.id)
    const recorded = events.filter(({ type }) => type in RECORDED)
    expect(rebuilt.events).toEqual(recorded.map(({ taskId, seq, at, ...event }) => event))
    expect(rebuilt.graph.tokens.map(({ node, status }) => [node.id, status])).toEqual(
      view.tokens.map(({ node, status }) => [node, status === 'executing' ? 'dispatched' : status]),
    )
    // Steps are counted alike: each token has the work of its node.
    expect(titles).toEqual(view.tokens.flatMap(({ node, workId }) => (workId === null ? [] : [node])))
    expect(endOf(rebuilt.graph.end)).toEqual(told(row))
  }
  const reopened = await world.open()
  for (const { view } of before) expect(await reopened.workflow(view.id).run()).toEqual(view)
}

async function rebuild(world: World, id: string) {
  const store = await openStore(world.store, world.clock, world.logger, 'n_replay')
  try {
    return await store.read(function* () {
      const { statements } = store
      const { input, results, stepIds } = yield* readJournal(statements, id)
      const rebuilt = rebuildRun(decodeJson(input) as WorkflowStart, results)
      const ids = [...rebuilt.steps.values()].map((step) => stepIds.get(step) ?? '')
      const rows = yield* run(statements.readTasks([id, ...ids]))
      const byId = new Map(rows.map((row) => [row.id, row]))
      return { row: byId.get(id) as TaskRow, rebuilt, titles: ids.map((one) => byId.get(one)?.title) }
    })
  } finally {
    await store.close()
  }
}

function endOf(end: GraphEnd | null): unknown {
  if (end?.status === 'completed') return { output: end.output }
  return end?.status === 'failed' ? { failure: end.failure.code } : end?.status
}

/** What the machine that ran has brought the run to. */
function told({ status, output, failure, timeoutKind }: TaskRow): unknown {
  if (status === 'completed') return { output: decodeJson(output ?? 'null') }
  if (status === 'running') return undefined
  // One that fails on its own timeout was stopped all the same.
  if (failure === null || timeoutKind !== null) return 'stopped'
  return { failure: (decodeJson(failure) as { code: string }).code }
}

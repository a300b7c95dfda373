// Branches that only have to be counted, in a run that forgets them. That it asks for the same as one that does not is
// a property in graph-properties.test.ts; here is what random graphs seldom come to.
import { expect, test } from 'vitest'
import { loadMapreduce } from '../definitions/mapreduce.ts'
import { shapeOf } from '../definitions/mapreduce-outline.ts'
import type { WorkflowModel } from '../definitions/workflow-model.ts'
import { planWorkflow } from '../definitions/workflow-plan.ts'
import { GraphHistory } from './fixtures/graph-history.ts'
import { planOf } from './fixtures/graph-machine.ts'
import { GraphRun } from './graph-run.ts'
import type { GraphHappening } from './graph-types.ts'
import { mapreduceGraph } from './mapreduce-graph.ts'

const failure = { code: 'broken', message: 'it broke', retryable: false }
const completed = (token: number, output: unknown = null): GraphHappening => ({
  ...{ type: 'ended', token, end: { status: 'completed', output } },
})
const timedOut = (token: number): GraphHappening => ({
  ...{ type: 'ended', token, end: { status: 'timed_out', failure, timeoutKind: 'execution' } },
})
const stopped: GraphHappening = { type: 'stopped', reason: 'timed_out' }

/** Told the same as one that forgets nothing, which is answered. */
function told(model: WorkflowModel, happenings: readonly GraphHappening[]) {
  const [forgetful, other] = [true, false].map((forgets) => {
    const history = new GraphHistory(planWorkflow(model), null, { forgets })
    for (const happening of happenings) history.happen(happening)
    expect(history.problems).toEqual([])
    return history
  }) as [GraphHistory, GraphHistory]
  expect(forgetful.commands).toEqual(other.commands)
  expect(forgetful.run.end).toEqual(other.run.end)
  return forgetful
}

const { model: mapreduce } = loadMapreduce(`
name: each
mode: mapreduce
map:
  input: { items: [1] }
  max_parallel: 2
  agent_template:
    - shell: "true"
`)

test('of ten thousand items that have ended one branch, one token and one arrival are in memory', () => {
  const ids = Array.from({ length: 10_000 }, (_, i) => `item-${i}`)
  const run = new GraphRun(planWorkflow(mapreduceGraph(shapeOf(mapreduce))), null, { forgets: true })
  run.start()
  run.happen(completed(0, { ids }))
  for (const i of ids.slice(1).keys()) run.happen(completed(i + 1, { stop: null }))
  const [scope] = run.scopes
  const arrived = new Set(scope?.joins[0]?.arrived.values())
  expect([new Set(run.tokens).size, new Set(scope?.branches).size, arrived.size]).toEqual([3, 2, 1])
})

test('what is told of a token when the run is stopped is told of each that waits, with its own attempt', () => {
  const graph = mapreduceGraph(shapeOf(mapreduce))
  const nodes = graph.nodes.map((node) => ({ ...node, onTimeout: 'retry' as const }))
  const ids = ['item-0', 'item-1', 'item-2', 'item-3']
  const done = { stop: null }
  const history = [completed(0, { ids }), completed(1, done), timedOut(2), completed(2, done), stopped]
  const { commands } = told({ ...graph, nodes }, history)
  const events = commands.at(-1)?.flatMap((command) => (command.type === 'record' ? command.event : []))
  expect(events).toMatchObject(
    [1, 2, 3, 4].map((tokenId) => ({
      ...{ type: 'token_timed_out', tokenId, nodeId: 'item', timeoutType: 'workflow' },
      attempt: tokenId === 2 ? 2 : 1,
    })),
  )
})

test('nothing is told of those whose fan-out was given up before', () => {
  const plan = planOf(
    ['start', 'open', 'read!', 'meet', 'end!'],
    `{ id: outer, from: start, to: open, spawn_count: 2 }
     { id: inner, from: open, to: read, spawn_count: 2 }
     { id: met, from: read, to: meet, synchronization: { strategy: all, sibling_group: inner, timeout: null } }
     { id: joined, from: meet, to: end, synchronization: { strategy: all, sibling_group: outer, on_branch_failure: settle } }`,
  )
  const transitions = plan.model.transitions.map((transition) =>
    transition.id === 'met' && transition.synchronization
      ? { ...transition, synchronization: { ...transition.synchronization, collects: false } }
      : transition,
  )
  const failed: GraphHappening = {
    ...{ type: 'ended', token: 4, end: { status: 'failed', failure, timeoutKind: null } },
  }
  const { commands } = told({ ...plan.model, transitions }, [completed(3), failed, stopped])
  expect(commands.at(-1)).toHaveLength(2)
})

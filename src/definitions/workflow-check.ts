/** What a graph means, checked before anything runs: references, reachability, joins, cycles. All problems at once. */
import { isDeepStrictEqual } from 'node:util'
import type { Field } from './definition-field.ts'
import type { Places } from './places.ts'
import { didYouMean } from './problem.ts'
import { checkExpressions } from './workflow-expressions.ts'
import { checkLimits } from './workflow-limits-check.ts'
import type { SynchronizationModel, TransitionModel, WorkflowModel } from './workflow-model.ts'
import type { Registry } from './workflow-names.ts'
import type { WorkflowShape } from './workflow-shape.ts'
import { branchCount, findCycle, workflowShape } from './workflow-shape.ts'

/**
 * Fills in `start` where it can be told, and adds every problem to the source of the places. `known`: definitions
 * whose own limits are looked at.
 */
export function checkWorkflow(model: WorkflowModel, places: Places, known: Registry): void {
  if (model.nodes.length === 0) {
    const field = places.root.at('nodes')
    const isEmpty = !Array.isArray(field.value) || field.value.length === 0
    if (isEmpty) field.problem('no_nodes', 'a workflow needs at least one node')
    return
  }
  checkIds(model, places)
  checkEnds(model, places)
  findStart(model, places)
  const shape = workflowShape(model)
  if (!shape.complete) {
    places.root.problem('too_tangled', 'fan-outs and joins can be entered in too many ways to be checked', {
      suggestion: 'Close each fan-out with a join before the next one opens.',
    })
  }
  checkReached(model, shape, places)
  const groups = new Set(model.transitions.flatMap(({ group }) => group ?? []))
  for (const transition of model.transitions) checkTransition(transition, shape, groups, places)
  checkGroups(shape, places)
  checkSharedJoins(model, places)
  checkCycles(model, shape, places)
  checkExpressions(model, shape, places)
  checkLimits(model, shape, places, known)
}

function checkIds(model: WorkflowModel, places: Places): void {
  const nodes = new Map<string, Field>()
  for (const node of model.nodes) duplicate(nodes, node.id, places.of(node), 'node')
  const transitions = new Map<string, Field>()
  for (const transition of model.transitions) {
    duplicate(transitions, transition.id, places.of(transition), 'transition')
  }
  const declared = Object.keys(model.actions).filter((id) => places.of(model.actions[id]!) !== places.root)
  const written = Object(places.root.at('actions').value) as object // also those that could not be read
  for (const node of model.nodes) {
    if (node.actionId === null || Object.hasOwn(written, node.actionId)) continue
    // It may be a registered task; but one letter beside a declared action it hardly is.
    const suggestion = didYouMean(node.actionId, declared)
    if (!suggestion) continue
    const message = `'${node.actionId}' is no action here, so it is taken for a registered task`
    places.of(node).at('actionId').warning('unknown_action', message, { suggestion })
  }
  const used = new Set(model.nodes.map(({ actionId }) => actionId))
  for (const id of declared) {
    if (!used.has(id))
      places.of(model.actions[id]!).warning('unused_action', 'no node uses this action', { atKey: true })
  }
}

function duplicate(seen: Map<string, Field>, id: string, field: Field, what: string): void {
  const first = seen.get(id)
  if (first) field.at('id').problem('duplicate_id', `there is another ${what} '${id}', at ${first.path}`)
  else seen.set(id, field)
}

function checkEnds(model: WorkflowModel, places: Places): void {
  const ids = new Set(model.nodes.map(({ id }) => id))
  for (const transition of model.transitions) {
    for (const end of ['from', 'to'] as const) {
      if (ids.has(transition[end])) continue
      const suggestion = didYouMean(transition[end], ids)
      places
        .of(transition)
        .at(end)
        .problem('unknown_node', `there is no node '${transition[end]}'`, { suggestion })
    }
  }
}

function findStart(model: WorkflowModel, places: Places): void {
  const ids = model.nodes.map(({ id }) => id)
  if (model.start !== '') {
    if (ids.includes(model.start)) return
    const suggestion = didYouMean(model.start, ids)
    places.root.at('start').problem('unknown_node', `there is no node '${model.start}'`, { suggestion })
    return
  }
  const entered = new Set(model.transitions.filter(({ from, to }) => from !== to).map(({ to }) => to))
  const starts = [...new Set(ids)].filter((id) => !entered.has(id))
  const [start] = starts
  if (start !== undefined && starts.length === 1) {
    model.start = start
    return
  }
  const nodes = places.root.at('nodes')
  const suggestion = "Name it with 'start'."
  if (start === undefined) {
    nodes.problem('no_start', 'no node is the first: every node has a transition to it', { suggestion })
    model.start = ids[0]!
    return
  }
  const named = starts.slice(0, 5).map((id) => `'${id}'`)
  const message = `${starts.length} nodes have no transition to them: ${named.join(', ')}${starts.length > 5 ? ', …' : ''}`
  nodes.problem('several_starts', message, {
    suggestion: `${suggestion} The others need a transition to them.`,
  })
  model.start = start
}

function checkReached(model: WorkflowModel, shape: WorkflowShape, places: Places): void {
  if (!shape.nodes.has(model.start) || !shape.complete) return
  const told = places.root.source.problems.some(({ code }) => code === 'several_starts')
  if (told) return
  for (const node of model.nodes) {
    if (shape.stacks.has(node.id)) continue
    const message = `node '${node.id}' cannot be reached from '${model.start}'`
    places
      .of(node)
      .problem('unreachable_node', message, { suggestion: 'Add a transition to it, or take it out.' })
  }
}

function checkTransition(
  transition: TransitionModel,
  shape: WorkflowShape,
  groups: ReadonlySet<string>,
  places: Places,
): void {
  const field = places.of(transition)
  if (shape.tooDeep.has(transition)) field.problem('too_deep', 'fan-outs are nested too deeply here')
  if (shape.recursive.has(transition)) {
    const message = `'${transition.group}' can open again inside its own branches`
    const suggestion = 'Join its branches before the cycle goes back, or limit the loop.'
    field.warning('recursive_fan_out', message, { suggestion })
  }
  const { synchronization } = transition
  if (!synchronization) return
  const inner = field.at('synchronization')
  const opening = shape.groups.get(synchronization.siblingGroup)
  if (!opening) {
    // One that leads to or from an unknown node was told already.
    if (groups.has(synchronization.siblingGroup)) return
    const message = `no transition fans out under the name '${synchronization.siblingGroup}'`
    const suggestion =
      didYouMean(synchronization.siblingGroup, groups) ??
      'It is the id of a transition with foreach or spawn_count, or its sibling_group.'
    inner.at('siblingGroup').problem('unknown_sibling_group', message, { suggestion })
    return
  }
  checkQuorum(synchronization, opening, inner)
  if (shape.crossed.has(transition)) {
    const message = `branches of '${synchronization.siblingGroup}' come here inside '${shape.crossed.get(transition)}', which was not joined`
    const suggestion = `Join '${shape.crossed.get(transition)}' first: such tokens pass through and are not counted.`
    inner.problem('crossed_join', message, {
      suggestion,
      severity: shape.joins.has(transition) ? 'warning' : 'error',
    })
  } else if (shape.complete && !shape.joins.has(transition) && shape.stacks.has(transition.from)) {
    const message = `no branch of '${synchronization.siblingGroup}' reaches this join`
    const suggestion = `Lead the branches of '${opening[0]!.id}' to '${transition.from}'.`
    inner.problem('unreached_join', message, { suggestion })
  }
}

function checkQuorum(
  synchronization: SynchronizationModel,
  opening: readonly TransitionModel[],
  field: Field,
): void {
  const { strategy, siblingGroup } = synchronization
  const branches = branchCount(opening)
  if (typeof strategy === 'string' || branches === null || strategy.mOfN <= branches) return
  const message = `waits for ${strategy.mOfN} branches, but '${siblingGroup}' makes ${branches}`
  field
    .at('strategy')
    .problem('impossible_quorum', message, { suggestion: `At most ${branches} can arrive.` })
}

/** Transitions that share a group have to fire together. */
function checkGroups(shape: WorkflowShape, places: Places): void {
  for (const [group, [first, ...others]] of shape.groups) {
    for (const other of others) {
      const field = places.of(other)
      if (other.from !== first!.from) {
        const message = `'${group}' is opened at '${first!.from}' as well: branches of one group leave one node`
        field.problem('split_group', message, { suggestion: 'Use another sibling_group.' })
      } else if (other.priority !== first!.priority) {
        const message = `'${group}' has priorities ${first!.priority} and ${other.priority}: only one tier fires`
        field.problem('split_group', message, { suggestion: 'Give them the same priority.' })
      }
    }
  }
}

/** Transitions of one group to one node are one join: they have to say the same of it. */
function checkSharedJoins(model: WorkflowModel, places: Places): void {
  const firsts = new Map<string, TransitionModel>()
  for (const transition of model.transitions) {
    const { synchronization, to } = transition
    if (!synchronization) continue
    const key = JSON.stringify([synchronization.siblingGroup, to])
    const first = firsts.get(key)
    if (!first) firsts.set(key, transition)
    else if (!isDeepStrictEqual(first.synchronization, synchronization)) {
      const message = `'${first.id}' joins '${synchronization.siblingGroup}' at '${to}' too, and says otherwise`
      const suggestion = 'They are one join: give both the same synchronization.'
      places.of(transition).at('synchronization').problem('split_join', message, { suggestion })
    }
  }
}

function checkCycles(model: WorkflowModel, shape: WorkflowShape, places: Places): void {
  if (model.timeoutMs !== null) return
  const cycle = findCycle(shape, ({ loop }) => loop !== undefined)
  if (!cycle) return
  const way = [...cycle, cycle[0]!].join(' → ')
  const last = model.transitions.find(({ from, to }) => from === cycle.at(-1) && to === cycle[0])
  const field = last ? places.of(last) : places.root
  field.problem('endless_cycle', `nothing ends the cycle ${way}`, {
    suggestion: 'Set loop.max_iterations on one of its transitions, or a timeout on the workflow.',
  })
}

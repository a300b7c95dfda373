/**
 * The shape of a graph: which nodes can be reached, and inside which branches. A scope is opened by a transition
 * with a group and closed by a join of that group; a token that reaches a join of another group passes through.
 */
import { MAX_CHECKED_POSITIONS, MAX_SCOPE_DEPTH } from '../core/limits.ts'
import type { NodeModel, TransitionModel, WorkflowModel } from './workflow-model.ts'

/** Open scopes, the innermost last. */
export type ScopeStack = readonly string[]

export interface WorkflowShape {
  nodes: ReadonlyMap<string, NodeModel>
  outgoing: ReadonlyMap<string, readonly TransitionModel[]>
  incoming: ReadonlyMap<string, readonly TransitionModel[]>
  /** The transitions that open each group. */
  groups: ReadonlyMap<string, readonly TransitionModel[]>
  /** How each node that can be reached may be entered. */
  stacks: ReadonlyMap<string, readonly ScopeStack[]>
  /** Nodes that a join may come before. */
  afterJoin: ReadonlySet<string>
  /** Joins that branches of their group reach; others only let tokens through. */
  joins: ReadonlySet<TransitionModel>
  /** Joins reached by tokens that are still inside another scope of their branch. */
  crossed: ReadonlyMap<TransitionModel, string>
  /** Fan-outs that can open again inside themselves. */
  recursive: ReadonlySet<TransitionModel>
  tooDeep: ReadonlySet<TransitionModel>
  /** False: the graph is too tangled, and what is above is a part. */
  complete: boolean
}

export function workflowShape(model: WorkflowModel): WorkflowShape {
  const nodes = new Map(model.nodes.map((node) => [node.id, node]))
  const known = model.transitions.filter(({ from, to }) => nodes.has(from) && nodes.has(to))
  const outgoing = Map.groupBy(known, ({ from }) => from)
  const incoming = Map.groupBy(known, ({ to }) => to)
  const opening = known.filter(({ group }) => group !== undefined)
  const groups = Map.groupBy(opening, ({ group }) => group!)
  const walk = new Walk(outgoing)
  if (nodes.has(model.start)) walk.from(model.start)
  return {
    nodes,
    outgoing,
    incoming,
    groups,
    stacks: walk.stacks,
    afterJoin: reachableFrom(
      [...walk.joins].map(({ to }) => to),
      outgoing,
    ),
    joins: walk.joins,
    crossed: walk.crossed,
    recursive: walk.recursive,
    tooDeep: walk.tooDeep,
    complete: walk.complete,
  }
}

class Walk {
  readonly stacks = new Map<string, ScopeStack[]>()
  readonly joins = new Set<TransitionModel>()
  readonly crossed = new Map<TransitionModel, string>()
  readonly recursive = new Set<TransitionModel>()
  readonly tooDeep = new Set<TransitionModel>()
  complete = true
  readonly #outgoing: ReadonlyMap<string, readonly TransitionModel[]>
  readonly #seen = new Set<string>()
  readonly #open: { node: string; stack: ScopeStack }[] = []

  constructor(outgoing: ReadonlyMap<string, readonly TransitionModel[]>) {
    this.#outgoing = outgoing
  }

  from(start: string): void {
    this.#enter(start, [])
    for (let next = this.#open.pop(); next; next = this.#open.pop()) {
      for (const transition of this.#outgoing.get(next.node) ?? []) {
        this.#enter(transition.to, this.#follow(transition, next.stack))
      }
    }
  }

  #enter(node: string, stack: ScopeStack): void {
    const key = JSON.stringify([node, stack])
    if (this.#seen.has(key)) return
    if (this.#seen.size >= MAX_CHECKED_POSITIONS) {
      this.complete = false
      return
    }
    this.#seen.add(key)
    const stacks = this.stacks.get(node)
    if (stacks) stacks.push(stack)
    else this.stacks.set(node, [stack])
    this.#open.push({ node, stack })
  }

  /** The join first, then the fan-out. */
  #follow(transition: TransitionModel, stack: ScopeStack): ScopeStack {
    const { synchronization, group } = transition
    let next = stack
    if (synchronization) {
      if (stack.at(-1) === synchronization.siblingGroup) {
        this.joins.add(transition)
        next = stack.slice(0, -1)
      } else if (stack.includes(synchronization.siblingGroup)) this.crossed.set(transition, stack.at(-1)!)
    }
    if (group === undefined) return next
    if (next.includes(group)) {
      this.recursive.add(transition)
      return next
    }
    if (next.length >= MAX_SCOPE_DEPTH) {
      this.tooDeep.add(transition)
      return next
    }
    return [...next, group]
  }
}

function reachableFrom(
  starts: readonly string[],
  outgoing: ReadonlyMap<string, readonly TransitionModel[]>,
): Set<string> {
  const reached = new Set(starts)
  for (const node of reached) for (const { to } of outgoing.get(node) ?? []) reached.add(to)
  return reached
}

/** Branches the fan-outs of a group make together; null where a list decides. */
export function branchCount(transitions: readonly TransitionModel[]): number | null {
  let count = 0
  for (const { foreach, spawnCount } of transitions) {
    if (foreach) return null
    count += spawnCount ?? 1
  }
  return count
}

/** Nodes that stand inside a branch of the group, however deep. */
export function nodesOfGroup(shape: WorkflowShape, group: string): NodeModel[] {
  return [...shape.nodes.values()].filter(({ id }) =>
    (shape.stacks.get(id) ?? []).some((stack) => stack.includes(group)),
  )
}

/** A cycle without any of `without`, as node ids; null when there is none. */
export function findCycle(
  shape: WorkflowShape,
  without: (transition: TransitionModel) => boolean,
): string[] | null {
  const done = new Set<string>()
  for (const start of shape.nodes.keys()) {
    if (done.has(start)) continue
    const path: { node: string; next: number }[] = [{ node: start, next: 0 }]
    const onPath = new Set([start])
    while (path.length > 0) {
      const top = path.at(-1)!
      const transition = shape.outgoing.get(top.node)?.[top.next++]
      if (!transition) {
        done.add(top.node)
        onPath.delete(top.node)
        path.pop()
      } else if (!without(transition) && !done.has(transition.to)) {
        if (onPath.has(transition.to)) {
          const ids = path.map(({ node }) => node)
          return ids.slice(ids.indexOf(transition.to))
        }
        path.push({ node: transition.to, next: 0 })
        onPath.add(transition.to)
      }
    }
  }
  return null
}

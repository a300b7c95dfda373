/** The expressions of a workflow: do they compile, and can what they name exist where they stand. */
import type { ContextRoot } from './context-path.ts'
import { parseContextPath } from './context-path.ts'
import type { Field } from './definition-field.ts'
import type { VariableName } from './expression.ts'
import { compileExpression, isFault, VARIABLES } from './expression.ts'
import type { Mapping } from './mapping.ts'
import { expressionsOf, parseTemplate } from './mapping.ts'
import type { Places } from './places.ts'
import { didYouMean } from './problem.ts'
import type { ActionModel, NodeModel, TransitionModel, WorkflowModel } from './workflow-model.ts'
import type { WorkflowShape } from './workflow-shape.ts'

/** What may exist at a place; a word that says where, for the message. */
interface Scope {
  result: boolean
  branch: boolean
  join: boolean
  where: string
}

const WHY: Record<string, string> = {
  result: 'nothing has run before it',
  branch: 'it is outside every branch',
  join: 'no join comes before it',
}

export function checkExpressions(model: WorkflowModel, shape: WorkflowShape, places: Places): void {
  const reached = (id: string) => shape.stacks.has(id) || !shape.complete
  for (const node of model.nodes) {
    if (!reached(node.id)) continue
    const before = scopeBefore(node, shape)
    const after = { ...before, result: true }
    const field = places.of(node)
    if (node.input !== undefined) checkMapping(node.input, field.at('input'), before)
    checkOutput(node, shape, field, after)
    const action = node.actionId === null ? null : model.actions[node.actionId]
    if (action) checkAction(action, places.of(action), before)
  }
  const used = new Set(model.nodes.map(({ actionId }) => actionId))
  for (const [id, action] of Object.entries(model.actions)) {
    if (!used.has(id)) checkAction(action, places.of(action), everything)
  }
  for (const transition of model.transitions) checkTransition(transition, shape, places)
  if (model.output !== undefined) {
    const scope = {
      result: true,
      branch: false,
      join: shape.joins.size > 0,
      where: 'at the end of the workflow',
    }
    checkMapping(model.output, places.root.at('output'), scope)
  }
}

const everything: Scope = { result: true, branch: true, join: true, where: 'here' }

function scopeBefore(node: NodeModel, shape: WorkflowShape): Scope {
  const stacks = shape.stacks.get(node.id) ?? []
  return {
    result: shape.incoming.has(node.id),
    branch: stacks.some((stack) => stack.length > 0),
    join: shape.afterJoin.has(node.id),
    where: `at node '${node.id}'`,
  }
}

function checkTransition(transition: TransitionModel, shape: WorkflowShape, places: Places): void {
  const from = shape.nodes.get(transition.from)
  const scope = from ? { ...scopeBefore(from, shape), result: true } : everything
  const field = places.of(transition)
  const { condition, foreach, synchronization } = transition
  if (condition !== undefined) checkExpression(condition, field.at('condition'), scope)
  if (foreach) {
    const inner = field.at('foreach').at('collection')
    const afterJoin = synchronization ? { ...scope, join: true } : scope
    checkExpression(foreach.collection, inner, afterJoin)
  }
  const merge = synchronization?.merge
  if (!merge) return
  const mergeField = field.at('synchronization').at('merge')
  checkExpression(merge.source, mergeField.at('source'), { ...scope, branch: true })
  checkMergeTarget(transition, merge.target, mergeField.at('target'), shape)
}

/** A merge writes outside its branches: into the state, or into the branch around them. */
function checkMergeTarget(
  transition: TransitionModel,
  target: string,
  field: Field,
  shape: WorkflowShape,
): void {
  const root = rootOf(target)
  const around = (shape.stacks.get(transition.from) ?? [])
    .filter((stack) => stack.at(-1) === transition.synchronization?.siblingGroup)
    .map((stack) => stack.at(-2))
  if (around.length === 0 || root === null) return
  const outer = around.find((group) => group !== undefined)
  if (root === 'branch' && around.includes(undefined)) {
    const suggestion = `Write 'state.${target.split('.').slice(1).join('.')}'.`
    field.problem('invalid_path', 'there is no branch around this join to write to', { suggestion })
  } else if (root !== 'branch' && outer !== undefined) {
    const message = `this join is inside the branches of '${outer}', each of which writes ${target}: the last one wins`
    const suggestion = `Write 'branch.${target.split('.').slice(1).join('.')}', and merge it where '${outer}' is joined.`
    field.warning('shared_target', message, { suggestion })
  }
}

/** Branches run beside each other: what they write is theirs until a join merges it. */
function checkOutput(node: NodeModel, shape: WorkflowShape, field: Field, scope: Scope): void {
  const outside = (shape.stacks.get(node.id) ?? []).some((stack) => stack.length === 0)
  for (const [path, mapping] of Object.entries(node.output ?? {})) {
    const entry = field.at('output').child(path)
    checkMapping(mapping, entry, scope)
    const root = rootOf(path)
    const key = path.split('.').slice(1).join('.')
    if (root !== 'branch' && scope.branch) {
      const message = `node '${node.id}' runs inside branches, which cannot write ${root}`
      const suggestion = `Write 'branch.${key}', and merge it at the join.`
      entry.problem('invalid_path', message, { suggestion, atKey: true })
    } else if (root === 'branch' && outside) {
      const message = `node '${node.id}' runs outside every branch`
      entry.problem('invalid_path', message, { suggestion: `Write 'state.${key}'.`, atKey: true })
    }
  }
}

function rootOf(path: string): ContextRoot | null {
  const parsed = parseContextPath(path)
  return 'message' in parsed ? null : parsed.root
}

function checkAction(action: ActionModel, field: Field, scope: Scope): void {
  const at = (key: string) => {
    const inner = field.at(key)
    return inner.value === undefined ? field.at('implementation').at(key) : inner
  }
  if (action.kind === 'http_request') {
    checkExpression(action.url, at('url'), scope)
    checkMapping(action.headers, at('headers'), scope)
    if (action.body !== undefined) checkMapping(action.body, at('body'), scope)
  } else if (action.kind === 'shell') {
    checkMapping(action.env, at('env'), scope)
    for (const [i, part] of (action.argv ?? []).entries()) checkTemplate(part, at('argv').child(i), scope)
    if (action.workingDir !== undefined) checkTemplate(action.workingDir, at('workingDir'), scope)
  } else if (action.kind === 'update_context') {
    for (const [path, mapping] of Object.entries(action.updates)) {
      const entry = at('updates').child(path)
      checkMapping(mapping, entry, scope)
      if (rootOf(path) === 'branch' && !scope.branch) {
        const message = `there is no branch to write to ${scope.where}`
        entry.problem('invalid_path', message, { atKey: true })
      }
    }
  }
}

function checkMapping(mapping: Mapping, field: Field, scope: Scope): void {
  for (const { text, path } of expressionsOf(mapping)) {
    const place = path.reduce((inner, key) => inner.child(key), field)
    checkExpression(text, place, scope)
  }
}

function checkTemplate(text: string, field: Field, scope: Scope): void {
  const parts = parseTemplate(text)
  if (!Array.isArray(parts)) {
    field.problem('invalid_expression', parts.message, { offset: parts.offset })
    return
  }
  for (const part of parts) {
    if ('expression' in part) checkExpression(part.expression, field, scope, part.offset)
  }
}

function checkExpression(text: string, field: Field, scope: Scope, start = 0): void {
  const expression = compileExpression(text)
  if (isFault(expression)) {
    const { message, suggestion, offset } = expression
    field.problem('invalid_expression', message, { suggestion, offset: start + offset })
    return
  }
  for (const { name, offset, path } of expression.references) {
    const variable = name === '_branch' ? 'branch' : name
    if (!VARIABLES.includes(name as VariableName)) {
      const literal = text.trim() === name ? `For the text, write "'${name}'".` : null
      const suggestion =
        didYouMean(name, VARIABLES) ??
        literal ??
        `There are ${VARIABLES.filter((known) => known !== '_branch').join(', ')}.`
      field.problem('unknown_variable', `there is no variable '${name}'`, {
        suggestion,
        offset: start + offset,
      })
    } else if (variable in WHY && !scope[variable as keyof Scope]) {
      const message = `'${[name, ...path].join('.')}' cannot exist ${scope.where}: ${WHY[variable]}`
      field.problem('unknown_variable', message, { offset: start + offset })
    }
  }
}

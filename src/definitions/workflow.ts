/** What users write to define a workflow graph: `workflow({ … })`, or YAML and JSON text. One model behind both. */
import type { StandardSchemaV1 } from '@standard-schema/spec'
import type { Duration } from '../core/duration.ts'
import type { UsedDefinitions } from './action-reader.ts'
import type { AgentDefinition } from './agent.ts'
import { DefinitionSource, objectField, textField } from './definition-field.ts'
import type { MergeStrategy } from './join-merge.ts'
import type { Mapping } from './mapping.ts'
import { keepPlaces } from './places.ts'
import type { Problem } from './problem.ts'
import { byPlace, DefinitionError, hasErrors } from './problem.ts'
import type { TaskDefinition } from './task.ts'
import type { WorkKind } from './task-policy.ts'
import { isSchema } from './task-policy.ts'
import { checkWorkflow } from './workflow-check.ts'
import type { HttpMethod, WorkflowModel } from './workflow-model.ts'
import { contentHash } from './workflow-model.ts'
import type { Registry } from './workflow-names.ts'
import { checkNames, withUsed } from './workflow-names.ts'
import { readWorkflow } from './workflow-reader.ts'

/** The limits of a node or of an action; the node's win, one by one. */
export interface ExecutionOptions {
  /** From the start of executing. None unless set; `null` takes the action's away. */
  timeout?: Duration | null
  /** Default: fail. */
  onTimeout?: 'fail' | 'retry'
  /** Tries after the first with `onTimeout: 'retry'`; default 3. */
  retryLimit?: number
  /** From when it may be dispatched to its start; the timeout unless set. */
  queueTimeout?: Duration | null
  /** The abort signal comes this long before the timeout. */
  softStop?: Duration
  grace?: Duration
  warnAt?: number
}

/** In mappings, headers and `env` every text is a CEL expression; `argv` holds templates: `--id=${input.id}`. */
export type ActionOptions = { execution?: ExecutionOptions } & (
  | { kind: 'task'; task?: string; work?: WorkKind }
  | { kind: 'llm' | 'mcp_tool'; task?: string }
  | { kind: 'agent'; agent?: string }
  | { kind: 'workflow_call'; workflow: string }
  | {
      kind: 'http_request'
      url: string
      method?: HttpMethod
      headers?: Record<string, string>
      body?: Mapping
      expectedStatus?: number | readonly number[]
    }
  | { kind: 'shell'; command: string; argv?: undefined; env?: Record<string, string>; workingDir?: string }
  | {
      kind: 'shell'
      argv: readonly string[]
      command?: undefined
      env?: Record<string, string>
      workingDir?: string
    }
  | { kind: 'update_context'; updates: Record<string, Mapping> }
)

// biome-ignore lint/suspicious/noExplicitAny: any input and output; a node gives them by mappings
type AnyWork = TaskDefinition<any, any> | AgentDefinition<any, any> | WorkflowDefinition<any, any>

export interface NodeOptions<NodeId extends string = string, ActionId extends string = string>
  extends ExecutionOptions {
  id: NodeId
  /** A key of `actions`, or, where there are none, a registered task. Without it the node does nothing. */
  actionId?: ActionId
  /** What the action is given; the workflow's input unless set. */
  input?: Mapping
  /** Where its result goes: `{ 'state.topics': 'result.topics' }`. */
  output?: Record<string, Mapping>
  /** Clips its deadline to the workflow's, minus `reserve`. */
  inherit?: boolean
  reserve?: Duration
}

export interface SynchronizationOptions<Group extends string = string> {
  strategy: 'all' | 'any' | { mOfN: number }
  siblingGroup: Group
  /** From the first arrival. Computed unless set; `null`: none. */
  timeout?: Duration | null
  /** Default: fail. */
  onTimeout?: 'proceed_with_available' | 'fail'
  /** Default: fail for `all`, else settle. */
  onBranchFailure?: 'fail' | 'settle'
  /** Branches still running when the join has fired end their node (default), or are stopped. */
  late?: 'finish' | 'cancel'
  warnAt?: number
  /** Source: an expression over `branch`, default `branch.output`. */
  merge?: { source?: string; target: string; strategy?: MergeStrategy }
}

export interface TransitionOptions<NodeId extends string = string, Group extends string = string> {
  id?: Group
  from: NodeId
  to: NodeId
  /** The lowest tier with a match fires all its matches. */
  priority?: number
  condition?: string
  foreach?: { collection: string; itemVar?: string }
  spawnCount?: number
  maxParallel?: number
  loop?: { maxIterations: number }
  /** Transitions of one node that share it make the branches of one fan-out. */
  siblingGroup?: Group
  synchronization?: SynchronizationOptions<NoInfer<Group>>
}

export interface WorkflowOptions<
  ActionId extends string = string,
  NodeId extends string = string,
  Group extends string = string,
> {
  name: string
  description?: string
  /** The whole run; default one hour, `null`: none. */
  timeout?: Duration | null
  /** Default: cancel_all, which ends it as timed out. */
  onTimeout?: 'cancel_all' | 'fail'
  warnAt?: number
  inherit?: boolean
  reserve?: Duration
  /** The node that runs first; the one without a transition to it unless set. */
  start?: NoInfer<NodeId>
  /** What the run gives back. */
  output?: Mapping
  actions?: Record<ActionId, ActionOptions | AnyWork>
  nodes: readonly NodeOptions<NodeId, NoInfer<ActionId>>[]
  transitions?: readonly TransitionOptions<NoInfer<NodeId>, Group>[]
}

export interface WorkflowDefinition<Input = unknown, Output = unknown> {
  readonly kind: 'workflow'
  readonly name: string
  /** Plain data, stored with each run. */
  readonly model: WorkflowModel
  /** Of the model. */
  readonly hash: string
  readonly schema: StandardSchemaV1 | null
  /** Tasks, agents and workflows it was given, itself not among them. */
  readonly uses: Readonly<UsedDefinitions>
  readonly warnings: readonly Problem[]
  /** Types only. */
  readonly types?: { input: Input; output: Output }
}

/** A graph of nodes and transitions. Throws a `DefinitionError` that lists every problem. */
export function workflow<
  const ActionId extends string,
  const NodeId extends string,
  const Group extends string,
  Schema extends StandardSchemaV1,
>(
  definition: WorkflowOptions<ActionId, NodeId, Group> & { input: Schema },
): WorkflowDefinition<StandardSchemaV1.InferInput<Schema>>
export function workflow<
  const ActionId extends string,
  const NodeId extends string,
  const Group extends string,
>(definition: WorkflowOptions<ActionId, NodeId, Group> & { input?: undefined }): WorkflowDefinition
export function workflow(definition: WorkflowOptions & { input?: StandardSchemaV1 }): WorkflowDefinition {
  const field = objectField(definition)
  const { input } = definition ?? {}
  if (input !== undefined && !isSchema(input)) {
    field.at('input').problem('invalid_value', 'must be a Standard Schema (zod, valibot, arktype, …)')
  }
  const name = typeof definition?.name === 'string' ? `workflow ${definition.name}` : 'the workflow'
  return orThrow(name, finish(field, input ?? null, {}))
}

export interface LoadOptions {
  /** Stands in problems. */
  file?: string
  /** Names that are known; without them a name is taken for registered. */
  registry?: Registry
}

export interface CheckedWorkflow {
  /** Null when a problem is an error. */
  definition: WorkflowDefinition | null
  problems: readonly Problem[]
}

/** A workflow from YAML or JSON. Throws a `DefinitionError` that lists every problem with its line. */
export function loadWorkflow(text: string, options: LoadOptions = {}): WorkflowDefinition {
  return orThrow(options.file ?? 'the workflow', validateWorkflow(text, options))
}

/** The same without an exception: for programs that show problems. */
export function validateWorkflow(text: string, options: LoadOptions = {}): CheckedWorkflow {
  const field = textField(text, options.file ?? null)
  if (field instanceof DefinitionSource) return { definition: null, problems: byPlace(field.problems) }
  return finish(field, null, options.registry ?? {})
}

function finish(
  field: ReturnType<typeof objectField>,
  schema: StandardSchemaV1 | null,
  registry: Registry,
): CheckedWorkflow {
  const { problems } = field.source
  const draft = readWorkflow(field)
  if (!draft) return { definition: null, problems: byPlace(problems) }
  const { model, places, uses } = draft
  checkWorkflow(model, places, withUsed(registry, uses))
  keepPlaces(model, places)
  const all = byPlace([...problems, ...checkNames(model, registry)])
  if (hasErrors(all)) return { definition: null, problems: all }
  const definition: WorkflowDefinition = {
    kind: 'workflow',
    name: model.name,
    model,
    hash: contentHash(model),
    schema,
    uses,
    warnings: all,
  }
  return { definition, problems: all }
}

function orThrow(what: string, { definition, problems }: CheckedWorkflow): WorkflowDefinition {
  if (!definition) throw new DefinitionError(what, problems)
  return definition
}

/** What the function of an agent is given: every call of it becomes a step of its run. */

import type { Activity } from '../core/agent-journal.ts'
import { DEFAULT_BACKOFF } from '../core/backoff.ts'
import type { Duration } from '../core/duration.ts'
import { durationMs, isZero } from '../core/duration.ts'
import { CurfewError } from '../core/errors.ts'
import { encodeJson } from '../core/json.ts'
import { checkKnown } from '../core/known-options.ts'
import { MAX_RETRIES } from '../core/limits.ts'
import type { Logger } from '../core/logger.ts'
import { idPrefix, WORKFLOW } from '../core/own-work.ts'
import type {
  AgentContext,
  AgentDefinition,
  AgentScheduleOptions,
  ChildOptions,
  RunOptions,
  StepHandle,
  WaitOptions,
  WorkHandle,
} from '../definitions/agent.ts'
import { applyAgentOptions } from '../definitions/agent-policy.ts'
import { checkInputNow } from '../definitions/input-schema.ts'
import { LAST_TIME, startTime } from '../definitions/start-time.ts'
import type { TaskDefinition } from '../definitions/task.ts'
import type { TaskPolicy } from '../definitions/task-policy.ts'
import { applyOptions, checkBackoff, checkName, withTrace } from '../definitions/task-policy.ts'
import type { WorkflowDefinition } from '../definitions/workflow.ts'
import type { Registry } from '../definitions/workflow-names.ts'
import { calledPolicy } from '../graph/run-policy.ts'
import { workflowStart } from '../graph/run-start.ts'
import type { WorkflowStart } from '../graph/start-input.ts'
import { encodeStart } from '../graph/start-input.ts'
import type { GroupKind } from './agent-group.ts'
import { Group } from './agent-group.ts'
import type { AgentRun } from './agent-run.ts'
import { Step, Waitable } from './agent-step.ts'

/** What Curfew's own agents are given besides. */
export interface InnerContext extends AgentContext {
  /** Work by its name, under a policy that was made whole. */
  begin(work: {
    kind: 'task' | 'agent'
    name: string
    input: unknown
    policy: TaskPolicy
    title: string
    reserveMs?: number | null
    /** Where others know it already. */
    id?: string
  }): WorkHandle
  /** Stands among the agent's events; once, however often it is replayed. */
  record(event: { type: string }): void
  /** Ends when nothing below it has moved for so long although something runs. */
  stuck(ms: number): StepHandle<Activity>
}

export function createAgentContext(
  run: AgentRun,
  { logger, registry }: { logger: Logger; registry: Registry },
): AgentContext {
  const at = (what: string) => `agent ${run.turn.name}: ${what}`

  const group = (kind: GroupKind, handles: readonly StepHandle[], options: WaitOptions = {}): Group => {
    const members = checkHandles(run, at(kind), handles)
    checkKnown(at(kind), options, ['timeout', 'cancelRest'])
    if (members.length === 0 && (kind === 'any' || kind === 'race')) {
      throw new CurfewError('invalid_argument', `${at(kind)}: the list is empty, so nothing could ever win`)
    }
    const timeoutMs =
      options.timeout === undefined ? null : durationMs(options.timeout, at(`${kind}: timeout`))
    const wait = new Group(run, kind, members, {
      timeoutMs,
      cancelRest: options.cancelRest ?? null,
      cancel,
    })
    run.addGroup(wait)
    if (timeoutMs !== null && !wait.end) {
      const waits = `${kind} ${members.map((member) => (member instanceof Step ? member.no : '()')).join()}`
      const { no } = run.addStep<'wait'>((no) => ({ no, kind: 'wait', ms: timeoutMs, waits }))
      run.onTime(no, () => wait.timeOut())
      wait.whenSettled(() => run.withdrawTimer(no))
    }
    return wait
  }

  const cancel = (handle: StepHandle): void => {
    const [waitable] = checkHandles(run, at('cancel'), [handle])
    if (waitable?.end) return
    if (!(waitable instanceof Step)) {
      for (const step of (waitable as Group).openSteps().steps) cancel(step)
      return
    }
    if (waitable.kind === 'run') return waitable.stop?.()
    const id = waitable.isWork ? waitable.id : null
    run.addStep<'cancel'>((no) => ({ no, kind: 'cancel', target: waitable.no, id }))
  }

  const value = <K extends 'now' | 'random' | 'uuid'>(kind: K, make: () => unknown): unknown => {
    let made: unknown
    const { value: recorded, replayed } = run.addStep<K>((no) => {
      made = make()
      return { no, kind, value: made } as never
    })
    return replayed ? recorded : made
  }

  const work = (
    kind: 'task' | 'agent',
    definition: Pick<TaskDefinition | AgentDefinition, 'name'> & Partial<Pick<TaskDefinition, 'schema'>>,
    input: unknown,
    policy: unknown,
    rest: {
      start: { delayMs: number } | { at: number }
      detached: boolean
      title?: string
      reserveMs?: number | null
    },
    given?: string,
  ): WorkHandle => {
    const { name, schema = null } = definition
    if (schema) checkInputNow(kind, name, schema, input)
    const what = `input of ${kind} ${name}`
    const isStart = name === WORKFLOW && 'hash' in (input as object)
    const text = isStart ? encodeStart(input as WorkflowStart, what) : encodeJson(input, what)
    let id = ''
    const { no, id: recorded } = run.addStep<'task' | 'agent'>((no) => {
      id = given ?? run.newId(idPrefix({ kind, name }))
      return { no, kind, id, name, input: text, policy, ...rest }
    })
    return run.stepHandle(no, { kind, name, id: recorded ?? id }) as unknown as WorkHandle
  }

  const childWorkflow = (
    definition: WorkflowDefinition,
    input: unknown,
    options: ChildOptions,
  ): WorkHandle => {
    const { name, model, schema } = definition
    const place = at(`child ${name}`)
    const { timeout, detached = false, inherit, reserve, trace } = options
    checkKnown(place, options, ['timeout', 'detached', 'inherit', 'reserve', 'trace'])
    if (schema) checkInputNow('workflow', name, schema, input)
    return work(
      'agent',
      { name: WORKFLOW },
      // A replay asks for what was stored, whatever the definition is by now.
      run.nextIsRecorded
        ? ({ model: { name: model.name }, input: input ?? null } as WorkflowStart)
        : workflowStart(definition, registry, input ?? null),
      withTrace(place, calledPolicy(model, timeout, place), trace),
      {
        start: { delayMs: 0 },
        detached,
        title: name,
        ...inheritance(place, inherit, reserve),
      },
    )
  }

  const context = {
    agentId: run.agentId,
    signal: run.controller.signal,
    log: quietOnReplay(run, logger),
    trace: run.turn.trace,
    schedule(definition: TaskDefinition, input?: unknown, options: AgentScheduleOptions = {}) {
      if (definition?.kind !== 'task')
        throw new CurfewError('invalid_option', `${at('schedule')} takes a task`)
      const { delay, startAt, detached = false, inherit, reserve, trace, ...taskOptions } = options
      const policy = Object.keys(taskOptions).length
        ? applyOptions(`task ${definition.name}`, definition.policy, taskOptions, 'call')
        : definition.policy
      const start = startTime(at(`schedule ${definition.name}`), delay, startAt)
      const inherited = inheritance(at(`schedule ${definition.name}`), inherit, reserve)
      const own = withTrace(at(`schedule ${definition.name}`), policy, trace)
      return work('task', definition, input, own, { start, detached, ...inherited })
    },
    child(definition: AgentDefinition | WorkflowDefinition, input?: unknown, options: ChildOptions = {}) {
      if (definition?.kind === 'workflow') return childWorkflow(definition, input, options)
      if (definition?.kind !== 'agent')
        throw new CurfewError('invalid_option', `${at('child')} takes an agent or a workflow`)
      const { detached = false, inherit, reserve, trace, ...agentOptions } = options
      const policy = Object.keys(agentOptions).length
        ? applyAgentOptions(`agent ${definition.name}`, definition.policy, agentOptions, 'call')
        : definition.policy
      const inherited = inheritance(at(`child ${definition.name}`), inherit, reserve)
      const own = withTrace(at(`child ${definition.name}`), policy, trace)
      return work('agent', definition, input, own, { start: { delayMs: 0 }, detached, ...inherited })
    },
    all: (handles: readonly StepHandle[], options?: WaitOptions) => group('all', handles, options),
    allSettled: (handles: readonly StepHandle[], options?: WaitOptions) =>
      group('allSettled', handles, options),
    any: (handles: readonly StepHandle[], options?: WaitOptions) => group('any', handles, options),
    race: (handles: readonly StepHandle[], options?: WaitOptions) => group('race', handles, options),
    sleep(duration: Duration) {
      const ms = isZero(duration) ? 0 : durationMs(duration, at('sleep'))
      const { no } = run.addStep<'sleep'>((no) => ({ no, kind: 'sleep', ms }))
      return run.stepHandle(no, { kind: 'sleep' })
    },
    sleepUntil(time: Date | number) {
      const until = Math.ceil(Number(time))
      if (!(Math.abs(until) <= LAST_TIME))
        throw new CurfewError('invalid_option', `${at('sleepUntil')}: not a time`)
      const { no } = run.addStep<'sleep_until'>((no) => ({ no, kind: 'sleep_until', at: until }))
      return run.stepHandle(no, { kind: 'sleep' })
    },
    waitForSignal(name: string, options: { timeout?: Duration } = {}) {
      checkName(at('waitForSignal: name'), name)
      checkKnown(at('waitForSignal'), options, ['timeout'])
      const ms =
        options.timeout === undefined ? null : durationMs(options.timeout, at('waitForSignal: timeout'))
      const { no } = run.addStep<'signal'>((no) => ({ no, kind: 'signal', name, ms }))
      return run.stepHandle(no, { kind: 'signal', name, timeoutMs: ms })
    },
    run(
      name: string,
      fn: (run: { signal: AbortSignal; attempt: number }) => unknown,
      options: RunOptions = {},
    ) {
      checkName(at('run: name'), name)
      checkKnown(at(`run ${name}`), options, ['retries', 'timeout', 'backoff'])
      const { retries = 0, timeout, backoff = {} } = options
      if (typeof fn !== 'function')
        throw new CurfewError('invalid_option', `${at(`run ${name}`)} takes a function`)
      if (!Number.isInteger(retries) || retries < 0 || retries > MAX_RETRIES) {
        throw new CurfewError(
          'invalid_option',
          `${at(`run ${name}`)}: retries must be a whole number, got ${retries}`,
        )
      }
      const plan = {
        name,
        fn,
        retries,
        timeoutMs: timeout === undefined ? null : durationMs(timeout, at(`run ${name}: timeout`)),
        backoff: checkBackoff(at(`run ${name}`), DEFAULT_BACKOFF, backoff),
      }
      const { no } = run.addStep<'run'>((no) => ({ no, kind: 'run', name }))
      const step = run.stepHandle(no, { kind: 'run', name })
      run.execute(step, plan)
      return step
    },
    cancel,
    begin({ kind, name, input, policy, id, ...place }: Parameters<InnerContext['begin']>[0]) {
      return work(kind, { name }, input, policy, { start: { delayMs: 0 }, detached: false, ...place }, id)
    },
    stuck(ms: number) {
      const { no } = run.addStep<'stuck'>((no) => ({ no, kind: 'stuck', ms }))
      return run.stepHandle(no, { kind: 'stuck' })
    },
    record(event: { type: string }) {
      run.addStep<'event'>((no) => ({ no, kind: 'event', event }))
    },
    now: () => value('now', () => run.now()) as number,
    random: () => value('random', () => run.random()) as number,
    uuid: () => value('uuid', () => uuid(run.bytesOfChance(16))) as string,
  }
  return context as unknown as AgentContext
}

/** What a call says of inheriting its agent's deadline. */
function inheritance(at: string, inherit = false, reserve?: Duration): { reserveMs?: number | null } {
  if (typeof inherit !== 'boolean')
    throw new CurfewError('invalid_option', `${at}: inherit must be true or false`)
  if (!inherit && reserve !== undefined)
    throw new CurfewError('invalid_option', `${at}: reserve is for what inherits: set inherit: true`)
  if (!inherit) return {}
  return {
    reserveMs: reserve === undefined ? null : isZero(reserve) ? 0 : durationMs(reserve, `${at}: reserve`),
  }
}

function checkHandles(run: AgentRun, at: string, handles: readonly StepHandle[]): Waitable[] {
  if (!Array.isArray(handles)) throw new CurfewError('invalid_argument', `${at} takes a list of handles`)
  for (const [i, handle] of handles.entries()) {
    if (!(handle instanceof Waitable && handle.isOf(run))) {
      throw new CurfewError('invalid_argument', `${at}: number ${i} is not a handle that this ctx gave out`, {
        hint: 'What is not from ctx belongs in ctx.run.',
      })
    }
  }
  return handles as unknown as Waitable[]
}

/** What was logged once is not logged again. */
function quietOnReplay(run: AgentRun, logger: Logger): Logger {
  const say = (level: 'error' | 'warn' | 'info' | 'debug') => (fields: object, message: string) => {
    if (!run.replaying && !run.dead)
      logger[level]({ agentId: run.agentId, agent: run.turn.name, ...fields }, message)
  }
  return { error: say('error'), warn: say('warn'), info: say('info'), debug: say('debug') }
}

function uuid(bytes: Uint8Array): string {
  bytes[6] = ((bytes[6] ?? 0) & 0x0f) | 0x40
  bytes[8] = ((bytes[8] ?? 0) & 0x3f) | 0x80
  const hex = Buffer.from(bytes).toString('hex')
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20)}`
}

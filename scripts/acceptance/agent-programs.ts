// Random agents: a program is plain data, the input of the one agent that interprets it. Every step of a kind has the
// same name, and what a step gave is known by itself, so that results handed to the wrong step are found out.

import fc from 'fast-check'
import type { AgentContext, StepHandle, WorkHandle } from '../../src/curfew.ts'
import { AllTasksFailed, CurfewError, RunFailed, TaskFailed, TaskTimedOut, WaitTimedOut } from '../../src/curfew.ts'

export type How = 'all' | 'allSettled' | 'any' | 'race'

/** What gives a handle. Times are in milliseconds. */
export type Member =
  | {
      do: 'task'
      /** Of each try. */
      ms: number
      end: 'ok' | 'fail' | 'hang'
      /** Tries that fail before that. */
      flaky: number
      delay: number
      timeout: number | null
      detached: boolean
    }
  | { do: 'run'; ms: number; end: 'ok' | 'fail'; flaky: number }
  | { do: 'sleep'; ms: number }
  | { do: 'signal'; name: string; timeout: number | null }
  | { do: 'child'; body: Program; timeout: number | null; cleanup: number; detached: boolean }
  | { do: 'group'; how: How; members: Member[]; timeout: number | null; cancelRest: boolean | null }

export type Program =
  | Member
  | { do: 'seq'; parts: Program[] }
  /** Native combinators, over handles where a branch is one and over async functions otherwise. */
  | { do: 'native'; how: How; branches: Program[] }
  | { do: 'try'; body: Program; rescue: Program | null; final: Program | null }
  /** Started, and never awaited. */
  | { do: 'forget'; member: Member }
  /** Started, and awaited after something else, or cancelled then. */
  | { do: 'later'; member: Member; body: Program; cancel: boolean }
  | { do: 'chance'; ms: number }
  | { do: 'now' }
  | { do: 'throw' }

export type TaskNode = Extract<Member, { do: 'task' }>
export type RunNode = Extract<Member, { do: 'run' }>
export type ChildNode = Extract<Member, { do: 'child' }>

/** What a program is run with; a child gets its own. */
export interface ProgramInput {
  program: Program
  /** `ctx.now()` is told from here on; null: not at all. */
  since: number | null
}

export interface Probe {
  schedule(ctx: AgentContext, place: string, node: TaskNode): WorkHandle
  child(ctx: AgentContext, place: string, node: ChildNode, input: ProgramInput): WorkHandle
  /** The side effect of a run; gives its place. */
  effect(agentId: string, place: string, node: RunNode, signal: AbortSignal): Promise<string>
  /** Code after the step at this place goes on: from here on its result may not change any more. */
  saw(agentId: string, place: string, value: string): void
}

/** Between two tries of a task or a run. */
export const BACKOFF_MS = 700
const BACKOFF = { initial: BACKOFF_MS, max: BACKOFF_MS, factor: 1, jitter: 0 }

export function taskOptions({ delay, timeout, flaky, detached }: TaskNode) {
  return {
    retries: flaky,
    backoff: BACKOFF,
    detached,
    ...(delay > 0 && { delay }),
    ...(timeout !== null && { timeout }),
  }
}

export function childOptions({ timeout, cleanup, detached }: ChildNode) {
  return { cleanup, detached, ...(timeout !== null && { timeout }) }
}

interface Started {
  handle: StepHandle
  /** What it gave, in the words of this file; null when that cannot be its own. */
  read(raw: unknown): unknown
}

const MIXED_UP = 'a result came to a step that it is not of'

export async function interpret({ program, since }: ProgramInput, ctx: AgentContext, probe: Probe): Promise<{ value: unknown }> {
  const { agentId } = ctx

  const start = (node: Member, place: string): Started => {
    switch (node.do) {
      case 'task':
      case 'child': {
        const handle =
          node.do === 'task'
            ? probe.schedule(ctx, place, node)
            : probe.child(ctx, place, node, { program: node.body, since })
        return {
          handle,
          read(raw) {
            if (node.do === 'task' ? raw !== handle.id : !isRecord(raw, 'value')) return null
            probe.saw(agentId, place, handle.id)
            return node.do === 'task' ? `task ${place}` : (raw as { value: unknown }).value
          },
        }
      }
      case 'run': {
        const options = { retries: node.flaky, backoff: BACKOFF }
        const handle = ctx.run('effect', ({ signal }) => probe.effect(agentId, place, node, signal), options)
        return {
          handle,
          read(raw) {
            if (raw !== place) return null
            probe.saw(agentId, place, '')
            return `run ${place}`
          },
        }
      }
      case 'sleep':
        return { handle: ctx.sleep(node.ms), read: (raw) => (raw === undefined ? 'slept' : null) }
      case 'signal':
        return {
          handle: ctx.waitForSignal(node.name, node.timeout === null ? {} : { timeout: node.timeout }),
          read: (raw) => (isRecord(raw, 'signal') ? raw : null),
        }
      case 'group': {
        const members = node.members.map((member, i) => start(member, `${place}.${i}`))
        const options = {
          ...(node.timeout !== null && { timeout: node.timeout }),
          ...(node.cancelRest !== null && { cancelRest: node.cancelRest }),
        }
        const handle: StepHandle = ctx[node.how](
          members.map((member) => member.handle),
          options,
        )
        return { handle, read: (raw) => readGroup(node.how, members, raw) }
      }
    }
  }

  const settle = async (started: Started): Promise<unknown> => readBy([started], await started.handle)

  const branch = (node: Program, place: string): Started =>
    isMember(node)
      ? start(node, place)
      : { handle: evaluate(node, place).then((value) => ({ branch: value })), read: (raw) => (isRecord(raw, 'branch') ? raw.branch : null) }

  const evaluate = async (node: Program, place: string): Promise<unknown> => {
    if (isMember(node)) return settle(start(node, place))
    switch (node.do) {
      case 'seq': {
        const values: unknown[] = []
        for (const [i, part] of node.parts.entries()) values.push(await evaluate(part, `${place}.${i}`))
        return values
      }
      case 'native': {
        const branches = node.branches.map((one, i) => branch(one, `${place}.${i}`))
        const promises = branches.map(({ handle }) => handle)
        if (node.how === 'all') return (await Promise.all(promises)).map((raw, i) => readBy(branches.slice(i, i + 1), raw))
        if (node.how === 'race') return readBy(branches, await Promise.race(promises))
        if (node.how === 'any') return readBy(branches, await Promise.any(promises))
        const ends = await Promise.allSettled(promises)
        return ends.map((end, i) =>
          end.status === 'fulfilled' ? readBy(branches.slice(i, i + 1), end.value) : describeError(end.reason),
        )
      }
      case 'try':
        try {
          return await evaluate(node.body, `${place}.b`)
        } catch (error) {
          if (!node.rescue) throw error
          return { caught: describeError(error), then: await evaluate(node.rescue, `${place}.r`) }
        } finally {
          if (node.final) await evaluate(node.final, `${place}.f`)
        }
      case 'forget':
        start(node.member, place)
        return 'forgotten'
      case 'later': {
        const started = start(node.member, `${place}.m`)
        const value = await evaluate(node.body, `${place}.b`)
        if (node.cancel) ctx.cancel(started.handle)
        return [value, await settle(started)]
      }
      case 'chance': {
        const chance = `${ctx.random()} ${ctx.uuid()} ${since === null ? ctx.now() : ''}`
        await ctx.sleep(node.ms)
        probe.saw(agentId, place, chance)
        return 'chance'
      }
      case 'now': {
        const now = ctx.now()
        return since === null ? 'now' : now - since
      }
      case 'throw':
        throw new Error(`thrown at ${place}`)
    }
  }

  return { value: await evaluate(program, '') }
}

function readBy(started: readonly Started[], raw: unknown): unknown {
  for (const { read } of started) {
    const value = read(raw)
    if (value !== null) return value
  }
  throw new Error(MIXED_UP)
}

function readGroup(how: How, members: readonly Started[], raw: unknown): unknown {
  const read = (index: number, value: unknown) => readBy(members.slice(index, index + 1), value)
  if (how === 'all') {
    return Array.isArray(raw) && raw.length === members.length ? raw.map((value, i) => read(i, value)) : null
  }
  if (how === 'allSettled') {
    if (!isRecord(raw, 'outcomes')) return null
    return describeOutcomes(raw.outcomes as Outcome[], read)
  }
  if (!isRecord(raw, 'index')) return null
  return { first: raw.index, value: read(raw.index as number, raw.value) }
}

interface Outcome {
  index: number
  status: string
  value?: unknown
  error?: unknown
}

function describeOutcomes(outcomes: readonly Outcome[], read: (index: number, value: unknown) => unknown): unknown {
  return outcomes.map(({ index, status, value, error }) =>
    status === 'completed' ? read(index, value) : `${status}: ${describeError(error)}`,
  )
}

/** What is the same in every run: no ids, no times. However something was cancelled, it reads the same. */
export function describeError(error: unknown): string {
  if (error instanceof AllTasksFailed || error instanceof AggregateError) {
    return `none of (${error.errors.map(describeError).join(', ')})`
  }
  if (error instanceof TaskTimedOut) return `timed out: ${error.kind}`
  if (error instanceof WaitTimedOut) {
    const rest = error.settled?.outcomes.map(({ status }) => status) ?? []
    return `waited ${error.timeoutMs} (${rest.join(', ')})`
  }
  if (error instanceof TaskFailed || error instanceof RunFailed) {
    const { code, message } = error.failure
    return code === 'cancelled' ? 'cancelled' : `failed: ${code === 'failed' ? message : code}`
  }
  if (error instanceof CurfewError) return error.code === 'task_cancelled' ? 'cancelled' : error.code
  return (error as Error).message
}

function isRecord(value: unknown, key: string): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && key in value
}

const MEMBERS: readonly Program['do'][] = ['task', 'run', 'sleep', 'signal', 'child', 'group']

function isMember(node: Program): node is Member {
  return MEMBERS.includes(node.do)
}

// Arbitraries.

export const SIGNAL_NAMES = ['a', 'b'] as const

/** `longestMs`: no wait or try is longer, so that times are far apart. */
export function programs(longestMs: number, size: 'small' | 'large' = 'small'): fc.Arbitrary<Program> {
  const ms = fc.noBias(fc.integer({ min: 1, max: longestMs }))
  const maybe = (values: fc.Arbitrary<number>, freq = 2) => fc.option(values, { nil: null, freq })
  const how = fc.constantFrom<How>('all', 'allSettled', 'any', 'race')
  const few = { minLength: 1, maxLength: size === 'small' ? 3 : 5 }
  const task: fc.Arbitrary<TaskNode> = fc
    .record({
      do: fc.constant('task' as const),
      // Few different ones: tasks with the same input, told apart by their delay.
      ms: fc.constantFrom(1, Math.ceil(longestMs / 7)),
      end: fc.constantFrom('ok', 'ok', 'ok', 'fail', 'hang'),
      flaky: fc.constantFrom(0, 0, 0, 1, 2),
      delay: ms,
      timeout: maybe(ms),
      detached: fc.constantFrom(false, false, false, false, true),
    })
    .map((node) => (node.detached && node.end === 'hang' ? { ...node, end: 'ok' } : node))
  const run: fc.Arbitrary<RunNode> = fc.record({
    do: fc.constant('run' as const),
    ms,
    end: fc.constantFrom('ok', 'ok', 'ok', 'fail'),
    flaky: fc.constantFrom(0, 0, 1),
  })
  return fc.letrec<{ program: Program; member: Member; child: ChildNode }>((tie) => ({
    child: fc
      .record({
        do: fc.constant('child' as const),
        body: tie('program'),
        timeout: maybe(ms),
        cleanup: fc.oneof(fc.constant(0), ms, fc.constant(longestMs * 20)),
        detached: fc.constantFrom(false, false, false, false, true),
      })
      .chain((node) => (node.detached && node.timeout === null ? ms.map((timeout) => ({ ...node, timeout })) : fc.constant(node))),
    member: fc.oneof(
      { depthSize: 'small' },
      { weight: 5, arbitrary: task },
      { weight: 3, arbitrary: run },
      { weight: 2, arbitrary: fc.record({ do: fc.constant('sleep' as const), ms }) },
      {
        weight: 2,
        arbitrary: fc.record({
          do: fc.constant('signal' as const),
          name: fc.constantFrom(...SIGNAL_NAMES),
          timeout: maybe(ms, 4),
        }),
      },
      { weight: 3, arbitrary: tie('child') },
      {
        weight: 3,
        arbitrary: fc.record({
          do: fc.constant('group' as const),
          how,
          members: fc.array(tie('member'), few),
          timeout: maybe(ms),
          cancelRest: fc.constantFrom(null, null, true, false),
        }),
      },
    ),
    program: fc.oneof(
      { depthSize: 'small', withCrossShrink: true },
      { weight: 4, arbitrary: tie('member') },
      { weight: 3, arbitrary: fc.record({ do: fc.constant('seq' as const), parts: fc.array(tie('program'), few) }) },
      {
        weight: 3,
        arbitrary: fc.record({ do: fc.constant('native' as const), how, branches: fc.array(tie('program'), few) }),
      },
      {
        weight: 2,
        arbitrary: fc.record({
          do: fc.constant('try' as const),
          body: tie('program'),
          rescue: fc.option(tie('program'), { nil: null, freq: 4 }),
          final: fc.option(tie('program'), { nil: null, freq: 1 }),
        }),
      },
      { weight: 1, arbitrary: fc.record({ do: fc.constant('forget' as const), member: tie('member') }) },
      {
        weight: 1,
        arbitrary: fc.record({
          do: fc.constant('later' as const),
          member: tie('member'),
          body: tie('program'),
          cancel: fc.boolean(),
        }),
      },
      { weight: 1, arbitrary: fc.record({ do: fc.constant('chance' as const), ms }) },
      { weight: 1, arbitrary: fc.constant<Program>({ do: 'now' }) },
      { weight: 1, arbitrary: fc.constant<Program>({ do: 'throw' }) },
    ),
  })).program
}

// Random agents: a program is plain data, the input of the one agent that interprets it. Every step of a kind has the
// same name, and what a step gave is known by itself, so that results handed to the wrong step are found out.

import type { AgentContext, Outcome, StepHandle, WorkHandle } from '../../src/curfew.ts'
import {
  AllTasksFailed,
  CurfewError,
  HandlerError,
  RunFailed,
  Stopped,
  TaskCancelled,
  TaskFailed,
  TaskTimedOut,
  WaitTimedOut,
} from '../../src/curfew.ts'

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
  /** `timeout`: of each try. It does not outlive the process, so only for one that is not disturbed. */
  | { do: 'run'; ms: number; end: 'ok' | 'fail'; flaky: number; timeout: number | null }
  | { do: 'sleep'; ms: number }
  | { do: 'signal'; name: string; timeout: number | null }
  | { do: 'child'; body: Program; timeout: number | null; cleanup: number; detached: boolean }
  | { do: 'group'; how: How; members: Member[]; timeout: number | null; cancelRest: boolean | null }

export type Program =
  | Member
  /** `stubborn`: goes on with the next part after one that failed. */
  | { do: 'seq'; parts: Program[]; stubborn: boolean }
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

export async function interpret(
  { program, since }: ProgramInput,
  ctx: AgentContext,
  probe: Probe,
): Promise<{ output: unknown }> {
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
            if (node.do === 'task' ? raw !== handle.id : !isRecord(raw, 'output')) return null
            probe.saw(agentId, place, handle.id)
            return node.do === 'task' ? `task ${place}` : (raw as { output: unknown }).output
          },
        }
      }
      case 'run': {
        const options = {
          retries: node.flaky,
          backoff: BACKOFF,
          ...(node.timeout !== null && { timeout: node.timeout }),
        }
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
      : {
          handle: evaluate(node, place).then((value) => ({ branch: value })),
          read: (raw) => (isRecord(raw, 'branch') ? raw.branch : null),
        }

  /** What is seen at a place once is seen there in every replay. */
  const evaluate = async (node: Program, place: string): Promise<unknown> => {
    try {
      const value = await evaluateOnce(node, place)
      probe.saw(agentId, `${place}!`, JSON.stringify(value))
      return value
    } catch (error) {
      probe.saw(agentId, `${place}!`, describeError(error))
      throw error
    }
  }

  const evaluateOnce = async (node: Program, place: string): Promise<unknown> => {
    if (isMember(node)) return settle(start(node, place))
    switch (node.do) {
      case 'seq': {
        const values: unknown[] = []
        for (const [i, part] of node.parts.entries()) {
          const value = evaluate(part, `${place}.${i}`)
          values.push(await (node.stubborn ? value.catch(describeError) : value))
        }
        return values
      }
      case 'native': {
        const branches = node.branches.map((one, i) => branch(one, `${place}.${i}`))
        const promises = branches.map(({ handle }) => handle)
        if (node.how === 'all')
          return (await Promise.all(promises)).map((raw, i) => readBy(branches.slice(i, i + 1), raw))
        if (node.how === 'race') return readBy(branches, await Promise.race(promises))
        if (node.how === 'any') return readBy(branches, await Promise.any(promises))
        const ends = await Promise.allSettled(promises)
        return ends.map((end, i) =>
          end.status === 'fulfilled'
            ? readBy(branches.slice(i, i + 1), end.value)
            : describeError(end.reason),
        )
      }
      case 'try':
        try {
          return await evaluate(node.body, `${place}.b`)
        } catch (error) {
          if (!node.rescue) throw error
          return { caught: describeError(error), rescued: await evaluate(node.rescue, `${place}.r`) }
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

  try {
    return { output: await evaluate(program, '') }
  } catch (error) {
    if (error instanceof Stopped || error instanceof TaskCancelled) throw error
    throw new HandlerError('it failed', { code: describeError(error) })
  }
}

function readBy(started: readonly Started[], raw: unknown): unknown {
  for (const { read } of started) {
    const value = read(raw)
    if (value !== null) return value
  }
  throw new Error(MIXED_UP)
}

function readGroup(how: How, members: readonly Started[], raw: unknown): unknown {
  const read = (index: number, value: unknown) => members[index]?.read(value) ?? null
  let values: unknown[]
  if (how === 'all') {
    if (!Array.isArray(raw) || raw.length !== members.length) return null
    values = raw.map((value, i) => read(i, value))
  } else if (how === 'allSettled') {
    if (!isRecord(raw, 'outcomes') || !Array.isArray(raw.outcomes)) return null
    values = raw.outcomes.map((outcome: Outcome) =>
      outcome.status === 'completed' ? read(outcome.index, outcome.value) : describeOutcome(outcome),
    )
  } else {
    if (!isRecord(raw, 'index')) return null
    values = [raw.index, read(raw.index as number, raw.value)]
  }
  return values.includes(null) ? null : values
}

/** What is the same in every run: no ids, no times. However something was cancelled, it reads the same. */
function describeError(error: unknown): string {
  if (error instanceof AllTasksFailed || error instanceof AggregateError) {
    return `none of (${error.errors.map(describeError).join(', ')})`
  }
  if (error instanceof TaskTimedOut) return `timed out: ${error.kind}`
  if (error instanceof WaitTimedOut) {
    const rest = error.settled?.outcomes.map(describeOutcome) ?? []
    return `waited ${error.timeoutMs} (${rest.join(', ')})`
  }
  if (error instanceof TaskFailed || error instanceof RunFailed) {
    const code = describeCode(error.failure.code)
    return code === 'cancelled' ? code : `failed: ${code === 'failed' ? error.failure.message : code}`
  }
  return error instanceof CurfewError ? describeCode(error.code) : (error as Error).message
}

function describeOutcome(outcome: Outcome): string {
  if (outcome.status === 'completed') return outcome.status
  const what = describeError(outcome.error)
  return what === 'cancelled' ? what : `${outcome.status}: ${what}`
}

export function describeCode(code: string): string {
  return code === 'task_cancelled' ? 'cancelled' : code
}

function isRecord(value: unknown, key: string): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && key in value
}

const MEMBERS: readonly Program['do'][] = ['task', 'run', 'sleep', 'signal', 'child', 'group']

function isMember(node: Program): node is Member {
  return MEMBERS.includes(node.do)
}

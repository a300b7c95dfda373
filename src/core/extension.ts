/**
 * Extensions: more time for an attempt that shows progress. Pure; the state belongs to one attempt, so a new
 * attempt starts with the full budget.
 */
import { MAX_EXTENSION_REQUESTS } from './limits.ts'
import type { Progress } from './states.ts'

export interface ExtensionRules {
  baseMs: number
  minMs: number
  maxGrants: number
  /** The grant that leaves this many or fewer carries the warning, once. */
  warnAtRemaining: number
  /** From the first request after the last grant until the attempt is stopped as stuck. */
  exhaustedGraceMs: number
  /** So many denials in a row stop the attempt as stuck. */
  maxDenials: number
}

export const DEFAULT_EXTENSION_RULES: ExtensionRules = {
  baseMs: 30_000,
  minMs: 1_000,
  maxGrants: 5,
  warnAtRemaining: 1,
  exhaustedGraceMs: 10_000,
  maxDenials: 3,
}

export interface ExtensionState {
  grants: number
  grantedMs: number
  denials: number
  warned: boolean
  /** Progress at the last grant. */
  progress: Progress
  exhaustedAt: number | null
  answers: { requestId: string; answer: ExtensionAnswer }[]
}

export type ExtensionAnswer =
  | { granted: true; ms: number; remaining: number; warning: boolean }
  | { granted: false; reason: 'no_progress' | 'exhausted'; remaining: number; stopAt: number | null }

export const NO_EXTENSIONS: ExtensionState = {
  grants: 0,
  grantedMs: 0,
  denials: 0,
  warned: false,
  progress: {},
  exhaustedAt: null,
  answers: [],
}

export interface ExtensionDecision {
  state: ExtensionState
  answer: ExtensionAnswer
  /** The same request again: nothing changes. */
  repeated: boolean
}

export function decideExtension(
  state: ExtensionState,
  rules: ExtensionRules,
  request: { requestId: string; progress: Progress },
  now: number,
): ExtensionDecision {
  const earlier = state.answers.find(({ requestId }) => requestId === request.requestId)
  if (earlier) return { state, answer: earlier.answer, repeated: true }
  const remaining = rules.maxGrants - state.grants
  // Where there are none at all, asking is no offence.
  if (rules.maxGrants === 0) {
    const answer: ExtensionAnswer = { granted: false, reason: 'exhausted', remaining: 0, stopAt: null }
    return { state, answer, repeated: false }
  }
  if (remaining <= 0) return deny(state, rules, request.requestId, 'exhausted', now)
  if (state.grants > 0 && !isMore(request.progress, state.progress)) {
    return deny(state, rules, request.requestId, 'no_progress', now)
  }
  const ms = Math.max(rules.minMs, Math.round(rules.baseMs / 2 ** (state.grants + 1)))
  const warning = !state.warned && remaining - 1 <= rules.warnAtRemaining
  const answer: ExtensionAnswer = { granted: true, ms, remaining: remaining - 1, warning }
  return {
    answer,
    repeated: false,
    state: {
      ...state,
      grants: state.grants + 1,
      grantedMs: state.grantedMs + ms,
      denials: 0,
      warned: state.warned || warning,
      progress: request.progress,
      answers: remember(state, request.requestId, answer),
    },
  }
}

function deny(
  state: ExtensionState,
  rules: ExtensionRules,
  requestId: string,
  reason: 'no_progress' | 'exhausted',
  now: number,
): ExtensionDecision {
  const denials = state.denials + 1
  const exhaustedAt = reason === 'exhausted' ? (state.exhaustedAt ?? now) : state.exhaustedAt
  const stopAt =
    denials >= rules.maxDenials ? now : exhaustedAt === null ? null : exhaustedAt + rules.exhaustedGraceMs
  const answer: ExtensionAnswer = {
    granted: false,
    reason,
    remaining: Math.max(0, rules.maxGrants - state.grants),
    stopAt,
  }
  const answers = remember(state, requestId, answer)
  return { answer, repeated: false, state: { ...state, denials, exhaustedAt, answers } }
}

function remember(state: ExtensionState, requestId: string, answer: ExtensionAnswer) {
  return [...state.answers, { requestId, answer }].slice(-MAX_EXTENSION_REQUESTS)
}

/** Completed items decide where either side has them; the ratio only where neither does. */
export function isMore(progress: Progress, than: Progress): boolean {
  if (progress.completed !== undefined || than.completed !== undefined) {
    return (progress.completed ?? 0) > (than.completed ?? 0)
  }
  return (progress.fraction ?? 0) > (than.fraction ?? 0)
}

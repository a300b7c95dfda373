/** The messages of the worker port on the wire. Those that every task sends are written out. */
import { create } from '@bufbuild/protobuf'
import type { ExtensionAnswer } from '../core/extension.ts'
import type { Failure, LateResult } from '../core/failure.ts'
import type { Progress, Receipt, StopReason } from '../core/states.ts'
import type { TraceContext } from '../core/trace-context.ts'
import { FailureSchema, ProgressSchema, TraceContextSchema } from './gen/curfew/v1/work_pb.ts'
import type {
  Assignment as AssignmentMessage,
  AttachResponse,
  LateResult as LateResultMessage,
  ReportAnswer as ReportAnswerMessage,
  Report as ReportMessage,
} from './gen/curfew/v1/workers_pb.ts'
import {
  AttachResponseSchema,
  ExtensionAnswerSchema,
  LateResultSchema,
  LimitsSchema,
  ReportAnswerSchema,
  ScopeSchema,
  StopReasonSchema,
} from './gen/curfew/v1/workers_pb.ts'
import { fromPlain, toPlain } from './plain.ts'
import type { Assignment, DownMessage, Report, ReportAnswer, Turn } from './worker-port.ts'

export function downToWire(message: DownMessage): AttachResponse {
  switch (message.type) {
    case 'start':
      return down('start', {
        $typeName: 'curfew.v1.Start',
        assignments: message.assignments.map(assignmentToWire),
      })
    case 'stop': {
      const { taskId, token, reason, graceMs } = message
      const stop = { $typeName: 'curfew.v1.Stop', taskId, token, graceMs } as const
      return down('stop', { ...stop, reason: fromPlain(StopReasonSchema, reason) })
    }
    case 'limits':
      return down('limits', fromPlain(LimitsSchema, message))
    case 'turns':
      return down('turns', {
        $typeName: 'curfew.v1.Turns',
        turns: message.turns.map((turn) => JSON.stringify(turn)),
      })
    case 'news': {
      const { agentId, token, dropped } = message
      return down('news', { $typeName: 'curfew.v1.News', agentId, token, dropped })
    }
  }
}

type Down = NonNullable<AttachResponse['message']>

export function down<Case extends NonNullable<Down['case']>>(
  name: Case,
  value: Extract<Down, { case: Case }>['value'],
): AttachResponse {
  return create(AttachResponseSchema, { message: { case: name, value } as never })
}

/** Null for those that are not of the port: welcome, ping, goodbye. */
export function downFromWire({ message }: AttachResponse): DownMessage | null {
  switch (message.case) {
    case 'start':
      return {
        type: 'start',
        assignments: message.value.assignments.map(assignmentFromWire),
      }
    case 'stop': {
      const { taskId, token, reason, graceMs } = message.value
      return { type: 'stop', taskId, token, graceMs, reason: reasonFromWire(reason) }
    }
    case 'limits':
      return {
        type: 'limits',
        ...toPlain<Omit<Extract<DownMessage, { type: 'limits' }>, 'type'>>(LimitsSchema, message.value),
      }
    case 'turns':
      return { type: 'turns', turns: message.value.turns.map((text) => JSON.parse(text) as Turn) }
    case 'news': {
      const { agentId, token, dropped } = message.value
      return { type: 'news', agentId, token, dropped }
    }
    default:
      return null
  }
}

export function assignmentToWire(one: Assignment): AssignmentMessage {
  const { scope, trace } = one
  return {
    $typeName: 'curfew.v1.Assignment',
    taskId: one.taskId,
    name: one.name,
    queue: one.queue,
    attempt: one.attempt,
    token: one.token,
    input: one.input,
    details: one.details ?? undefined,
    deadlineAt: one.deadlineAt ?? undefined,
    attemptMs: one.attemptMs ?? undefined,
    totalMs: one.totalMs ?? undefined,
    softStopMs: one.softStopMs,
    beatEveryMs: one.beatEveryMs,
    graceMs: one.graceMs,
    scope: scope ? fromPlain(ScopeSchema, scope) : undefined,
    trace: trace ? fromPlain(TraceContextSchema, trace) : undefined,
  }
}

export function assignmentFromWire(message: AssignmentMessage): Assignment {
  const { scope, trace } = message
  return {
    taskId: message.taskId,
    name: message.name,
    queue: message.queue,
    attempt: message.attempt,
    token: message.token,
    input: message.input,
    details: message.details ?? null,
    deadlineAt: message.deadlineAt ?? null,
    attemptMs: message.attemptMs ?? null,
    totalMs: message.totalMs ?? null,
    softStopMs: message.softStopMs,
    beatEveryMs: message.beatEveryMs,
    graceMs: message.graceMs,
    trace: trace ? toPlain<TraceContext>(TraceContextSchema, trace) : null,
    scope: scope ? toPlain<Assignment['scope']>(ScopeSchema, scope) : null,
  }
}

function reasonFromWire(reason: object | undefined): StopReason {
  return reason ? toPlain<StopReason>(StopReasonSchema, reason) : { code: 'stale', message: 'it has to stop' }
}

export function reportToWire(report: Report): ReportMessage {
  return {
    $typeName: 'curfew.v1.Report',
    taskId: report.taskId,
    token: report.token,
    what: whatToWire(report),
  }
}

function whatToWire(report: Report): ReportMessage['what'] {
  switch (report.type) {
    case 'completed':
      return { case: 'completed', value: report.output }
    case 'failed':
      return { case: 'failed', value: fromPlain(FailureSchema, report.failure) }
    case 'beat': {
      const { progress, details, moved } = report
      const value = {
        ...{ $typeName: 'curfew.v1.Beat' as const, moved },
        ...(progress && { progress: fromPlain(ProgressSchema, progress) }),
        ...(details !== null && { details }),
      }
      return { case: 'beat', value }
    }
    case 'extend': {
      const { requestId, progress } = report
      const value = { requestId, progress: fromPlain(ProgressSchema, progress) }
      return { case: 'extend', value: { $typeName: 'curfew.v1.Extend', ...value } }
    }
    case 'note': {
      const { events, limitMs, limitOf, letters } = report
      const value = {
        ...{ $typeName: 'curfew.v1.Note' as const, unlimited: limitMs === null },
        events: events.map((event) => JSON.stringify(event)),
        letters: letters.map((letter) => JSON.stringify(letter)),
        ...(typeof limitMs === 'number' && { limitMs }),
        ...(limitOf && { limitOf: JSON.stringify(limitOf) }),
      }
      return { case: 'note', value }
    }
    case 'overdue':
      return { case: 'overdue', value: { $typeName: 'curfew.v1.Overdue' } }
    case 'stopped': {
      const { reason, receipt, late } = report
      const value = {
        ...{ $typeName: 'curfew.v1.Stopped' as const, receipt, reason: fromPlain(StopReasonSchema, reason) },
        ...(late && { late: lateToWire(late) }),
      }
      return { case: 'stopped', value }
    }
    case 'returned':
      return { case: 'returned', value: lateToWire(report.late) }
  }
}

/** Null for one that says nothing. */
export function reportFromWire({ taskId, token, what }: ReportMessage): Report | null {
  switch (what.case) {
    case 'completed':
      return { taskId, token, type: 'completed', output: what.value }
    case 'failed':
      return { taskId, token, type: 'failed', failure: toPlain<Failure>(FailureSchema, what.value) }
    case 'beat': {
      const { progress, details, moved } = what.value
      return {
        ...{ taskId, token, type: 'beat', moved, details: details ?? null },
        progress: progress ? toPlain<Progress>(ProgressSchema, progress) : null,
      }
    }
    case 'extend': {
      const { requestId, progress } = what.value
      return {
        ...{ taskId, token, type: 'extend', requestId },
        progress: progress ? toPlain<Progress>(ProgressSchema, progress) : {},
      }
    }
    case 'note': {
      const { events, limitMs, unlimited, limitOf, letters } = what.value
      const limit = unlimited ? null : limitMs
      return {
        ...{ taskId, token, type: 'note', ...(limit !== undefined && { limitMs: limit }) },
        events: events.map((text) => JSON.parse(text)),
        letters: letters.map((text) => JSON.parse(text)),
        ...(limitOf !== undefined && { limitOf: JSON.parse(limitOf) }),
      }
    }
    case 'overdue':
      return { taskId, token, type: 'overdue' }
    case 'stopped': {
      const { reason, receipt, late } = what.value
      return {
        ...{ taskId, token, type: 'stopped', receipt: receipt as Receipt, reason: reasonFromWire(reason) },
        late: late ? lateFromWire(late) : null,
      }
    }
    case 'returned':
      return { taskId, token, type: 'returned', late: lateFromWire(what.value) ?? NOTHING_SAID }
    default:
      return null
  }
}

const NOTHING_SAID: LateResult = {
  failure: { code: 'failed', message: 'it came back without a word', retryable: false },
}

function lateToWire(late: LateResult): LateResultMessage {
  return create(LateResultSchema, {
    what:
      'output' in late
        ? { case: 'output', value: late.output }
        : { case: 'failure', value: fromPlain(FailureSchema, late.failure) },
  })
}

function lateFromWire({ what }: LateResultMessage): LateResult | null {
  if (what.case === 'output') return { output: what.value }
  return what.case === 'failure' ? { failure: toPlain<Failure>(FailureSchema, what.value) } : null
}

const ACCEPTED: ReportAnswerMessage = create(ReportAnswerSchema, {
  what: { case: 'accepted', value: { $typeName: 'curfew.v1.Accepted' } },
})

export function answerToWire(answer: ReportAnswer): ReportAnswerMessage {
  switch (answer.type) {
    case 'accepted':
      return ACCEPTED
    case 'stale':
      return create(ReportAnswerSchema, {
        what: { case: 'stale', value: fromPlain(StopReasonSchema, answer.reason) },
      })
    case 'extension': {
      const value = fromPlain(ExtensionAnswerSchema, { ...answer.answer, deadlineAt: answer.deadlineAt })
      return create(ReportAnswerSchema, { what: { case: 'extension', value } })
    }
    case 'limits':
      return create(ReportAnswerSchema, { what: { case: 'limits', value: fromPlain(LimitsSchema, answer) } })
    case 'refused':
      return create(ReportAnswerSchema, { what: { case: 'refused', value: answer.message } })
  }
}

export function answerFromWire({ what }: ReportAnswerMessage): ReportAnswer {
  switch (what.case) {
    case 'stale':
      return { type: 'stale', reason: reasonFromWire(what.value) }
    case 'extension': {
      const { granted, ms, remaining, warning, reason, stopAt, deadlineAt } = what.value
      const answer: ExtensionAnswer = granted
        ? { granted, ms: ms ?? 0, remaining, warning: warning ?? false }
        : { granted, reason: (reason ?? 'exhausted') as 'exhausted', remaining, stopAt: stopAt ?? null }
      return { type: 'extension', answer, deadlineAt: deadlineAt ?? null }
    }
    case 'limits': {
      const { deadlineAt = null, attemptMs = null, totalMs = null } = what.value
      return { type: 'limits', deadlineAt, attemptMs, totalMs }
    }
    case 'refused':
      return { type: 'refused', message: what.value }
    default:
      return { type: 'accepted' }
  }
}

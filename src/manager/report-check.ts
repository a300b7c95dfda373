/**
 * What workers of other processes report, looked at before anything is decided: a result that cannot be kept fails its
 * attempt, what is said beside it is cut to what makes sense, and what says nothing at all is refused.
 */
import { CurfewError } from '../core/errors.ts'
import type { LateResult } from '../core/failure.ts'
import { boundFailure } from '../core/failure.ts'
import { checkJsonText } from '../core/json.ts'
import { MAX_DETAILS_BYTES, MAX_FAILURE_TEXT, MAX_NAME_LENGTH } from '../core/limits.ts'
import { checkNote } from '../core/note.ts'
import type { Progress, StopReason } from '../core/states.ts'
import { RECEIPTS, STOP_CODES, TASK_TIMEOUT_KINDS } from '../core/states.ts'
import type { Report } from '../wire/worker-port.ts'

/** `index`: its place among those that came together. */
export function checkReport(report: Report, index: number): Report {
  const { taskId, token } = report
  if (!isName(taskId)) throw invalid(`reports[${index}].taskId is none`)
  if (!isName(token)) throw invalid(`reports[${index}].token is none`)
  if (report.type === 'completed') {
    const failure = problemOf(report.output, 'its output')
    return failure ? { taskId, token, type: 'failed', failure } : report
  }
  return checkOther(report, `reports[${index}]`)
}

function isName(text: string): boolean {
  return text.length <= MAX_NAME_LENGTH && !text.includes('\u0000')
}

function checkOther(report: Exclude<Report, { type: 'completed' }>, at: string): Report {
  const { taskId, token } = report
  switch (report.type) {
    case 'failed':
      return { ...report, failure: boundFailure(report.failure) }
    case 'beat': {
      const { progress, details } = report
      const kept = details !== null && !problemOf(details, 'details', MAX_DETAILS_BYTES) ? details : null
      return { ...report, progress: progress && sensible(progress), details: kept }
    }
    case 'extend':
      if (report.requestId.length > MAX_NAME_LENGTH) throw invalid(`${at}: its request_id is too long`)
      return { ...report, progress: sensible(report.progress) }
    case 'stopped':
      if (!RECEIPTS.includes(report.receipt)) throw invalid(`${at}: its receipt is none of ${RECEIPTS}`)
      return {
        ...report,
        reason: checkReason(report.reason, at),
        late: report.late && checkLate(report.late),
      }
    case 'returned':
      return { ...report, late: checkLate(report.late) }
    case 'note':
      return { taskId, token, type: 'note', ...checkNote(report, at) }
    case 'overdue':
      return report
  }
}

/** What is wrong with a text that should be JSON. */
function problemOf(text: string, what: string, maxBytes?: number) {
  try {
    checkJsonText(text, what, maxBytes)
    return null
  } catch (error) {
    const { code, message } = error as CurfewError
    return { code, message, retryable: false }
  }
}

function checkLate(late: LateResult): LateResult {
  if ('failure' in late) return { failure: boundFailure(late.failure) }
  const failure = problemOf(late.output, 'its output')
  return failure ? { failure } : late
}

function checkReason(reason: StopReason, at: string): StopReason {
  const { code, message, kind, deadlineAt, timeoutMs } = reason
  if (!STOP_CODES.includes(code)) throw invalid(`${at}: the code of its reason is none of ${STOP_CODES}`)
  return {
    ...{ code, message: message.slice(0, MAX_FAILURE_TEXT) },
    ...(kind !== undefined && TASK_TIMEOUT_KINDS.includes(kind) && { kind }),
    ...(Number.isFinite(deadlineAt) && { deadlineAt }),
    ...(Number.isFinite(timeoutMs) && { timeoutMs }),
  } as StopReason
}

/** As handlers may report it. */
function sensible({ fraction, completed, total }: Progress): Progress {
  const isCount = (count: number | undefined) => count !== undefined && count >= 0 && count < Infinity
  return {
    ...(isCount(fraction) && (fraction as number) <= 1 && { fraction }),
    ...(isCount(completed) && { completed }),
    ...(isCount(total) && { total }),
  } as Progress
}

function invalid(message: string): CurfewError {
  return new CurfewError('invalid_request', message)
}

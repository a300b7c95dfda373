/** A batch of reports by hand: a task that ended well is what is reported most. All else is left to the library. */
import { create, fromBinary, toBinary } from '@bufbuild/protobuf'
import { CurfewError } from '../core/errors.ts'
import { MAX_MESSAGE_DEPTH } from '../core/limits.ts'
import type { ReportRequest } from './gen/curfew/v1/workers_pb.ts'
import { ReportRequestSchema, ReportSchema } from './gen/curfew/v1/workers_pb.ts'
import { bytesOf, FieldReader, isPlain, textField } from './quick-fields.ts'
import { reportFromWire, reportToWire } from './worker-messages.ts'
import type { Report } from './worker-port.ts'

/** What travels with the reports of one batch. */
export type ReportsHead = Pick<ReportRequest, 'workerId' | 'number' | 'draining' | 'turns'> & {
  wakes: { agentId: string; rootId: string; token: string }[]
}

type Completed = Extract<Report, { type: 'completed' }>

/** `reports`: null for one that says nothing. */
export type ReportsRequest = ReportsHead & { reports: (Report | null)[] }

/** The numbers of fields. */
const REQUEST = { workerId: 1, number: 2, reports: 3, turns: 4, wakes: 5, draining: 6 }
const REPORT = { taskId: 1, token: 2, completed: 3 }

const MOST_COMPARED = 100

const DEPTH = { recursionLimit: MAX_MESSAGE_DEPTH }

export function reportsToBytes(head: ReportsHead, reports: readonly Report[]): Uint8Array {
  try {
    // Messages behind each other are one.
    const begin = toBinary(ReportRequestSchema, create(ReportRequestSchema, head))
    let rest = ''
    let last: Alike | null = null
    for (const report of reports) {
      if (report.type === 'completed' && !last?.isLike(report)) last = new Alike(report.token, report.output)
      rest += textField(REQUEST.reports, reportText(report, last))
    }
    return Buffer.concat([begin, bytesOf(rest)])
  } catch (error) {
    throw new CurfewError('invalid_request', `it cannot be sent: ${(error as Error).message}`)
  }
}

function reportText(report: Report, last: Alike | null): string {
  const { taskId, type } = report
  if (type !== 'completed' || !last?.isPlain || !isPlain(taskId))
    return Buffer.from(toBinary(ReportSchema, reportToWire(report))).toString('latin1')
  return textField(REPORT.taskId, taskId) + last.rest
}

/** All but the id: what was claimed together has one token, and many end with the same. */
class Alike {
  readonly token: string
  readonly output: string
  readonly isPlain: boolean
  readonly rest: string

  constructor(token: string, output: string) {
    this.token = token
    this.output = output
    this.isPlain = isPlain(token) && isPlain(output)
    this.rest = textField(REPORT.token, token) + textField(REPORT.completed, output)
  }

  isLike({ token, output }: { token: string; output: string }): boolean {
    return token === this.token && output === this.output
  }
}

export function reportsFromBytes(body: Buffer): ReportsRequest {
  const reader = new FieldReader(body)
  let last: Alike | null = null
  const readReport = () => {
    const report = readCompleted(reader, last)
    // A long one is hardly the same again, and looking costs.
    if (report && report.output.length > MOST_COMPARED) last = null
    else if (report && !last?.isLike(report)) last = new Alike(report.token, report.output)
    return report
  }
  const reports: (Report | null)[] = []
  const others: Buffer[] = []
  while (reader.next()) {
    if (reader.no === REQUEST.reports) {
      reports.push(reader.message(readReport) ?? reportFromField(reader.bytes))
      continue
    }
    if (!skipOfHead(reader)) return allFromBytes(body)
    others.push(reader.bytes)
  }
  if (!reader.done) return allFromBytes(body)
  return { ...fromBinary(ReportRequestSchema, Buffer.concat(others), DEPTH), reports }
}

/** Not over what is unknown, or not as it should be: the library has its own way with that. */
function skipOfHead(reader: FieldReader): boolean {
  switch (reader.no) {
    case REQUEST.workerId:
    case REQUEST.turns:
    case REQUEST.wakes:
      return reader.skip()
    case REQUEST.number:
    case REQUEST.draining:
      return reader.count() !== null
    default:
      return false
  }
}

function allFromBytes(body: Buffer): ReportsRequest {
  return reportsFromWire(fromBinary(ReportRequestSchema, body, DEPTH))
}

export function reportsFromWire(request: ReportRequest): ReportsRequest {
  return { ...request, reports: request.reports.map(reportFromWire) }
}

/** `last`: the one before it, which it may be like. */
function readCompleted(reader: FieldReader, last: Alike | null): Completed | null {
  let taskId = ''
  let token = ''
  let output: string | null = null
  while (reader.next()) {
    const text = reader.text()
    if (text === null) return null
    if (reader.no === REPORT.taskId) {
      taskId = text
      if (!last?.isPlain || !reader.passes(last.rest)) continue
      token = last.token
      output = last.output
    } else if (reader.no === REPORT.token) token = text
    else if (reader.no === REPORT.completed) output = text
    else return null
  }
  return output === null ? null : { taskId, token, type: 'completed', output }
}

function reportFromField(field: Buffer): Report | null {
  const [report] = fromBinary(ReportRequestSchema, field, DEPTH).reports
  return report ? reportFromWire(report) : null
}

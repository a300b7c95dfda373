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

/** `reports`: null for one that says nothing. */
export type ReportsRequest = ReportsHead & { reports: (Report | null)[] }

/** The numbers of fields. */
const REQUEST = { reports: 3 }
const REPORT = { taskId: 1, token: 2, completed: 3 }

const DEPTH = { recursionLimit: MAX_MESSAGE_DEPTH }

export function reportsToBytes(head: ReportsHead, reports: readonly Report[]): Uint8Array {
  try {
    // Messages behind each other are one.
    const begin = toBinary(ReportRequestSchema, create(ReportRequestSchema, head))
    let rest = ''
    for (const report of reports) rest += textField(REQUEST.reports, reportText(report))
    return Buffer.concat([begin, bytesOf(rest)])
  } catch (error) {
    throw new CurfewError('invalid_request', `it cannot be sent: ${(error as Error).message}`)
  }
}

function reportText(report: Report): string {
  const { taskId, token, type } = report
  if (type !== 'completed' || !isPlain(taskId) || !isPlain(token) || !isPlain(report.output))
    return Buffer.from(toBinary(ReportSchema, reportToWire(report))).toString('latin1')
  return (
    textField(REPORT.taskId, taskId) +
    textField(REPORT.token, token) +
    textField(REPORT.completed, report.output)
  )
}

export function reportsFromBytes(body: Buffer): ReportsRequest {
  const reader = new FieldReader(body)
  const readReport = () => readCompleted(reader)
  const reports: (Report | null)[] = []
  const others: Buffer[] = []
  while (reader.next()) {
    if (reader.no !== REQUEST.reports) {
      reader.skip()
      others.push(reader.bytes)
    } else reports.push(reader.message(readReport) ?? reportFromField(reader.bytes))
  }
  if (!reader.done) return reportsFromWire(fromBinary(ReportRequestSchema, body, DEPTH))
  return { ...fromBinary(ReportRequestSchema, Buffer.concat(others), DEPTH), reports }
}

export function reportsFromWire(request: ReportRequest): ReportsRequest {
  return { ...request, reports: request.reports.map(reportFromWire) }
}

function readCompleted(reader: FieldReader): Report | null {
  let taskId = ''
  let token = ''
  let output: string | null = null
  while (reader.next()) {
    const text = reader.text()
    if (text === null) return null
    if (reader.no === REPORT.taskId) taskId = text
    else if (reader.no === REPORT.token) token = text
    else if (reader.no === REPORT.completed) output = text
    else return null
  }
  return output === null ? null : { taskId, token, type: 'completed', output }
}

function reportFromField(field: Buffer): Report | null {
  const [report] = fromBinary(ReportRequestSchema, field, DEPTH).reports
  return report ? reportFromWire(report) : null
}

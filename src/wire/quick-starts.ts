/** What goes down to a worker by hand: assignments, of which every task has one. All else is left to the library. */
import { fromBinary, toBinary } from '@bufbuild/protobuf'
import { MAX_MESSAGE_DEPTH } from '../core/limits.ts'
import type { AttachResponse } from './gen/curfew/v1/workers_pb.ts'
import { AssignmentSchema, AttachResponseSchema, StartSchema } from './gen/curfew/v1/workers_pb.ts'
import { bytesOf, countField, doubleField, FieldReader, isPlain, textField } from './quick-fields.ts'
import { assignmentFromWire, assignmentToWire, downFromWire, downToWire } from './worker-messages.ts'
import type { Assignment, DownMessage } from './worker-port.ts'

/** Of the port, or one of those that are not: welcome, ping, goodbye. */
export type Down = DownMessage | AttachResponse

/** The numbers of fields. */
const RESPONSE = { start: 2 }
const START = { assignments: 1 }
const ASSIGNMENT = {
  ...{ taskId: 1, name: 2, queue: 3, attempt: 4, token: 5, input: 6 },
  ...{ deadlineAt: 8, attemptMs: 9, totalMs: 10, softStopMs: 11, beatEveryMs: 12, graceMs: 13 },
}

const DEPTH = { recursionLimit: MAX_MESSAGE_DEPTH }

export function downMessage(down: Down): AttachResponse {
  return '$typeName' in down ? down : downToWire(down)
}

export function downToBytes(down: Down): Uint8Array {
  if (!('type' in down) || down.type !== 'start') return toBinary(AttachResponseSchema, downMessage(down))
  let assignments = ''
  let last: Alike | null = null
  for (const one of down.assignments) {
    if (!last?.isLike(one)) last = new Alike(one)
    assignments += textField(START.assignments, assignmentText(one, last))
  }
  return bytesOf(textField(RESPONSE.start, assignments))
}

function assignmentText(one: Assignment, { isPlain: rest, head, tail }: Alike): string {
  const { taskId, input } = one
  const plain = rest && one.details === null && one.scope === null && one.trace === null
  if (!plain || !isPlain(taskId) || !isPlain(input))
    return Buffer.from(toBinary(AssignmentSchema, assignmentToWire(one))).toString('latin1')
  return textField(ASSIGNMENT.taskId, taskId) + head + textField(ASSIGNMENT.input, input) + tail
}

/** All but the id and the input, which are hardly ever another's: written and compared once for many. */
class Alike {
  readonly of: Assignment
  readonly isPlain: boolean
  readonly head: string
  readonly tail: string

  constructor(one: Assignment) {
    const { name, queue, attempt, token, deadlineAt, attemptMs, totalMs } = one
    this.of = one
    this.isPlain = isPlain(name + queue + token)
    this.head =
      textField(ASSIGNMENT.name, name) +
      textField(ASSIGNMENT.queue, queue) +
      countField(ASSIGNMENT.attempt, attempt) +
      textField(ASSIGNMENT.token, token)
    this.tail =
      (deadlineAt === null ? '' : doubleField(ASSIGNMENT.deadlineAt, deadlineAt)) +
      (attemptMs === null ? '' : doubleField(ASSIGNMENT.attemptMs, attemptMs)) +
      (totalMs === null ? '' : doubleField(ASSIGNMENT.totalMs, totalMs)) +
      doubleField(ASSIGNMENT.softStopMs, one.softStopMs) +
      doubleField(ASSIGNMENT.beatEveryMs, one.beatEveryMs) +
      doubleField(ASSIGNMENT.graceMs, one.graceMs)
  }

  isLike(one: Assignment): boolean {
    const { of } = this
    return (
      one.token === of.token &&
      one.name === of.name &&
      one.queue === of.queue &&
      one.attempt === of.attempt &&
      one.deadlineAt === of.deadlineAt &&
      one.attemptMs === of.attemptMs &&
      one.totalMs === of.totalMs &&
      one.softStopMs === of.softStopMs &&
      one.beatEveryMs === of.beatEveryMs &&
      one.graceMs === of.graceMs
    )
  }
}

export function downFromBytes(bytes: Buffer): Down {
  const reader = new FieldReader(bytes)
  if (reader.next() && reader.no === RESPONSE.start) {
    const assignments = reader.message(() => readAssignments(reader))
    if (assignments && reader.done) return { type: 'start', assignments }
  }
  const message = fromBinary(AttachResponseSchema, bytes, DEPTH)
  return downFromWire(message) ?? message
}

function readAssignments(reader: FieldReader): Assignment[] | null {
  const assignments: Assignment[] = []
  let last: Alike | null = null
  const readOne = () => readAssignment(reader, last)
  while (reader.next()) {
    if (reader.no !== START.assignments) return null
    const one = reader.message(readOne) ?? assignmentFromField(reader.bytes)
    if (!one) return null
    if (!last?.isLike(one)) last = new Alike(one)
    assignments.push(one)
  }
  return assignments
}

/** `last`: the one before it, which it may be like. */
function readAssignment(reader: FieldReader, last: Alike | null): Assignment | null {
  const one = new PlainAssignment()
  while (reader.next()) {
    let value: string | number | null
    switch (reader.no) {
      case ASSIGNMENT.taskId:
        value = one.taskId = reader.text() as string
        if (last?.isPlain && value !== null && reader.passes(last.head)) one.takeHead(last.of)
        break
      case ASSIGNMENT.name:
        value = one.name = reader.text() as string
        break
      case ASSIGNMENT.queue:
        value = one.queue = reader.text() as string
        break
      case ASSIGNMENT.attempt:
        value = one.attempt = reader.count() as number
        break
      case ASSIGNMENT.token:
        value = one.token = reader.text() as string
        break
      case ASSIGNMENT.input:
        value = one.input = reader.text() as string
        if (last?.isPlain && value !== null && reader.passes(last.tail)) one.takeTail(last.of)
        break
      case ASSIGNMENT.deadlineAt:
        value = one.deadlineAt = reader.double()
        break
      case ASSIGNMENT.attemptMs:
        value = one.attemptMs = reader.double()
        break
      case ASSIGNMENT.totalMs:
        value = one.totalMs = reader.double()
        break
      case ASSIGNMENT.softStopMs:
        value = one.softStopMs = reader.double() as number
        break
      case ASSIGNMENT.beatEveryMs:
        value = one.beatEveryMs = reader.double() as number
        break
      case ASSIGNMENT.graceMs:
        value = one.graceMs = reader.double() as number
        break
      default:
        return null
    }
    if (value === null) return null
  }
  return one
}

/** One that has nothing out of the ordinary. */
class PlainAssignment implements Assignment {
  taskId = ''
  name = ''
  queue = ''
  attempt = 0
  token = ''
  input = ''
  readonly details = null
  deadlineAt: number | null = null
  attemptMs: number | null = null
  totalMs: number | null = null
  softStopMs = 0
  beatEveryMs = 0
  graceMs = 0
  readonly trace = null
  readonly scope = null

  takeHead({ name, queue, attempt, token }: Assignment): void {
    this.name = name
    this.queue = queue
    this.attempt = attempt
    this.token = token
  }

  takeTail(other: Assignment): void {
    this.deadlineAt = other.deadlineAt
    this.attemptMs = other.attemptMs
    this.totalMs = other.totalMs
    this.softStopMs = other.softStopMs
    this.beatEveryMs = other.beatEveryMs
    this.graceMs = other.graceMs
  }
}

function assignmentFromField(field: Buffer): Assignment | null {
  const [one] = fromBinary(StartSchema, field, DEPTH).assignments
  return one ? assignmentFromWire(one) : null
}

/** Assignments that are written and read by hand are those of the library, whoever is on the other side. */
import { fromBinary, toBinary } from '@bufbuild/protobuf'
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { AttachResponseSchema } from './gen/curfew/v1/workers_pb.ts'
import { downFromBytes, downToBytes } from './quick-starts.ts'
import { down, downFromWire, downToWire } from './worker-messages.ts'
import type { Assignment } from './worker-port.ts'

const text = fc.oneof(
  fc.string({ unit: 'grapheme-ascii', maxLength: 300 }),
  fc.string({ unit: 'grapheme', maxLength: 20 }),
  fc.constantFrom('', 'null', '\u0000', '\u0080', '\ufeffx', '\ud83d\ude00'),
)
const ms = fc.oneof(fc.nat(), fc.constantFrom(0, 0.5, 1_794_723_701_390))
const rarely = <T>(value: fc.Arbitrary<T>) => fc.option(value, { freq: 1 })
const assignment: fc.Arbitrary<Assignment> = fc.record({
  ...{ taskId: text, name: text, queue: text, token: text, input: text, attempt: fc.nat() },
  ...{ details: rarely(text), deadlineAt: fc.option(ms), attemptMs: fc.option(ms), totalMs: fc.option(ms) },
  ...{ softStopMs: ms, beatEveryMs: ms, graceMs: ms },
  trace: fc.constant(null),
  scope: rarely(fc.record({ rootId: text, parentId: text, step: fc.nat(), detached: fc.boolean() })),
})
/** Those that are claimed together are much like each other. */
const alike = fc
  .tuple(
    assignment,
    fc.array(fc.tuple(assignment, fc.subarray(['name', 'token', 'graceMs', 'totalMs'])), { maxLength: 5 }),
  )
  .map(([first, others]) => [
    first,
    ...others.map(([other, own]): Assignment => {
      const { taskId, input } = other
      return { ...first, taskId, input, ...Object.fromEntries(own.map((key) => [key, other[key as 'name']])) }
    }),
  ])
const start = fc.record({
  type: fc.constant('start' as const),
  assignments: fc.array(alike, { maxLength: 4 }).map((groups) => groups.flat()),
})

test('the library reads what is written by hand', () => {
  fc.assert(
    fc.property(start, (message) => {
      const read = fromBinary(AttachResponseSchema, downToBytes(message))
      expect(downFromWire(read)).toEqual(message)
    }),
  )
})

test('what the library writes is read by hand', () => {
  fc.assert(
    fc.property(start, (message) => {
      const bytes = Buffer.from(toBinary(AttachResponseSchema, downToWire(message)))
      expect(downFromBytes(bytes)).toEqual(message)
    }),
  )
})

test('bytes that are no message are read as the library reads them, or refused', () => {
  // The end of a group stops the library wherever it is, and it reads on from there.
  const noGroup = fc.nat(255).filter((byte) => (byte & 7) !== 4)
  const spoil = fc.record({ at: fc.nat(), byte: noGroup, cut: fc.nat(2) })
  const outcome = (read: () => unknown) => {
    try {
      return read()
    } catch {
      return 'refused'
    }
  }
  const inLibrary = (bytes: Buffer) => {
    const message = fromBinary(AttachResponseSchema, bytes)
    return downFromWire(message) ?? message
  }
  fc.assert(
    fc.property(start, spoil, (message, { at, byte, cut }) => {
      const whole = Buffer.from(downToBytes(message))
      whole[at % whole.length] = byte
      const bytes = whole.subarray(0, whole.length - cut)
      const read = outcome(() => downFromBytes(bytes))
      if (read !== 'refused') expect(read).toEqual(outcome(() => inLibrary(bytes)))
    }),
    { numRuns: 500 },
  )
})

test('whatever else goes down is left to the library', () => {
  const stop = { type: 'stop', taskId: 't', token: 'r', reason: { code: 'stale', message: 'x' }, graceMs: 5 }
  expect(downFromBytes(Buffer.from(downToBytes(stop as never)))).toEqual(stop)
  const ping = down('ping', { $typeName: 'curfew.v1.Ping' })
  expect(downFromBytes(Buffer.from(downToBytes(ping)))).toEqual(ping)
})

test('a number that no int32 holds is read as the library reads it', () => {
  const bytes = Buffer.concat([
    Buffer.from([0x12, 8, 0x0a, 6, 0x20]),
    Buffer.from([0x80, 0x80, 0x80, 0x80, 0x08]),
  ])
  expect(downFromBytes(bytes)).toMatchObject({ assignments: [{ attempt: -(2 ** 31) }] })
})

/** Reports that are written and read by hand are those of the library, whoever is on the other side. */
import { create, fromBinary, toBinary } from '@bufbuild/protobuf'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { ReportRequestSchema } from './gen/curfew/v1/workers_pb.ts'
import { reportsFromBytes, reportsFromWire, reportsToBytes } from './quick-reports.ts'
import { reportToWire } from './worker-messages.ts'
import type { Report } from './worker-port.ts'

const text = fc.oneof(
  fc.string({ unit: 'grapheme-ascii', maxLength: 300 }),
  fc.string({ unit: 'grapheme', maxLength: 20 }),
  fc.constantFrom('', 'null', '\u0000', '\u007f', '\u0080', '\u00ff', '\ufeffx', '\ud83d\ude00'),
)
const attempt = { taskId: text, token: fc.oneof(text, fc.constantFrom('r_1', 'r_2')) }
const report: fc.Arbitrary<Report> = fc.oneof(
  fc.record({
    ...attempt,
    type: fc.constant('completed' as const),
    output: fc.oneof(text, fc.constant('null')),
  }),
  fc.record({ ...attempt, type: fc.constant('overdue' as const) }),
  fc.record({
    ...{ ...attempt, type: fc.constant('beat' as const), moved: fc.boolean() },
    ...{ progress: fc.constantFrom(null, { fraction: 0.5 }), details: fc.option(text) },
  }),
)
const reports = fc.array(report, { maxLength: 20 })
const head = fc.record({
  ...{ workerId: text, number: fc.nat(), draining: fc.boolean(), turns: fc.array(text, { maxLength: 3 }) },
  wakes: fc.array(fc.record({ agentId: text, rootId: text, token: text }), { maxLength: 2 }),
})

const inLibrary = (body: Uint8Array) => reportsFromWire(fromBinary(ReportRequestSchema, body))

test('the library reads what is written by hand', () => {
  fc.assert(
    fc.property(head, reports, (request, said) => {
      const read = inLibrary(reportsToBytes(request, said))
      expect(read).toMatchObject({ ...request, reports: said })
    }),
  )
})

test('what the library writes is read by hand as the library reads it', () => {
  fc.assert(
    fc.property(head, reports, (request, said) => {
      const message = create(ReportRequestSchema, { ...request, reports: said.map(reportToWire) })
      const body = Buffer.from(toBinary(ReportRequestSchema, message))
      expect(reportsFromBytes(body)).toEqual(inLibrary(body))
    }),
  )
})

describe('bytes that are no message, or one that says more', () => {
  /** What comes of it: a request, or that it is refused. */
  const outcome = (read: () => unknown) => {
    try {
      return read()
    } catch {
      return 'refused'
    }
  }

  test('are what they are to the library, or refused where it is lenient', () => {
    // The end of a group stops the library wherever it is, and it reads on from there.
    const noGroup = fc.nat(255).filter((byte) => (byte & 7) !== 4)
    const spoil = fc.record({ at: fc.nat(), byte: noGroup, cut: fc.nat() })
    fc.assert(
      fc.property(head, reports, spoil, (request, said, { at, byte, cut }) => {
        const whole = Buffer.from(reportsToBytes(request, said))
        if (whole.length === 0) return
        whole[at % whole.length] = byte
        const body = whole.subarray(0, whole.length - (cut % 3))
        const read = outcome(() => reportsFromBytes(body))
        if (read !== 'refused') expect(read).toEqual(outcome(() => inLibrary(body)))
      }),
      { numRuns: 500 },
    )
  })

  test('a report that says nothing is told from one that is missing', () => {
    const message = create(ReportRequestSchema, { workerId: 'w', reports: [{ taskId: 't', token: 'r' }] })
    const body = Buffer.from(toBinary(ReportRequestSchema, message))
    expect(reportsFromBytes(body).reports).toEqual([null])
  })
})

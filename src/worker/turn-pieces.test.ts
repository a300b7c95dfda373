import fc from 'fast-check'
import { expect, test } from 'vitest'
import type { TurnReport } from '../wire/worker-port.ts'
import { turnPieces, weightOfTurn } from './turn-pieces.ts'

const text = fc.nat({ max: 3_000 }).map((length) => 'x'.repeat(length))
const turn = fc
  .record({
    inputs: fc.array(text, { maxLength: 12 }),
    outputs: fc.array(text, { maxLength: 12 }),
    withdrawn: fc.array(fc.nat(), { maxLength: 3 }),
    state: fc.constantFrom<TurnReport['state']>(
      { type: 'open' },
      { type: 'suspended', waits: [{ mode: 'all', steps: [[0, 3]], left: 4 }] },
      { type: 'returned', output: '1' },
    ),
  })
  .map(
    ({ inputs, outputs, withdrawn, state }): TurnReport => ({
      ...{ type: 'turn', agentId: 'g_1', rootId: 'g_1', token: 'r_1', seen: 7, withdrawn, state },
      steps: inputs.map((input, no) => ({
        ...{
          no,
          kind: 'task',
          id: `t_${no}`,
          name: 'n',
          input,
          policy: {},
          start: { delayMs: 0 },
          detached: false,
        },
      })),
      ran: outputs.map((output, step) => ({ step, outcome: { output } })),
    }),
  )

test('the pieces of a turn are the turn, in order, and only the last one ends it', () => {
  fc.assert(
    fc.property(turn, fc.integer({ min: 1_000, max: 20_000 }), (report, maxBytes) => {
      const pieces = turnPieces(report, maxBytes)
      expect(pieces.flatMap(({ steps }) => steps)).toEqual(report.steps)
      expect(pieces.flatMap(({ ran }) => ran)).toEqual(report.ran)
      const last = pieces.at(-1)
      expect([last?.state, last?.withdrawn]).toEqual([report.state, report.withdrawn])
      for (const piece of pieces.slice(0, -1)) {
        expect([piece.state, piece.withdrawn, piece.seen]).toEqual([{ type: 'open' }, [], 7])
        expect(piece.steps.length + piece.ran.length).toBeGreaterThan(0)
        // What was run may belong to a step of the same turn: that is stored by then.
        if (piece.ran.length > 0)
          expect(report.steps.at(-1)).toBe(pieces.findLast(({ steps }) => steps.length > 0)?.steps.at(-1))
      }
      for (const piece of pieces) {
        const items = piece.steps.length + piece.ran.length
        if (items > 1) expect(weightOfTurn(piece)).toBeLessThanOrEqual(maxBytes + 1_001)
      }
    }),
  )
})

test('a turn that one request carries is one piece, the same object', () => {
  const report: TurnReport = {
    ...{ type: 'turn', agentId: 'g_1', rootId: 'g_1', token: 'r_1', seen: 0, withdrawn: [] },
    ...{ steps: [{ no: 0, kind: 'run', name: 'a' }], ran: [], state: { type: 'open' } },
  }
  expect(turnPieces(report, 10_000)).toEqual([report])
  expect(turnPieces(report, 10_000)[0]).toBe(report)
})

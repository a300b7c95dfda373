// What an attempt that runs commands says of them, and the limit it sets for itself.
import { describe, expect, test } from 'vitest'
import type { Note, NotedLimit } from '../core/note.ts'
import { checkNote, overruledLimit } from '../core/note.ts'
import type { TaskRow } from '../store/task-row.ts'
import { claimedRow, newRow } from './fixtures/task-rows.ts'
import { decideTask } from './task-decide.ts'

const started = { type: 'agent_started', item: 'item-1', name: 'one', limitMs: 2_000 } as const
const note = (over: Partial<Note> = {}) => ({ events: [], letters: [], ...over })
const running = (over = {}) => claimedRow(newRow(over), { now: 1_000, nodeId: 'n_1', token: 'a_1' })
const noted = (row: TaskRow, what: Partial<Note>, now: number, token = row.token as string) =>
  decideTask(row, { type: 'note', token, ...note(what) }, now, 0)

describe('a note of an attempt', () => {
  test('is recorded with the attempt it is of', () => {
    const { draft, answer } = noted(running(), { events: [started] }, 1_500)
    expect(answer).toEqual({ type: 'accepted' })
    expect(draft.events.map(({ body }) => body)).toEqual([{ ...started, attempt: 1 }])
  })

  test('sets how long the attempt may go on, and takes that away again', () => {
    const limited = noted(running(), { limitMs: 4_000 }, 1_500).draft.row
    expect([limited.attemptDeadlineAt, limited.dueAt]).toEqual([5_500, expect.any(Number)])
    expect(limited.dueAt).toBeLessThanOrEqual(5_500)
    expect(noted(limited, {}, 2_000).draft.row.attemptDeadlineAt).toBe(5_500)
    expect(noted(limited, { limitMs: null }, 2_000).draft.row.attemptDeadlineAt).toBeNull()
  })

  test('K2: the store stops an attempt whose worker did not, once the limit is over', () => {
    const limited = noted(running(), { limitMs: 4_000 }, 1_500).draft.row
    const early = decideTask(limited, { type: 'due' }, 5_499, 0).draft
    expect(early.row.status).toBe('running')
    const { row, effects } = decideTask(limited, { type: 'due' }, 5_500, 0).draft
    expect([row.status, row.timeoutKind]).toEqual(['timed_out', 'execution'])
    expect(effects).toContainEqual(expect.objectContaining({ type: 'stop', taskId: row.id }))
  })

  test('I3: the limit ends with the process that was to keep it: its attempt is repeated, not timed out', () => {
    const limited = noted(running(), { limitMs: 4_000 }, 1_500).draft.row
    const lost = { type: 'lost', nodeId: limited.nodeId, receipt: 'exited' } as const
    const { row } = decideTask(limited, lost, 60_000, 0).draft
    expect([row.status, row.attemptDeadlineAt]).toEqual(['pending', null])
  })

  test('K2: whoever takes the next attempt is told which limit the store had to keep', () => {
    const limit: NotedLimit = {
      ...{ type: 'agent', command: 1, commandType: 'shell', text: 'sleep 9', limitMs: 2_000, elapsedMs: 500 },
      ...{ source: 'agent_timeout_secs', message: 'Agent item-1 timed out after 2s', isTold: false },
    }
    const limited = noted(running(), { limitMs: 4_000, limitOf: limit }, 1_500).draft.row
    const told = ({ details }: TaskRow) => overruledLimit(details && JSON.parse(details))
    expect(told(limited)).toBeNull()
    const lost = { type: 'lost', nodeId: limited.nodeId, receipt: 'exited' } as const
    expect(told(decideTask(limited, lost, 60_000, 0).draft.row)).toBeNull()
    const { row } = decideTask(limited, { type: 'due' }, 5_600, 0).draft
    expect(told(row)).toEqual({ limit, attempt: 1, notedAt: 1_500, firedAt: 5_600 })
  })

  test('does not move the limit of a policy', () => {
    const row = running({ attemptTimeout: '3s' })
    for (const limitMs of [60_000, null]) {
      expect(noted(row, { limitMs }, 1_500).draft.row.attemptDeadlineAt).toBe(row.attemptDeadlineAt)
    }
  })

  test('of one that was cancelled while it ended is kept until it has stopped, and it is told to stop', () => {
    const letter = {
      jobId: 'w_1',
      itemId: 'item-1',
      letter: { errorType: 'failure', message: 'no' },
    } as const
    const cancelled = decideTask(running(), { type: 'cancel' }, 1_400, 0).draft.row
    expect([cancelled.status, cancelled.settledAt]).toEqual(['cancelled', null])
    const what = { events: [started], letters: [letter], limitMs: 1 }
    const { draft, answer } = noted(cancelled, what, 1_500, 'a_1')
    expect(answer.type).toBe('stale')
    expect([draft.letters, draft.events.map(({ body }) => body.type)]).toEqual([[letter], ['agent_started']])
    expect(draft.row.attemptDeadlineAt).toBeNull()
    const receipt = {
      type: 'stopped',
      token: 'a_1',
      reason: { code: 'cancelled', message: 'it was cancelled' },
      receipt: 'exited',
      late: null,
    } as const
    const { row } = decideTask(cancelled, receipt, 1_600, 0).draft
    expect([row.settledAt, noted(row, what, 1_700, 'a_1').draft.letters]).toEqual([1_600, []])
  })

  test('of an attempt that is not the current one changes nothing', () => {
    const { draft, answer } = noted(running(), { events: [started], limitMs: 1 }, 1_500, 'another')
    expect(answer.type).toBe('stale')
    expect([draft.events, draft.row.attemptDeadlineAt]).toEqual([[], null])
  })
})

describe('a note from another process', () => {
  test('is refused where it says what nobody knows', () => {
    const refused: [Partial<Note>, RegExp][] = [
      [{ events: [{ type: 'made_up' } as never] }, /made_up is none/],
      [{ events: [null as never] }, /is none/],
      [{ limitMs: -1 }, /no length of time/],
      [{ limitMs: Infinity }, /no length of time/],
      [{ limitOf: 7 as never }, /is no limit/],
      [{ letters: [{ jobId: 'w_1', itemId: 7 as never, letter: null }] }, /itemId is none/],
      [{ letters: [{ jobId: 'w_1', itemId: 'item-1', letter: {} as never }] }, /what went wrong/],
      [{ events: Array.from({ length: 1_001 }, () => started) }, /too much/],
    ]
    for (const [over, message] of refused) expect(() => checkNote(note(over), 'reports[0]')).toThrow(message)
    expect(checkNote(note({ events: [started], limitMs: null }), 'reports[0]').limitMs).toBeNull()
  })
})

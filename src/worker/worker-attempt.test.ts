import { beforeEach, expect, test } from 'vitest'
import { VirtualClock } from '../testing/virtual-clock.ts'
import type { Assignment, Report, ReportAnswer } from '../wire/worker-port.ts'
import type { AttemptEnd } from './attempt.ts'
import { WorkerAttempt } from './worker-attempt.ts'

let clock: VirtualClock
let attempt: WorkerAttempt
let end: (end: AttemptEnd) => void
/** What was reported, and how the store's answer comes. */
let reports: { report: Report; answer: (answer: ReportAnswer) => void }[]

beforeEach(() => {
  clock = new VirtualClock(0)
  reports = []
  const ended = Promise.withResolvers<AttemptEnd>()
  end = ended.resolve
  const assignment = { taskId: 't_1', token: 'a_1', attemptMs: null, totalMs: null, graceMs: 0 }
  attempt = new WorkerAttempt({ ...assignment, softStopMs: 0, beatEveryMs: 0 } as unknown as Assignment, {
    clock,
    report: (report) => new Promise((answer) => reports.push({ report, answer })),
    start: () => ({
      ended: ended.promise,
      abort() {},
      setDeadline() {},
      kill: async () => 'killed',
    }),
    gone() {},
  })
})

const limits = () => reports.map(({ report }) => (report.type === 'note' ? report.limitMs : report.type))
const note = (limitMs: number | null) => void attempt.note({ events: [], letters: [], limitMs })

test('notes within a moment are one: the last limit holds', async () => {
  note(3_000)
  await clock.advance(49)
  note(null)
  expect(reports).toEqual([])
  await clock.advance(1)
  expect(limits()).toEqual([null])
})

test('a note does not go beside another one that the store has not answered yet', async () => {
  note(3_000)
  await clock.advance(50)
  note(null)
  await clock.advance(10_000)
  expect(limits()).toEqual([3_000])
  reports[0]!.answer({ type: 'accepted' })
  await clock.advance(50)
  expect(limits()).toEqual([3_000, null])
})

test('the end waits for no note, and takes the last one along', async () => {
  note(3_000)
  await clock.advance(50)
  note(5_000)
  end({ type: 'completed', output: '1' })
  await clock.settle()
  expect(limits()).toEqual([3_000, undefined, 'completed'])
})

test('whoever asks for more time and is told to stop waits for no answer', async () => {
  const reason = { code: 'lease_over', message: 'no manager could be reached in time' } as const
  const asked = attempt.extend({ requestId: 'r_1', progress: {} })
  await clock.settle()
  expect(reports.map(({ report }) => report.type)).toEqual(['extend'])
  attempt.stop(reason, 1_000)
  await expect(asked).rejects.toMatchObject(reason)
  await expect(attempt.extend({ requestId: 'r_2', progress: {} })).rejects.toMatchObject(reason)
})

import { expect, test } from 'vitest'
import { CurfewError } from '../core/errors.ts'
import { MAX_BULK_ROWS } from '../core/limits.ts'
import type { Report, ReportAnswer, TurnReport } from '../wire/worker-port.ts'
import type { Batch, BatchAnswer } from './report-sender.ts'
import { ReportSender } from './report-sender.ts'

const UNDER_WAY = 3

const done = (taskId: string, output = 'null'): Report => ({
  ...{ type: 'completed', taskId, token: 'r_1', output },
})
const dones = (count: number, prefix = 't') => Array.from({ length: count }, (_, i) => done(`${prefix}${i}`))
const turn = (agentId: string): TurnReport => ({
  ...{ type: 'turn', agentId, rootId: agentId, token: 'r_1', seen: 0, steps: [], ran: [], withdrawn: [] },
  state: { type: 'released' },
})
const ids = ({ reports }: Batch) => reports.map(({ taskId }) => taskId)
const stale = (message: string): ReportAnswer => ({ type: 'stale', reason: { code: 'stale', message } })

/** Answers when it is told to. */
function recording() {
  const sent: (Batch & { answer(answer?: Partial<BatchAnswer>): void; refuse(error: Error): void })[] = []
  const sender = new ReportSender((batch) => {
    const { promise, resolve, reject } = Promise.withResolvers<BatchAnswer>()
    sent.push({
      ...batch,
      answer: (answer = {}) => resolve({ answers: [], turns: [], ...answer }),
      refuse: reject,
    })
    return promise
  })
  return { sender, sent }
}

/** What is under way at the moment: the ones behind it come together. */
function fill({ sender }: ReturnType<typeof recording>): void {
  for (let i = 0; i < UNDER_WAY; i++) void sender.report([done(`first${i}`)])
}

test('the first ones go at once, a few at a time; what comes meanwhile goes together', async () => {
  const { sender, sent } = recording()
  const calls = ['a', 'b', 'c', 'd', 'e'].map((id) => sender.report([done(id)]))
  expect(sent.map(ids)).toEqual([['a'], ['b'], ['c']])
  sent[0]?.answer()
  expect(await calls[0]).toEqual([{ type: 'accepted' }])
  await expect.poll(() => sent.length).toBe(4)
  expect(ids(sent[3] as Batch)).toEqual(['d', 'e'])
  expect(sent.map(({ number }) => number)).toEqual([1, 2, 3, 4])
  for (const batch of sent) batch.answer()
  expect((await Promise.all(calls)).flat()).toHaveLength(5)
})

test('each report has the answer that stands at its place, also when its call was sent in parts', async () => {
  const { sender, sent } = recording()
  const call = sender.report(dones(MAX_BULK_ROWS + 2))
  expect(sent.map(({ reports }) => reports.length)).toEqual([MAX_BULK_ROWS, 2])
  sent[1]?.answer({ answers: [stale('second')] })
  sent[0]?.answer({ answers: [stale('first')] })
  const answers = await call
  expect(answers).toHaveLength(MAX_BULK_ROWS + 2)
  expect([answers[0], answers[1], answers[MAX_BULK_ROWS], answers[MAX_BULK_ROWS + 1]]).toEqual([
    ...[stale('first'), { type: 'accepted' }],
    ...[stale('second'), { type: 'accepted' }],
  ])
})

test('a batch stays below its size; one report may be larger than that', async () => {
  const recorder = recording()
  const { sender, sent } = recorder
  fill(recorder)
  const large = 'x'.repeat(3 * 1024 * 1024)
  void sender.report([done('a', large), done('b', large), done('c')])
  void sender.report([done('d', `${large}${large}`)])
  for (const batch of sent.slice()) batch.answer()
  await expect.poll(() => sent.slice(UNDER_WAY).map(ids)).toEqual([['a'], ['b', 'c'], ['d']])
})

test('turns do not wait behind reports, nor reports behind turns', async () => {
  const recorder = recording()
  const { sender, sent } = recorder
  fill(recorder)
  void sender.report(dones(3 * MAX_BULK_ROWS))
  const turns = sender.reportTurns([turn('g1'), turn('g2')])
  sender.wake({ agentId: 'g3', rootId: 'g3', token: 'r_1' })
  sent[0]?.answer()
  await expect.poll(() => sent.length).toBe(UNDER_WAY + 1)
  const batch = sent[UNDER_WAY]
  expect(batch?.reports).toHaveLength(MAX_BULK_ROWS / 2)
  expect(batch?.turns.map(({ agentId }) => agentId)).toEqual(['g1', 'g2'])
  expect(batch?.wakes).toHaveLength(1)
  batch?.answer({ turns: [{ type: 'ended' }] })
  // One without an answer is not known to have been taken.
  expect(await turns).toEqual([{ type: 'ended' }, { type: 'stale' }])
})

test('one that is refused does not take the others with it: they go alone, and it ends as what it is', async () => {
  const { sender, sent } = recording()
  fill({ sender, sent })
  const both = sender.report([done('good'), done('bad')])
  const turns = sender.reportTurns([turn('g1')])
  sent[0]?.answer()
  await expect.poll(() => sent.length).toBe(4)
  sent[3]?.refuse(new Error('no such output'))
  await expect.poll(() => sent.length).toBe(5)
  expect(ids(sent[4] as Batch)).toEqual(['good'])
  sent[4]?.answer()
  await expect.poll(() => sent.length).toBe(6)
  sent[5]?.refuse(new Error('no such output'))
  await expect.poll(() => sent.length).toBe(7)
  expect(sent[6]?.reports).toMatchObject([
    { taskId: 'bad', type: 'failed', failure: { code: 'report_refused', message: 'no such output' } },
  ])
  sent[6]?.answer({ answers: [stale('over')] })
  expect(await both).toEqual([{ type: 'accepted' }, stale('over')])
  await expect.poll(() => sent.length).toBe(8)
  expect(sent[7]?.turns.map(({ agentId }) => agentId)).toEqual(['g1'])
  sent[7]?.answer({ turns: [{ type: 'ended' }] })
  expect(await turns).toEqual([{ type: 'ended' }])
  expect(new Set(sent.map(({ number }) => number)).size).toBe(8)
})

test('an agent is woken also when the reports that its wake was sent with are refused', async () => {
  const recorder = recording()
  const { sender, sent } = recorder
  fill(recorder)
  const bad = sender.report([done('bad')])
  const wake = { agentId: 'g1', rootId: 'g1', token: 'r_1' }
  sender.wake(wake)
  sent[0]?.answer()
  await expect.poll(() => sent.length).toBe(4)
  sent[3]?.refuse(new Error('no such output'))
  await expect.poll(() => sent.length).toBe(5)
  expect(sent[4]).toMatchObject({ reports: [], turns: [], wakes: [wake] })
  // What is refused alone is not sent again.
  sent[4]?.refuse(new Error('for nobody'))
  await expect.poll(() => sent.length).toBe(6)
  expect(sent[5]).toMatchObject({ reports: [{ taskId: 'bad', type: 'failed' }], wakes: [] })
  sent[5]?.answer()
  expect(await bad).toEqual([{ type: 'accepted' }])
})

test('a note that is refused says so, and its attempt goes on', async () => {
  const { sender, sent } = recording()
  const noted = sender.report([{ taskId: 'a', token: 'r_1', type: 'note', events: [], letters: [] }])
  sent[0]?.refuse(new Error('too long'))
  expect(await noted).toEqual([{ type: 'refused', message: 'too long' }])
})

test('a turn that is refused parks its agent, with the reason', async () => {
  const { sender, sent } = recording()
  const refused = sender.reportTurns([turn('g1')])
  sent[0]?.refuse(new Error('too long'))
  await expect.poll(() => sent.length).toBe(2)
  expect(sent[1]?.turns[0]?.state).toMatchObject({ type: 'parked', code: 'turn_refused' })
  sent[1]?.answer({ turns: [{ type: 'ended' }] })
  expect(await refused).toEqual([{ type: 'ended' }])
})

test('what is under way when it is closed rejects its callers', async () => {
  const { sender, sent } = recording()
  const waiting = sender.report([done('a')])
  sent[0]?.refuse(new CurfewError('closed', 'this worker was closed'))
  await expect(waiting).rejects.toThrow('closed')
  expect(await sender.report([])).toEqual([])
})

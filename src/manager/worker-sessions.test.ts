import { expect, test } from 'vitest'
import type { Slot } from './worker-sessions.ts'
import { Session, Slots } from './worker-sessions.ts'

const hello = { workerId: 'w', names: [], queues: null, concurrency: 1, agents: [], turns: 0 }
const session = new Session(hello, true, null)

function slot(taskId: string, token: string): Slot {
  const assignment = {
    ...{ taskId, token, name: 'n', queue: 'q', attempt: 1, input: 'null', details: null, deadlineAt: null },
    ...{
      attemptMs: null,
      totalMs: null,
      softStopMs: 0,
      beatEveryMs: 1,
      graceMs: 1,
      trace: null,
      scope: null,
    },
  }
  return { assignment, startedAt: 0, abandoned: false, reporting: false, session }
}

test('attempts of one task are told apart by their tokens, whichever of them goes first', () => {
  for (const goesFirst of [0, 1, 2]) {
    const slots = new Slots()
    const attempts = [slot('t_1', 'a'), slot('t_1', 'b'), slot('t_1', 'c')]
    for (const one of [...attempts, slot('t_2', 'a')]) slots.add(one)
    for (const one of attempts) expect(slots.get(one.assignment)).toBe(one)
    expect([...slots]).toHaveLength(4)
    const [gone] = attempts.splice(goesFirst, 1) as [Slot]
    slots.delete(gone)
    expect(slots.get(gone.assignment)).toBeNull()
    for (const one of attempts) expect(slots.get(one.assignment)).toBe(one)
    expect(slots.get({ taskId: 't_2', token: 'b' })).toBeNull()
    expect([...slots]).toHaveLength(3)
  }
})

test('an attempt that is held again takes the place of the one before, which cannot take it along', () => {
  const slots = new Slots()
  const before = slot('t_1', 'a')
  const again = slot('t_1', 'a')
  slots.add(before)
  slots.add(again)
  slots.delete(before)
  expect(slots.get(again.assignment)).toBe(again)
  expect([...slots]).toEqual([again])
})

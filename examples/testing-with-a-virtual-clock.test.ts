// How a program that uses curfew tests its tasks: no waiting, no flakiness, an hour passes in milliseconds.
// In a project of your own the imports are 'curfew' and 'curfew/testing'.

import { afterEach, beforeEach, expect, test } from 'vitest'
import { Curfew, TaskTimedOut, task } from '../src/curfew.ts'
import { VirtualClock } from '../src/testing/testing.ts'

let clock: VirtualClock
let curfew: Curfew
let calls: number[]

const callSupplier = task({
  name: 'call-supplier',
  timeout: '1h',
  retries: 5,
  backoff: { initial: '1m', max: '10m', jitter: 0 },
  run: async (failures: number, { attempt }) => {
    calls.push(clock.wall())
    if (attempt <= failures) throw new Error('they are closed')
    return attempt
  },
})

const waitForAnswer = task({
  name: 'wait-for-answer',
  timeout: '30m',
  run: async (_: null, { signal }) => clock.sleep('2h', signal),
})

beforeEach(async () => {
  clock = new VirtualClock()
  calls = []
  curfew = await Curfew.open({ store: ':memory:', tasks: [callSupplier, waitForAnswer], clock })
})

afterEach(() => curfew.close())

test('the supplier is called again after one, two and four minutes', async () => {
  const handle = await curfew.schedule(callSupplier, 3)
  await clock.advance('10m')
  expect(await handle.result()).toBe(4)
  const minutes = calls.map((at) => (at - (calls[0] ?? 0)) / 60_000)
  expect(minutes).toEqual([0, 1, 3, 7])
})

test('an answer that does not come in half an hour is given up, not a millisecond earlier', async () => {
  const handle = await curfew.schedule(waitForAnswer, null)
  await clock.advance({ minutes: 30, milliseconds: -1 })
  expect(await handle.status()).toBe('running')
  await clock.advance(1)
  await expect(handle.result()).rejects.toThrow(TaskTimedOut)
  expect((await handle.view()).receipt).toBe('aborted')
})

test('nothing happens before its time', async () => {
  const handle = await curfew.schedule(callSupplier, 0, { delay: '1d' })
  await clock.advance('23h')
  expect(calls).toEqual([])
  await clock.advance('1h')
  expect(await handle.status()).toBe('completed')
})

// How a program that uses curfew tests its agents; these are the ones of the examples beside this file.
// A task is found by its name, so a test gives the agent fakes of the same names. A week passes in milliseconds.

import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { Curfew, task } from '../src/curfew.ts'
import { VirtualClock } from '../src/testing/testing.ts'
import { askApproval } from './ask-a-person.ts'
import { firstGoodAnswer } from './first-good-answer.ts'
import { comparePrices } from './results-in-time.ts'

let clock: VirtualClock
let curfew: Curfew
/** How long each provider or shop takes, in seconds; a negative one fails then. */
let seconds: Record<string, number>
let mails: { day: number; text: string }[]

async function answer(name: string, signal: AbortSignal): Promise<number> {
  const takes = seconds[name] ?? 0
  await clock.sleep({ seconds: Math.abs(takes) }, signal)
  if (takes < 0) throw new Error(`${name} is broken`)
  return takes
}

const askProvider = task({
  name: 'ask-provider',
  run: ({ provider }: { provider: string }, { signal }) => answer(provider, signal),
})

const askPrice = task({
  name: 'ask-price',
  run: ({ shop }: { shop: string }, { signal }) => answer(shop, signal),
})

const sendMail = task({
  name: 'send-mail',
  run: async ({ text }: { text: string }) => {
    const day = (clock.wall() - Date.UTC(2026, 0, 1)) / 86_400_000
    mails.push({ day, text })
  },
})

// Once as they usually run, and once with none of them kept in memory: then every wake-up is a replay from the
// journal, and code that does not take the same path again is found out.
describe.each([
  { how: 'in memory', residents: {} },
  { how: 'replayed at every wake-up', residents: { count: 0 } },
])('$how', ({ residents }) => {
  beforeEach(async () => {
    clock = new VirtualClock(Date.UTC(2026, 0, 1))
    mails = []
    const tasks = [askProvider, askPrice, sendMail]
    const agents = [firstGoodAnswer, comparePrices, askApproval]
    curfew = await Curfew.open({ store: ':memory:', tasks, agents, residents, clock })
  })

  afterEach(() => curfew.close())

  test('the first good answer is taken, however the others end, and nothing of them runs on', async () => {
    seconds = { north: -1, east: 12, south: 5 }
    const run = await curfew.start(firstGoodAnswer, 'why?')
    await clock.advance('5s')
    expect(await run.result()).toEqual({ provider: 'south', answer: 5 })
    const { tasks } = await curfew.list({ parent: run.id })
    expect(tasks.map(({ status }) => status).toSorted()).toEqual(['cancelled', 'completed', 'failed'])
  })

  test('when nobody has a good answer, the last failure decides', async () => {
    seconds = { north: -1, east: -15, south: -19 }
    const run = await curfew.start(firstGoodAnswer, 'why?')
    await clock.advance('18s')
    expect(await run.status()).toBe('running')
    await clock.advance('1s')
    expect(await run.result()).toEqual({ provider: null, answer: null })
  })

  test('after thirty seconds the prices that are there are compared', async () => {
    seconds = { amber: 3, birch: 40, cedar: -10, dune: 29, elm: 3_600 }
    const run = await curfew.start(comparePrices, { product: 'kettle', within: '30s' })
    await clock.advance({ seconds: 30, milliseconds: -1 })
    expect(await run.status()).toBe('running')
    await clock.advance(1)
    expect(await run.result()).toMatchObject({
      best: { shop: 'amber', price: 3 },
      prices: [{ shop: 'amber' }, { shop: 'dune' }],
      failed: [{ shop: 'cedar' }],
      late: ['birch', 'elm'],
    })
  })

  test('a person is asked, reminded after a day and after two, and answers', async () => {
    const run = await curfew.start(askApproval, { to: 'ada', question: 'Ready?', day: '1d' })
    await clock.advance('2d')
    await clock.advance('5h')
    await run.signal('decision', { approved: true, by: 'ada' })
    await clock.settle()
    expect(await run.result()).toEqual({ approved: true, by: 'ada', days: 3 })
    expect(mails).toEqual([
      { day: 0, text: 'Ready?' },
      { day: 1, text: 'Ready? (reminder 1)' },
      { day: 2, text: 'Ready? (reminder 2)' },
    ])
  })

  test('a person who does not answer within a week is given up', async () => {
    const run = await curfew.start(askApproval, { to: 'bob', question: 'Ready?', day: '1d' })
    await clock.advance({ days: 7, milliseconds: -1 })
    expect(await run.status()).toBe('running')
    await clock.advance(1)
    expect(await run.result()).toEqual({ approved: false, by: 'nobody', days: 7 })
    expect(mails.at(-1)).toEqual({ day: 7, text: 'Never mind.' })
    expect(mails).toHaveLength(8)
  })
})

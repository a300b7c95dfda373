import { expect, test } from 'vitest'
import { Curfew, task } from '../curfew.ts'
import type { ClaimedTask } from '../store/hot-statements.ts'
import { VirtualClock } from '../testing/testing.ts'
import { ClaimFocus } from './claim-focus.ts'

const MAX_CLAIMED = 500

const ALL = { names: ['a', 'b', 'c'], queues: ['default', 'mail'], limitedQueues: ['slow'] }
const EVERYTHING = { asked: { ...ALL, after: null }, all: true }
const tasks = (count: number, name: string, queue: string) =>
  Array.from({ length: count }, () => ({ name, queue }) as ClaimedTask)

test('a claim asks for everything until one came back full, then for what that one found', () => {
  const focus = new ClaimFocus()
  expect(focus.ask(ALL)).toEqual(EVERYTHING)
  focus.claimed([...tasks(300, 'b', 'default'), ...tasks(200, 'c', 'slow')], MAX_CLAIMED)
  const found = { names: ['b', 'c'], queues: ['default'], limitedQueues: ['slow'], after: null }
  expect(focus.ask(ALL)).toEqual({ asked: found, all: false })
  focus.claimed(tasks(MAX_CLAIMED, 'b', 'default'), MAX_CLAIMED)
  expect(focus.ask(ALL).asked).toMatchObject({ names: ['b'], queues: ['default'], limitedQueues: [] })
})

test('of one queue and name the next claim goes on behind the last of them', () => {
  const focus = new ClaimFocus()
  const at = (priority: number, id: string) => ({ name: 'b', queue: 'default', priority, id }) as ClaimedTask
  const rest = Array.from({ length: MAX_CLAIMED - 3 }, () => at(1, 't_4'))
  expect(focus.claimed([at(1, 't_9'), at(2, 't_3'), at(2, 't_1'), ...rest], MAX_CLAIMED)).toBe(true)
  const asked = { names: ['b'], queues: ['default'], limitedQueues: [], after: at(2, 't_3') }
  expect(focus.ask(ALL)).toEqual({ asked, all: false })
  const two = [...tasks(1, 'a', 'default'), ...tasks(MAX_CLAIMED - 1, 'b', 'default')]
  expect(focus.claimed(two, MAX_CLAIMED)).toBe(false)
  expect(focus.ask(ALL).asked.after).toBeNull()
})

test('every few claims ask for everything, however full the others were', () => {
  const focus = new ClaimFocus()
  const all: boolean[] = []
  for (let i = 0; i < 35; i++) {
    all.push(focus.ask(ALL).all)
    focus.claimed(tasks(MAX_CLAIMED, 'a', 'default'), MAX_CLAIMED)
  }
  const narrow = new Array(16).fill(false)
  expect(all).toEqual([true, ...narrow, true, ...narrow, true])
})

test('a claim that was not filled, a small one, and work that arrived make the next ask for everything', () => {
  const focus = new ClaimFocus()
  const full = () => focus.claimed(tasks(MAX_CLAIMED, 'a', 'default'), MAX_CLAIMED)
  full()
  focus.claimed(tasks(MAX_CLAIMED - 1, 'a', 'default'), MAX_CLAIMED)
  expect(focus.ask(ALL)).toEqual(EVERYTHING)
  full()
  focus.claimed(tasks(10, 'a', 'default'), 10)
  expect(focus.ask(ALL)).toEqual(EVERYTHING)
  full()
  focus.forget()
  expect(focus.ask(ALL)).toEqual(EVERYTHING)
})

test('when what was found is used up, the rest runs without waiting for anything', async () => {
  const ran: string[] = []
  const make = (name: string) =>
    task({
      name,
      run: () => {
        ran.push(name)
      },
    })
  const [first, second] = [make('first'), make('second')]
  await using curfew = await Curfew.open({
    ...{ store: ':memory:', tasks: [first, second], concurrency: 200, clock: new VirtualClock() },
  })
  const inputs = (count: number) => Array.from({ length: count }, () => null)
  const handles = await Promise.all([
    curfew.scheduleMany(first, inputs(1_100)),
    curfew.scheduleMany(second, inputs(300)),
  ])
  await Promise.all(handles.flat().map((handle) => handle.result()))
  expect([ran.filter((name) => name === 'first').length, ran.length]).toEqual([1_100, 1_400])
})

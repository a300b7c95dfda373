// What is claimed next, for whom and from where: with workers that are only counted, and a store that is told of.
import { beforeEach, describe, expect, test, vi } from 'vitest'
import { IdSource } from '../core/id.ts'
import { SystemRandomness } from '../core/system-clock.ts'
import { newTask } from '../engine/fixtures/task-rows.ts'
import type { ClaimedTask } from '../store/hot-statements.ts'
import type { StoreTime } from '../store/store-time.ts'
import { VirtualClock } from '../testing/virtual-clock.ts'
import { assignmentOf } from './assignment.ts'
import { ClaimDesk } from './claim-desk.ts'
import { Queues } from './queues.ts'
import type { TurnDesk } from './turn-desk.ts'
import { Groups, Session } from './worker-sessions.ts'

const NOTHING = { tasks: 0, names: [], ownTurns: 0, turns: 0 }

let clock: VirtualClock
let desk: ClaimDesk
let groups: Groups

beforeEach(() => {
  clock = new VirtualClock()
  groups = new Groups(({ names, queues }) => ({ names, queues }))
  const queues = new Queues(['default', 'mail'].map((name) => ({ name, concurrency: null })))
  desk = new ClaimDesk({
    ...{ clock, groups, queues, mostClaimed: 2_000, ids: new IdSource(new SystemRandomness()) },
    time: { now: () => clock.wall() } as StoreTime,
    turns: { wishes: false, wish: () => null } as Partial<TurnDesk> as TurnDesk,
    kick: vi.fn(),
  })
})

function addWorker(workerId: string, names: string[], concurrency: number, queues: string[] | null = null) {
  const session = new Session(
    { workerId, names, queues, concurrency, agents: [], turns: 1 },
    true,
    () => undefined,
  )
  groups.add(session)
  return session
}

/** Tasks that were claimed, from this number on. */
const light = (name: string, from: number, count: number) =>
  Array.from({ length: count }, (_, i) => ({
    ...{ name, queue: 'default', priority: 0, light: 1, input: '1', details: null, policy: '{}' },
    id: `t_${String(from + i).padStart(9, '0')}`,
  })) as ClaimedTask[]

/** One claim from its wish to its commit, which gets these. */
function claim(tasks: (slots: number) => ClaimedTask[]) {
  const wish = desk.wish(NOTHING)
  if (!wish) return null
  const claimed = tasks(wish.slots)
  desk.answered(wish, claimed)
  desk.filled(wish, claimed, false)
  return wish
}

const nothing = () => claim(() => [])

describe('new work that a claim was filled without', () => {
  test('is for the other workers that take it', () => {
    const both = addWorker('n_1', ['x', 'y'], 4)
    addWorker('n_2', ['y'], 4)
    while (nothing());
    desk.workIsReady()
    // The other group has looked and found nothing.
    const wish = desk.wish(NOTHING)
    expect(wish).toMatchObject({ names: ['x', 'y'], slots: 4 })
    expect(nothing()).toMatchObject({ names: ['y'] })
    if (!wish) return
    const claimed = light('x', 0, 4)
    desk.answered(wish, claimed)
    for (const task of claimed) both.take(assignmentOf(task, wish.token, 0), 0, true)
    desk.filled(wish, claimed, true)
    desk.stored([newTask({ id: 't_9', name: 'y' })], wish)
    expect(desk.wish(NOTHING)).toMatchObject({ names: ['y'], slots: 4, look: true })
  })

  test('is nothing for those that do not', () => {
    addWorker('n_1', ['x'], 4)
    addWorker('n_2', ['x'], 4, ['mail'])
    while (nothing());
    desk.stored([newTask({ id: 't_9', name: 'z' })], null)
    expect(desk.wishes).toBe(false)
    desk.stored([newTask({ id: 't_9', name: 'x', queue: 'mail' })], null)
    expect(desk.wishes).toBe(true)
  })
})

test('room for new work is that of workers which take it, and have got what they were sent', () => {
  const slow = addWorker('n_1', ['x'], 2)
  addWorker('n_2', ['y'], 3)
  const named = (...names: string[]) => names.map((name) => ({ name, queue: 'default' }))
  expect(desk.hasRoomFor(named('x', 'x'))).toBe(true)
  expect(desk.hasRoomFor(named('x', 'x', 'x'))).toBe(false)
  expect(desk.hasRoomFor(named('y', 'y', 'y'))).toBe(true)
  expect(desk.hasRoomFor(named('y', 'x', 'y'))).toBe(false)
  expect(desk.hasRoomFor(named('z'))).toBe(false)
  while (nothing());
  slow.connect(
    () => undefined,
    () => true,
  )
  desk.workIsReady()
  expect(desk.wish(NOTHING)).toMatchObject({ names: ['y'] })
  expect(desk.wish(NOTHING)).toBe(null)
})

describe('what a peer tells of while claims come back full', () => {
  const SLOTS = 2_000
  /** Until claims begin behind what was claimed. */
  const claimMany = () => {
    addWorker('n_1', ['x', 'y'], SLOTS)
    let from = 0
    const next = (slots: number) => {
      from += slots
      return [...light('x', from, slots - 1), ...light('y', from, 1)]
    }
    let wish = claim(next)
    for (let i = 0; i < 20 && !wish?.floors.length; i++) wish = claim(next)
    expect(wish?.floors).not.toEqual([])
    return next
  }

  test('is looked for when one is not filled, wherever it stands', () => {
    claimMany()
    desk.workArrived(true)
    expect(nothing()?.floors).not.toEqual([])
    // Nobody has to tell of it again.
    expect(nothing()?.floors).toEqual([])
    while (nothing());
    expect(desk.wishes).toBe(false)
  })

  test('is looked for after a second, though all are', async () => {
    const next = claimMany()
    await clock.advance(2_000)
    expect(claim(next)?.floors).not.toEqual([])
    desk.workArrived(true)
    expect(claim(next)?.floors).not.toEqual([])
    await clock.advance(1_000)
    expect(claim(next)?.floors).toEqual([])
  })
})

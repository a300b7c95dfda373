import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import type { ClaimFloor } from '../store/hot-statements.ts'
import { standsBefore } from '../store/hot-statements.ts'
import { ClaimFloors } from './claim-floors.ts'

const ENOUGH = 2_000
const ALL = { queues: ['default', 'mail'], names: ['a', 'b'] }

let now = 0
const clock = { monotonic: () => now }
const place = (id: number, { priority = 0, name = 'a', queue = 'default' } = {}) => ({
  ...{ queue, name, priority },
  id: `t_${String(id).padStart(6, '0')}`,
})
const taken = (from: number, to: number, more: Parameters<typeof place>[1] = {}) =>
  Array.from({ length: to - from }, (_, i) => ({ ...place(from + i, more), light: 1 as 0 | 1 }))

/** One claim from its beginning to its end. */
function claim(
  floors: ClaimFloors,
  tasks: ReturnType<typeof taken>,
  behind: readonly ClaimFloor[] = [],
): void {
  const number = floors.begin(behind)
  floors.claimed(number, tasks)
  floors.end(number)
}

describe('claims begin', () => {
  test('at the front until many were claimed, then behind the last of them, each queue and name for itself', () => {
    const floors = new ClaimFloors(clock)
    claim(floors, taken(0, ENOUGH - 1))
    expect(floors.of(ALL)).toEqual([])
    claim(floors, [
      ...taken(ENOUGH - 1, ENOUGH),
      ...taken(0, ENOUGH, { name: 'b', queue: 'mail', priority: -1 }),
    ])
    const others = place(ENOUGH - 1, { name: 'b', queue: 'mail', priority: -1 })
    expect(floors.of(ALL)).toEqual([place(ENOUGH - 1), others])
    expect(floors.of({ queues: ['mail'], names: ['a', 'b'] })).toEqual([others])
    expect(floors.of({ queues: ['mail'], names: ['a'] })).toEqual([])
  })

  test('wherever those stand that are not light', () => {
    const floors = new ClaimFloors(clock)
    const light = taken(0, ENOUGH)
    claim(floors, [...light, { ...place(9_999), light: 0 }])
    expect(floors.of(ALL)).toEqual([place(ENOUGH - 1)])
  })

  test('at the front when something was stored before that place', () => {
    const floors = new ClaimFloors(clock)
    claim(floors, taken(0, ENOUGH))
    floors.stored([place(ENOUGH + 5), place(ENOUGH)])
    expect(floors.of(ALL)).toEqual([place(ENOUGH - 1)])
    floors.stored([place(ENOUGH), place(ENOUGH - 1, { name: 'b' }), place(1)])
    expect(floors.of(ALL)).toEqual([])
  })

  test('where they did, whatever has a higher priority: that is looked for besides', () => {
    const floors = new ClaimFloors(clock)
    claim(floors, taken(0, ENOUGH))
    floors.stored([place(1, { priority: -1 })])
    expect(floors.of(ALL)).toEqual([place(ENOUGH - 1)])
    // Of each priority the first counts.
    floors.stored([place(1, { priority: -1 }), place(ENOUGH + 5), place(1)])
    expect(floors.of(ALL)).toEqual([])
  })

  test('at the front when what was stored before that place came too late for the claim to see it', () => {
    const floors = new ClaimFloors(clock)
    const number = floors.begin([])
    floors.stored([place(3)])
    floors.claimed(number, taken(5, ENOUGH + 5))
    expect(floors.of(ALL)).toEqual([])
    floors.end(number)
    // The next one has seen it.
    claim(floors, taken(3, ENOUGH + 5))
    expect(floors.of(ALL)).toEqual([place(ENOUGH + 4)])
  })

  test('at the front when a claim that began behind it has not looked at all there is', () => {
    const floors = new ClaimFloors(clock)
    claim(floors, taken(0, ENOUGH))
    floors.stored([place(1)])
    claim(floors, taken(ENOUGH, 2 * ENOUGH), [place(ENOUGH - 1)])
    expect(floors.of(ALL)).toEqual([])
  })

  test('where they did when a claim that began further on has passed what an earlier one left', () => {
    const floors = new ClaimFloors(clock)
    floors.stored([place(10), place(20)])
    const narrow = floors.begin([place(50)])
    claim(floors, taken(10, 11))
    floors.claimed(narrow, taken(51, ENOUGH + 51))
    floors.end(narrow)
    claim(floors, taken(20, ENOUGH + 20))
    expect(floors.of(ALL)).toEqual([place(ENOUGH + 19)])
  })

  test('at the front after a claim failed, also when others were under way', () => {
    const floors = new ClaimFloors(clock)
    const [failed, other] = [floors.begin([]), floors.begin([])]
    floors.forget()
    floors.end(failed)
    floors.claimed(other, taken(0, ENOUGH))
    expect(floors.of(ALL)).toEqual([])
    floors.end(other)
    claim(floors, taken(0, ENOUGH))
    expect(floors.of(ALL)).toHaveLength(1)
  })

  test('at the front every ten seconds', () => {
    const floors = new ClaimFloors(clock)
    claim(floors, taken(0, ENOUGH))
    now += 9_999
    claim(floors, taken(ENOUGH, ENOUGH + 1), floors.of(ALL))
    expect(floors.of(ALL)).toEqual([place(ENOUGH)])
    now += 1
    expect(floors.of(ALL)).toEqual([])
  })

  test('behind a place for the last few of many queues and names only', () => {
    const floors = new ClaimFloors(clock)
    const names = Array.from({ length: 40 }, (_, i) => `n${i}`)
    for (const name of names) claim(floors, taken(0, ENOUGH, { name }))
    expect(floors.of({ queues: ['default'], names }).map(({ name }) => name)).toEqual(names.slice(-16))
  })
})

/** A table that claims read as it was when they began, several at a time, while others store and some claims fail. */
test('nothing that was stored stands before the place where a claim begins', () => {
  const step = fc.record({
    kind: fc.constantFrom(
      ...(['begin', 'begin', 'begin', 'answer', 'answer', 'answer'] as const),
      ...(['end', 'end', 'fail', 'again', 'store', 'tell', 'tell'] as const),
    ),
    pick: fc.nat(),
    places: fc.array(fc.record({ id: fc.nat({ max: 30 }), priority: fc.integer({ min: -1, max: 1 }) }), {
      maxLength: 4,
    }),
    narrow: fc.boolean(),
  })
  fc.assert(
    fc.property(fc.array(step, { minLength: 20, maxLength: 80 }), (steps) => {
      const floors = new ClaimFloors(clock, 1)
      const ready = new Map<string, ClaimFloor>()
      const untold: ClaimFloor[] = []
      const key = (one: ClaimFloor) => `${one.priority} ${one.id}`
      type Flight = {
        number: number
        behind: readonly ClaimFloor[]
        narrow: boolean
        took: ClaimFloor[]
        answered: boolean
      }
      const flights: Flight[] = []
      let last: ClaimFloor | null = null
      const take = (behind: readonly ClaimFloor[], narrow: boolean, limit: number): ClaimFloor[] => {
        const [from] = behind
        const seen = [...ready.values()].filter(
          (one) => !from || standsBefore(from, one) || (!narrow && one.priority < from.priority),
        )
        seen.sort((a, b) => (standsBefore(a, b) ? -1 : 1))
        const took = seen.slice(0, limit)
        for (const one of took) ready.delete(key(one))
        return took
      }
      for (const { kind, pick, places, narrow } of steps) {
        const asked = flights.filter(({ answered }) =>
          kind === 'answer' ? !answered : kind === 'end' ? answered : true,
        )
        const flight = asked[pick % (asked.length || 1)]
        if (kind === 'store') {
          for (const { id, priority } of places) {
            const one = place(id, { priority })
            const gone = flights.some(({ took }) => took.some((other) => key(other) === key(one)))
            if (gone || ready.has(key(one))) continue
            ready.set(key(one), one)
            untold.push(one)
          }
        } else if (kind === 'tell') floors.stored(untold.splice(0))
        else if (kind === 'begin') {
          const behind: readonly ClaimFloor[] = narrow && last ? [last] : floors.of(ALL)
          const isNarrow = narrow && last !== null
          const took = take(behind, isNarrow, 1 + (pick % 5))
          flights.push({ number: floors.begin(behind), behind, narrow: isNarrow, took, answered: false })
        } else if (kind === 'answer' && flight) {
          flight.answered = true
          floors.claimed(
            flight.number,
            flight.took.map((one) => ({ ...one, light: 1 as const })),
          )
          last = flight.took.at(-1) ?? null
        } else if (kind === 'end' && flight) {
          floors.end(flight.number)
          flights.splice(flights.indexOf(flight), 1)
        } else if (kind === 'again' && flight) {
          for (const one of flight.took) ready.set(key(one), one)
          floors.forget()
          flight.took = take(flight.behind, flight.narrow, 1 + (pick % 5))
          flight.answered = false
          last = null
        } else if (kind === 'fail' && flight) {
          for (const one of flight.took) ready.set(key(one), one)
          floors.forget()
          floors.end(flight.number)
          flights.splice(flights.indexOf(flight), 1)
          last = null
        }
        // What was not told of yet is told of in a moment.
        const known = [...ready.values()].filter((one) => !untold.includes(one))
        for (const floor of floors.of(ALL))
          for (const one of known)
            expect(
              standsBefore(floor, one) || one.priority < floor.priority,
              `${key(one)} of ${key(floor)}`,
            ).toBe(true)
      }
    }),
    { numRuns: 3_000 },
  )
})

import { expect, test } from 'vitest'
import { AttemptMap } from './attempt-map.ts'

type Attempt = { assignment: { taskId: string; token: string } }

const attempt = (taskId: string, token: string): Attempt => ({ assignment: { taskId, token } })

test('attempts of one task are told apart by their tokens, whichever of them goes first', () => {
  for (const goesFirst of [0, 1, 2]) {
    const map = new AttemptMap<Attempt>()
    const attempts = [attempt('t_1', 'a'), attempt('t_1', 'b'), attempt('t_1', 'c')]
    for (const one of [...attempts, attempt('t_2', 'a')]) map.add(one)
    for (const one of attempts) expect(map.get(one.assignment)).toBe(one)
    expect([...map]).toHaveLength(4)
    const [gone] = attempts.splice(goesFirst, 1) as [Attempt]
    map.delete(gone)
    expect(map.get(gone.assignment)).toBeNull()
    for (const one of attempts) expect(map.get(one.assignment)).toBe(one)
    expect(map.get({ taskId: 't_2', token: 'b' })).toBeNull()
    expect([...map]).toHaveLength(3)
  }
})

test('an attempt that is held again takes the place of the one before, which cannot take it along', () => {
  const map = new AttemptMap<Attempt>()
  const before = attempt('t_1', 'a')
  const again = attempt('t_1', 'a')
  map.add(before)
  map.add(again)
  map.delete(before)
  expect(map.get(again.assignment)).toBe(again)
  expect([...map]).toEqual([again])
})

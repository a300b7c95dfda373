import { expect, test } from 'vitest'
import type { ClaimedTask } from '../store/hot-statements.ts'
import { LightClaims } from './light-claims.ts'
import type { Slot } from './worker-sessions.ts'

const tasks = (...dueAts: (number | null)[]) =>
  dueAts.map((dueAt) => ({ light: 1, dueAt })) as Partial<ClaimedTask>[] as ClaimedTask[]
const slot = (taskId: string, token: string, isLight = true) =>
  ({ assignment: { taskId, token }, isLight, startedAt: 10 }) as Partial<Slot> as Slot

test('a claim is forgotten with what is left of it, when that is all there is', () => {
  const claims = new LightClaims()
  claims.claimed('a', 10, tasks(null, 50, 40))
  claims.claimed('b', 20, tasks(30))
  claims.ended('a')
  const slots = [slot('t1', 'a'), slot('t2', 'a'), slot('t3', 'a', false), slot('t4', 'b')]
  expect(claims.until(9, slots)).toMatchObject({ all: [], attempts: [], dueAt: Infinity })
  expect(claims.until(10, slots)).toEqual({
    ...{ all: ['a'], tokens: ['a'], dueAt: 40 },
    attempts: ['t1', 't2'].map((id) => ({ id, token: 'a', startedAt: 10 })),
  })
  // One that nobody here runs any more may be light still.
  expect(claims.until(10, slots.slice(1))).toMatchObject({ all: ['a'], tokens: [] })
  claims.forget(['a'])
  expect(claims.until(20, slots)).toMatchObject({ all: ['b'], tokens: ['b'], dueAt: 30 })
  claims.ended('b')
  expect(claims.until(20, [])).toMatchObject({ all: [] })
  expect(claims.none).toBe(false)
  expect(claims.takeEnded()).toEqual(['b'])
  expect(claims.none).toBe(true)
})

import fc from 'fast-check'
import { expect, test } from 'vitest'
import { heavy, leftBehind } from './fixtures/old-space.ts'
import { IdMap } from './id-map.ts'

test('it is a map, whatever the ids and the order', () => {
  const id = fc.oneof(
    fc.nat(40).map((n) => `t_01m7hwbq5m6tmfwwsrx${n}`),
    fc.string({ maxLength: 3 }),
    // Where it is looked at they are the same.
    fc.nat(40).map((n) => `${n}_the_end_of_all`),
  )
  const step = fc.record({ id, set: fc.boolean(), value: fc.nat() })
  fc.assert(
    fc.property(fc.array(step, { maxLength: 300 }), (steps) => {
      const map = new IdMap<number>()
      const model = new Map<string, number>()
      for (const { id: one, set, value } of steps) {
        if (set) {
          map.set(one, value)
          model.set(one, value)
        } else expect(map.delete(one)).toBe(model.delete(one))
        expect(map.get(one)).toBe(model.get(one))
        expect(map.size).toBe(model.size)
      }
      for (const [one, value] of model) expect(map.get(one)).toBe(value)
      expect(map.values().sort()).toEqual([...model.values()].sort())
    }),
  )
})

test('what was taken out does not stay in memory for those that came later', async () => {
  const map = new IdMap<unknown>()
  let count = 0
  const megabytes = await leftBehind(() => {
    for (let i = 0; i < 100; i++) {
      map.set(`t_${count}`, heavy())
      map.delete(`t_${count - 10}`)
      count++
    }
  })
  expect(map.size).toBe(10)
  expect(megabytes).toBeLessThan(10)
})

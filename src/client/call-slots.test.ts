import { expect, test } from 'vitest'
import { CallSlots } from './call-slots.ts'

test('so many at a time, the others in their order, whatever becomes of them', async () => {
  const slots = new CallSlots(2)
  const begun: number[] = []
  const calls = Array.from({ length: 5 }, () => Promise.withResolvers<number>())
  const ended = calls.map(({ promise }, i) =>
    slots.run(() => {
      begun.push(i)
      return promise
    }),
  )
  const settled = Promise.allSettled(ended)
  expect(begun).toEqual([0, 1])
  calls[1]?.reject(new Error('no'))
  await expect(ended[1]).rejects.toThrow('no')
  expect(begun).toEqual([0, 1, 2])
  calls[2]?.resolve(2)
  await ended[2]
  expect(begun).toEqual([0, 1, 2, 3])
  for (const { resolve } of calls) resolve(7)
  expect((await settled).map(({ status }) => status[0])).toEqual(['f', 'r', 'f', 'f', 'f'])
  expect(begun).toEqual([0, 1, 2, 3, 4])
  expect(await slots.run(async () => 8)).toBe(8)
})

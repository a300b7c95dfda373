import { expect, test } from 'vitest'
import { negotiate, OURS } from './protocol.ts'

const of = (min: number, max: number, version = '1.0.0') => ({ version, min, max })

test('a worker and a manager speak the highest revision that both know', () => {
  expect(negotiate(OURS, OURS)).toBe(OURS.max)
  expect(negotiate(of(1, 3), of(2, 5))).toBe(3)
  expect(negotiate(of(2, 5), of(1, 3))).toBe(3)
  expect(negotiate(of(3, 3), of(1, 3))).toBe(3)
})

test('where there is none, whoever is older is told to be updated', () => {
  expect(() => negotiate(of(1, 2, '0.9.0'), of(3, 4, '2.0.0'))).toThrow(
    expect.objectContaining({
      ...{ code: 'version_mismatch', hint: 'Update the worker.' },
      message: expect.stringContaining(
        'the worker (Curfew 0.9.0) speaks protocol 1 to 2, the manager (2.0.0) 3 to 4',
      ),
    }),
  )
  expect(() => negotiate(of(4, 4), of(3, 3))).toThrow(
    expect.objectContaining({ code: 'version_mismatch', hint: 'Update the manager.' }),
  )
})

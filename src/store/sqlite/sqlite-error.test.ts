import { expect, test } from 'vitest'
import { isCannotOpen } from './sqlite-error.ts'

test('where no file can be made beside a store, as on a full disk, that is not damaged', () => {
  const shared = { open: 4618, size: 4874, map: 5386 }
  for (const errcode of Object.values(shared)) expect(isCannotOpen({ errcode })).toBe(true)
  const read = 266
  expect(isCannotOpen({ errcode: read })).toBe(false)
})

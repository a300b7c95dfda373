import { expect, test } from 'vitest'
import { MAX_CLAIM_BYTES } from '../core/limits.ts'
import { ClaimSize } from './claim-size.ts'

const ofBytes = (...bytes: number[]) =>
  bytes.map((count) => ({ input: 'x'.repeat(count), details: null as string | null }))

test('a claim asks for a few before anything is known, then for more and more', () => {
  const size = new ClaimSize(2_000)
  const asked = [size.most]
  while (size.most < 2_000) {
    size.claimed(ofBytes(2, 2))
    asked.push(size.most)
  }
  expect(asked).toEqual([128, 256, 512, 1_024, 2_000])
  size.claimed([])
  expect(size.most).toBe(2_000)
})

test('large ones count at once, and for a while; one is always asked for', () => {
  const size = new ClaimSize(2_000)
  const megabyte = 1024 * 1024
  size.claimed(ofBytes(megabyte, megabyte))
  expect(size.most).toBe(MAX_CLAIM_BYTES / megabyte)
  size.claimed(ofBytes(1))
  expect(size.most).toBe((2 * MAX_CLAIM_BYTES) / megabyte)
  size.claimed([{ input: '1', details: 'x'.repeat(2 * MAX_CLAIM_BYTES) }])
  expect(size.most).toBe(1)
  expect(new ClaimSize(7).most).toBe(7)
})

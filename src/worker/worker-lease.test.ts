import { expect, test } from 'vitest'
import { ORPHAN_GRACE_MS } from '../core/limits.ts'
import { LEASE_BYTES, WorkerLease } from './worker-lease.ts'

/** When it was renewed, and the last renewal that none followed in time, after these. */
function renewedAt(...times: number[]): [renewedAt: number, lapsedAt: number] {
  const lease = new WorkerLease(new ArrayBuffer(LEASE_BYTES))
  lease.begin(1_000)
  for (const at of times) lease.renew(at)
  return [lease.renewedAt, lease.lapsedAt]
}

test('a lease that is renewed in time never lapses', () => {
  expect(renewedAt()).toEqual([1_000, -Infinity])
  expect(renewedAt(2_000, 2_000 + ORPHAN_GRACE_MS)).toEqual([2_000 + ORPHAN_GRACE_MS, -Infinity])
})

test('a renewal that comes too late leaves the one before it, for whoever looks after that', () => {
  const late = 2_000 + ORPHAN_GRACE_MS + 1
  expect(renewedAt(2_000, late)).toEqual([late, 2_000])
  expect(renewedAt(2_000, late, late + 1_000)).toEqual([late + 1_000, 2_000])
  const later = late + ORPHAN_GRACE_MS + 1
  expect(renewedAt(2_000, late, later)).toEqual([later, late])
})

test('an answer that was overtaken by a later one renews nothing', () => {
  expect(renewedAt(3_000, 2_000, 3_000)).toEqual([3_000, -Infinity])
})

import { beforeEach, describe, expect, test } from 'vitest'
import type { Clock } from '../core/clock.ts'
import { ORPHAN_GRACE_MS } from '../core/limits.ts'
import { StoreTime } from '../store/store-time.ts'
import type { HeartbeatRow } from './heartbeat.ts'
import { Lease } from './lease.ts'
import { LEADERSHIP_MS } from './lease-times.ts'

const STORE_START = 1_000_000
const QUIET_MS = 10_000

let monotonic: number
let lease: Lease
let time: StoreTime

beforeEach(() => {
  monotonic = 0
  const clock: Clock = {
    wall: () => 0,
    monotonic: () => monotonic,
    setTimer: () => ({ cancel: () => undefined }),
    endOfTurn: () => undefined,
  }
  time = new StoreTime(clock, STORE_START)
  lease = new Lease('n_1', 1, clock, time)
})

/** A renewal sent now, answered after so long; the store reads its clock when it is half way. */
function renew(
  options: { lead?: boolean; tookMs?: number; correction?: number; peers?: HeartbeatRow['peers'] } = {},
) {
  const { lead = true, tookMs = 0, correction = 0, peers = null } = options
  const sentAt = monotonic
  monotonic += tookMs
  const raw = STORE_START + sentAt + tookMs / 2
  const nothing = {
    ...{ renewed: 1, mark: null, nextDue: null, ready: false, stops: null, queueList: null },
    claimedSince: null,
  }
  lease.renewed({ row: { ...nothing, raw, correction, peers }, sentAt, arrivedAt: monotonic, lead }, QUIET_MS)
}

describe('leading', () => {
  test('lasts one lease from the sign-in, not a moment longer', () => {
    monotonic = LEADERSHIP_MS - 1
    expect(lease.leading).toBe(true)
    monotonic = LEADERSHIP_MS
    expect(lease.leading).toBe(false)
  })

  test('is counted from before the renewal was sent, so never for too long', () => {
    monotonic = 1_000
    renew({ tookMs: 800 })
    monotonic = 1_000 + LEADERSHIP_MS - 1
    expect(lease.leading).toBe(true)
    monotonic = 1_000 + LEADERSHIP_MS
    expect(lease.leading).toBe(false)
  })

  test('is not renewed while the main loop does not tick, though the attempts are', () => {
    for (monotonic = 1_000; monotonic <= 9_000; monotonic += 1_000) renew({ lead: false })
    expect(lease.leading).toBe(false)
    expect(lease.orphaned).toBe(false)
    renew({ lead: true })
    expect(lease.leading).toBe(true)
  })

  test('ends at once when somebody else has ended it, and begins again with a higher epoch', () => {
    lease.deposed()
    expect(lease.leading).toBe(false)
    monotonic = 500
    lease.signedIn(2)
    expect(lease.leading).toBe(true)
    expect(lease.fence()).toEqual({ nodeId: 'n_1', epoch: 2 })
    monotonic = 500 + LEADERSHIP_MS
    expect(lease.leading).toBe(false)
  })
})

describe('orphaned', () => {
  test('is who could not renew for longer than the orphan grace, and no longer once it could', () => {
    monotonic = ORPHAN_GRACE_MS
    expect(lease.orphaned).toBe(false)
    monotonic = ORPHAN_GRACE_MS + 1
    expect(lease.orphaned).toBe(true)
    renew()
    expect(lease.orphaned).toBe(false)
  })

  test('is counted from when the last renewal was sent', () => {
    monotonic = 1_000
    renew({ tookMs: 2_000 })
    monotonic = 1_000 + ORPHAN_GRACE_MS
    expect(lease.orphaned).toBe(false)
    monotonic += 1
    expect(lease.orphaned).toBe(true)
  })

  test('leadership is over well before', () => {
    expect(LEADERSHIP_MS).toBeLessThan(ORPHAN_GRACE_MS)
  })
})

describe('judging peers', () => {
  test('is allowed while renewals come in time', () => {
    for (monotonic = 1_000; monotonic < 20_000; monotonic += LEADERSHIP_MS) renew()
    expect(lease.mayJudge(time.now())).toBe(true)
  })

  test('waits after an outage for one lease, by the clock of the store', () => {
    monotonic = 1_000
    renew()
    monotonic = 1_000 + LEADERSHIP_MS + 1
    renew()
    const from = time.now()
    expect(lease.mayJudge(from)).toBe(false)
    expect(lease.mayJudge(from + QUIET_MS - 1)).toBe(false)
    // Renewals that come in time again do not shorten it.
    monotonic += 1_000
    renew()
    expect(lease.mayJudge(time.now())).toBe(false)
    expect(lease.mayJudge(from + QUIET_MS)).toBe(true)
  })

  test('knows of peers what the last renewal brought', () => {
    const peer = { id: 'n_2', epoch: 1, renewedAt: 5, leadUntil: 6, goneAt: null }
    renew({ peers: [peer] })
    expect(lease.peers).toEqual([peer])
    renew()
    expect(lease.peers).toEqual([])
  })
})

test('a renewal brings the clock of the store, with its correction, as a lower bound', () => {
  monotonic = 1_000
  renew({ tookMs: 200, correction: 50_000 })
  expect(time.now()).toBe(STORE_START + 1_000 + 100 + 50_000)
})

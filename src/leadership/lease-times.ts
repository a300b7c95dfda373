/** The two leases of a process, and what hangs on them. */
import { assert } from '../core/errors.ts'
import { ORPHAN_GRACE_MS } from '../core/limits.ts'

/** Who may decide. */
export const LEADERSHIP_MS = 3_000
/** For the kill to be verified and for clocks that drift, after the orphan grace and the attempt's own grace. */
const LEASE_MARGIN_MS = 5_000
/** An attempt's lease is this and its own grace. */
export const ATTEMPT_LEASE_BASE_MS = ORPHAN_GRACE_MS + LEASE_MARGIN_MS
export const RENEW_EVERY_MS = 1_000
/** How far ahead the next deadline is looked for: over the next renewal, with room for a late one. */
export const HORIZON_MS = 2 * RENEW_EVERY_MS + 500

assert(
  LEADERSHIP_MS + RENEW_EVERY_MS < ORPHAN_GRACE_MS,
  'a takeover must be over before attempts are orphaned',
)

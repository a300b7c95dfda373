/** Why an attempt has to stop, as its row has it. */
import type { StopReason, TimeoutKind } from '../core/states.ts'

export function stopReason({
  status,
  timeoutKind,
}: {
  status: string
  timeoutKind: string | null
}): StopReason {
  if (status === 'cancelled') return { code: 'cancelled', message: 'it was cancelled' }
  const kind = (timeoutKind ?? 'total') as TimeoutKind
  return { code: 'timed_out', kind, message: `its ${kind} limit is over` }
}

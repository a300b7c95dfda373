import { Code, ConnectError } from '@connectrpc/connect'

/** Why a request was ended from here: what its signal was given for a reason, or that its caller has gone. */
export function abortReason({ reason }: AbortSignal, otherwise: string): ConnectError {
  return reason instanceof ConnectError ? reason : new ConnectError(otherwise, Code.Canceled)
}

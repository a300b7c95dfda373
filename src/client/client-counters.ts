/** What a connected client has met, for whoever looks after the program it is in. */
export interface ClientCounters {
  requests: number
  /** Tries after the first. */
  retries: number
  /** Requests that failed for good. */
  failures: number
  /** Watches that went on over a new connection. */
  reconnects: number
  /** Times that nobody answered for longer than a manager may take to come back. */
  orphaned: number
}

export function newCounters(): ClientCounters {
  return { requests: 0, retries: 0, failures: 0, reconnects: 0, orphaned: 0 }
}

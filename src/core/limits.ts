/** Every cap, with its reason. */

/** A batch of the funnel: larger ones hold locks, and so deadlines, for too long. */
export const MAX_BATCH_ROWS = 500
export const MAX_BATCH_BYTES = 4 * 1024 * 1024
/** Rows a bulk command may carry, for the same reason. */
export const MAX_BULK_ROWS = 500
/** Commands that may wait for the store; more are refused, so that an outage does not fill the memory. */
export const MAX_WAITING_COMMANDS = 50_000
/** Deadlines fired in one transaction. */
export const MAX_FIRED = 500
/** Tasks claimed in one transaction. */
export const MAX_CLAIMED = 500
/** An input, output or progress details: what a row can carry without slowing its neighbours. */
export const MAX_PAYLOAD_BYTES = 1024 * 1024
export const MAX_DETAILS_BYTES = 64 * 1024
/** Output that came too late is kept in an event, for a person to look at. */
export const MAX_LATE_BYTES = 16 * 1024
/** JSON nesting: deeper is a cycle or an attack. */
export const MAX_DEPTH = 100
/** Names, queues and keys stand in indexes. */
export const MAX_NAME_LENGTH = 200
export const MAX_KEY_LENGTH = 500
/** Messages and stacks of failures. */
export const MAX_FAILURE_TEXT = 8 * 1024
export const MAX_PAGE = 1_000
export const MAX_RETRIES = 1_000
export const MAX_CONCURRENCY = 10_000
/** Steps of one agent: its journal is replayed whole. */
export const MAX_STEPS = 50_000
/** Signals that nobody has taken, per agent. */
export const MAX_WAITING_SIGNALS = 10_000
/** Agents that stay in memory while they wait; the others are replayed when they are woken. */
export const MAX_RESIDENTS = 1_000
export const MAX_RESIDENT_BYTES = 64 * 1024 * 1024
/** Turns a process runs at a time unless set. */
export const DEFAULT_TURNS = 100
/** Records of a journal in one answer. */
export const MAX_JOURNAL_PAGE = 1_000
/** Rows a retention sweep deletes in one transaction. */
export const MAX_SWEPT = 500
/** Request ids of extensions an attempt remembers. */
export const MAX_EXTENSION_REQUESTS = 20

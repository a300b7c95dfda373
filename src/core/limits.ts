/** Every cap, with its reason. */

/** A batch of the funnel: larger ones hold locks, and so deadlines, for too long. */
export const MAX_BATCH_ROWS = 500
/** The same on PostgreSQL: what each transaction costs by itself is more there, and another goes on beside it. */
export const MAX_SHARED_BATCH_ROWS = 2_000
export const MAX_BATCH_BYTES = 4 * 1024 * 1024
/** Inputs that one claim brings into the memory of a process, as far as can be told before it. */
export const MAX_CLAIM_BYTES = 32 * 1024 * 1024
/** Waiting for a worker that reads slowly: beyond it the worker is given no more, and others may take it. */
export const MAX_BEHIND_BYTES = 32 * 1024 * 1024
/** Rows a bulk command may carry, for the same reason. */
export const MAX_BULK_ROWS = 500
/** Commands that may wait for the store; more are refused, so that an outage does not fill the memory. */
export const MAX_WAITING_COMMANDS = 50_000
/** Deadlines fired in one transaction. */
export const MAX_FIRED = 500
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
/** Records of a journal in one answer, and the length of their texts. */
export const MAX_JOURNAL_PAGE = 1_000
export const MAX_JOURNAL_BYTES = 16 * 1024 * 1024
/** Rows a retention sweep deletes in one transaction. */
export const MAX_SWEPT = 500
/** Request ids of extensions an attempt remembers. */
export const MAX_EXTENSION_REQUESTS = 20
/** A definition as text, RULES 32: larger ones are data that went astray. Its tokens bound what parsing costs. */
export const MAX_DEFINITION_BYTES = 1024 * 1024
export const MAX_DEFINITION_DEPTH = 64
export const MAX_DEFINITION_TOKENS = 400_000
/** A few aliases to aliases are enough to fill any memory. */
export const MAX_ALIASES = 100
/** Problems told about one definition: nobody reads more, and each holds its text. */
export const MAX_PROBLEMS = 200
/** A graph is stored with each run and compiled whole. */
export const MAX_NODES = 1_000
export const MAX_ACTIONS = 1_000
export const MAX_TRANSITIONS = 5_000
/** All definitions a run may need, at any depth: half of what its row and those of its children can carry. */
export const MAX_DEFINITIONS_BYTES = 512 * 1024
/** Keys of one mapping, headers of one request, elements of one argv. */
export const MAX_MAPPING_KEYS = 500
/** Branches of one fan-out: each has rows, and a join reads all their outputs at once. */
export const MAX_BRANCHES = 10_000
/** Fan-outs inside fan-outs: the stack stands on every token. */
export const MAX_SCOPE_DEPTH = 16
/** Positions of a graph that are told apart when it is checked; beyond that it is too tangled to be checked. */
export const MAX_CHECKED_POSITIONS = 50_000
export const MAX_ITERATIONS = 1_000_000
/** Workflows of one job: they are rows of one root, decided under one lock. */
export const MAX_JOB_WORKFLOWS = 2_000
/** An expression: what a person can read. Its parser and planner are recursive. */
export const MAX_EXPRESSION_LENGTH = 4_096
export const MAX_EXPRESSION_DEPTH = 200
/** Steps of one evaluation, some tenths of a second: it holds up the loop that fires deadlines. */
export const MAX_EXPRESSION_STEPS = 300_000
/** A text or list an expression makes: no larger than what can be stored. */
export const MAX_EXPRESSION_TEXT = 1024 * 1024
export const MAX_EXPRESSION_ITEMS = 100_000
/** The value of a variable in the message of a failed expression. */
export const MAX_SHOWN_VALUE = 200
/** Tokens of one run: each node it runs is a step of its journal. */
export const MAX_TOKENS = 45_000
/** Nodes without work between two things that happen. */
export const MAX_PASSED_NODES = 10_000
/** The answer to an `http_request`: it becomes a value of the run. */
export const MAX_HTTP_BODY_BYTES = 1024 * 1024
/** Of each stream of a `shell` command. */
export const MAX_SHELL_OUTPUT = 256 * 1024
/** Steps of a phase of a map-reduce, and the text of one: what a person can read. */
export const MAX_STEPS_OF_PHASE = 200
export const MAX_COMMAND_TEXT = 64 * 1024
/** A value that a command is given: a system refuses an argument or variable of 128 KiB, its name and text included. */
export const MAX_COMMAND_VALUE_BYTES = 96 * 1024
export const MAX_COMMAND_ARGUMENT_BYTES = 120 * 1024
/** All values of one command: with the environment around them at most a fourth of the stack, 2 MiB as a rule. */
export const MAX_COMMAND_VARIABLES_BYTES = 1024 * 1024
/** What the items of a map-reduce are read from: it is parsed whole. */
export const MAX_ITEMS_BYTES = 64 * 1024 * 1024
/** What a join makes of its branches: it is held in memory for as long as the run is. */
export const MAX_MERGED_BYTES = 16 * 1024 * 1024
/** Steps of all expressions between two things that happen to a run, some seconds: nothing else gets a turn. */
export const MAX_STEPS_AT_ONCE = 1_500_000
/** Runs inside runs: a workflow may call itself. */
export const MAX_RUN_DEPTH = 100
/** A host with its port: the longest name DNS has, its dot, and five digits. */
export const MAX_AUTHORITY_LENGTH = 260
/** The path of a Unix socket: systems cut or refuse longer ones; macOS takes the fewest. */
export const MAX_SOCKET_PATH_BYTES = 103
/** Names a manager may be called by: each request is compared with them. */
export const MAX_LISTEN_HOSTS = 100
/** Tokens of a manager: each request is compared with all of them. */
export const MAX_ACCESS_TOKENS = 1_000
/** Refused tokens of one address that are answered one by one within this time: more is a fault or an attack. */
export const MAX_REFUSED_TOKENS = 20
export const REFUSED_TOKENS_WITHIN_MS = 60_000
/** Addresses whose refused tokens are counted: an attacker may have any number of them. */
export const MAX_COUNTED_ADDRESSES = 10_000
/** Workers attached to one manager: each has a stream, and is heard of once a second. */
export const MAX_REMOTE_WORKERS = 10_000
/** Definitions a worker announces, and queues it names: each submit looks through them. */
export const MAX_ANNOUNCED = 10_000
/** What people know a worker by. */
export const MAX_LABELS = 100
/** A request: the largest batch of the library, with room for its envelope. */
export const MAX_REQUEST_BYTES = 16 * 1024 * 1024
/** Work that one request waits for: a client has further requests for more. */
export const MAX_WAITED_FOR = 5_000
/** What all such requests to one manager wait for: each takes two kilobytes. */
export const MAX_WAITED_FOR_IN_ALL = 250_000
/** An answer: what a manager says is believed, and the results an agent has waited for come together. */
export const MAX_ANSWER_BYTES = 1024 * 1024 * 1024
/** Messages inside messages: runs below runs, at the end of them a value, each of whose levels is two messages. */
export const MAX_MESSAGE_DEPTH = MAX_RUN_DEPTH + 2 * MAX_DEPTH + 50
/** For a request to arrive whole: whoever is slower holds a connection for nothing. */
export const MAX_REQUEST_MS = 60_000
export const MAX_HEADER_BYTES = 16 * 1024
export const MAX_HEADERS = 100
/** Each takes some kilobytes and a file descriptor. */
export const MAX_CONNECTIONS = 30_000
/** Without a renewal of its lease for so long a process stops its attempts; workers count it too. */
export const ORPHAN_GRACE_MS = 5_000
/** Events and dead letters in one note, and how large a letter may be. */
export const MAX_NOTED = 1_000
export const MAX_LETTER_BYTES = 256 * 1024
/** Dead letters in one answer, with all there is to know of them; items that one call may name. */
export const MAX_LETTERS_WITH_BODY = 50
export const MAX_NAMED_ITEMS = 1_000

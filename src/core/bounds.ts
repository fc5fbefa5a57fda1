/** Every bound and default of the engine's meaning, with its unit and why it is that number. */

/** One payload (input, state, result, signal, error) as UTF-8 JSON, in bytes: what a row of a 64 MB reply carries 8 MiB of. */
export const MAX_PAYLOAD_BYTES = 1_048_576
/** One request body, in bytes: below the 4.5 MB that Vercel accepts. */
export const MAX_BODY_BYTES = 4_194_304
/** Nesting of one JSON value, in levels: recursion over it never nears any host's stack. */
export const MAX_JSON_DEPTH = 200
/** Names of definitions, queues, steps, signals, limits, schedules, hooks and tenants, in UTF-16 units: they are index keys. */
export const MAX_NAME_LENGTH = 200
/** Keys, concurrency keys and partitions of limits, in UTF-16 units: a btree entry must stay below 2,704 bytes. */
export const MAX_KEY_LENGTH = 512
export const MAX_TAG_LENGTH = 128
/** Tags of one run: each is an entry of an index. */
export const MAX_TAGS = 32
export const MAX_HEADERS = 32
/** Name of a header, in characters. */
export const MAX_HEADER_NAME_LENGTH = 128
/** Value of a header, in UTF-16 units: `tracestate` may have 512, a W3C baggage is worth keeping. */
export const MAX_HEADER_VALUE_LENGTH = 2_048
/** Any duration, in milliseconds: 100 years, far inside what timestamptz and a double hold exactly. */
export const MAX_DURATION_MS = 3_155_760_000_000
/** Items of one batch call, and children of one join. */
export const MAX_BATCH_ITEMS = 10_000
/** Events and signals that one step sends: each is told in a request of its own after the commit. */
export const MAX_STEP_MESSAGES = 50
/** Runs whose ends one wait is for: each is locked while the wait is committed. */
export const MAX_AWAITED_RUNS = 100
/** Statements of the user riding with one outcome: they share its transaction and its locks. */
export const MAX_COMMIT_STATEMENTS = 50
/** Parameters of one statement: a Bind message counts them in 16 bits. */
export const MAX_STATEMENT_PARAMETERS = 65_535
/** Steps of one machine. */
export const MAX_STEPS = 1_000
/** Versions are positive int4. */
export const MAX_VERSION = 2_147_483_647
/** Priorities are int2, lower first. */
export const MIN_PRIORITY = -32_768
export const MAX_PRIORITY = 32_767
/** Attempts of one visit: an int4 would do, a number above this is a mistake of units. */
export const MAX_ATTEMPTS = 1_000_000
/** Replays of abandoned attempts: each may have killed a host. */
export const MAX_REPLAYS = 100
/** Concurrency of a gate, burst of a bucket, weight of a run: int4, far above what one database runs. */
export const MAX_LIMIT_AMOUNT = 1_000_000
/** Counters of one partition of a limit: more than hosts claim at once is of no use. */
export const MAX_LIMIT_SHARDS = 64
/** Message of a stored error, in UTF-16 units: it is listed in the dashboard. */
export const MAX_ERROR_MESSAGE_LENGTH = 4_000
/** Why somebody cancelled a run, in UTF-16 units: it is part of the run's error. */
export const MAX_REASON_LENGTH = 1_000
/** Stack of a stored error, in UTF-16 units. */
export const MAX_ERROR_STACK_LENGTH = 8_000

export const DEFAULT_QUEUE = 'default'
export const DEFAULT_TENANT = 'default'
export const DEFAULT_PRIORITY = 0
export const DEFAULT_VERSION = 1
/** Time a step may take, in milliseconds: it fits twice into the 30 s that Workers grant after a response. */
export const DEFAULT_TIMEOUT_MS = 15_000
/** The least a step may be given, in milliseconds. */
export const MIN_TIMEOUT_MS = 1
/** The most a step may be given, in milliseconds: no host runs an invocation longer than a day. */
export const MAX_TIMEOUT_MS = 86_400_000
/** A lease outlives the step's timeout by this, in milliseconds: room to flush the outcome before anybody rescues the run. */
export const LEASE_GRACE_MS = 15_000
/** The least lease, in milliseconds: shorter ones lapse while a slow database answers. */
export const MIN_LEASE_MS = 1_000
/** How long an event is there for those who come later, in milliseconds: 7 days, as long as completed runs are. */
export const DEFAULT_EVENT_RETENTION_MS = 604_800_000
/** The least an event is kept, in milliseconds: long enough to be told to those who wait for it. */
export const MIN_EVENT_RETENTION_MS = 1_000
/** Snoozes of one run before it ends: a run that snoozes every minute lives for most of a day. */
export const DEFAULT_MAX_SNOOZES = 1_000
/** How long a completed run is kept, in milliseconds: 7 days. */
export const DEFAULT_RETENTION_COMPLETED_MS = 604_800_000
/** How long a failed, cancelled or discarded run is kept, in milliseconds: 30 days, somebody may have to look. */
export const DEFAULT_RETENTION_FAILED_MS = 2_592_000_000

/**
 * Which schema this build was written for, and its own number. A migration says the least build that works with what it leaves
 * behind, so that an older build goes on working until then (expand, later contract).
 */

/** Version of the schema after the last migration of this build. */
export const SCHEMA_VERSION = 6

/** Number of this build: raised whenever a statement of it needs, or stops needing, something of the schema. */
export const BUILD = 2

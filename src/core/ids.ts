/**
 * Ids. A UUIDv7 here is: 48 bits of milliseconds, 26 bits of counter (seeded at random each millisecond), 48 random bits.
 * Ids of one process rise strictly, also within a millisecond and when the clock goes back. Across processes an id is
 * never an order: ties break by an identity column in the database.
 */

const HEX: readonly string[] = Array.from({ length: 256 }, (_, byte) => byte.toString(16).padStart(2, '0'))
/** Bytes drawn from the system at a time: one call per thousand ids. Filled at first use: Workers forbid it while loading. */
const POOL_BYTES = 8_192
const COUNTER_BITS = 26
const MAX_COUNTER = 2 ** COUNTER_BITS - 1

const pool = new Uint8Array(POOL_BYTES)
let used = POOL_BYTES
let lastMs = -1
let counter = 0

/** Offset in the pool of `count` fresh random bytes. */
function draw(count: number): number {
  if (used + count > POOL_BYTES) {
    crypto.getRandomValues(pool)
    used = 0
  }
  const at = used
  used += count
  return at
}

/** A new UUIDv7, greater than every earlier one of this process. Costs no I/O. */
export function uuidv7(nowMs: number = Date.now()): string {
  if (nowMs > lastMs) {
    lastMs = nowMs
    const at = draw(4)
    // the top counter bit starts at 0, so at least 2^25 ids fit before the millisecond must be advanced
    counter = (byte(at) << 17) ^ (byte(at + 1) << 9) ^ (byte(at + 2) << 1) ^ (byte(at + 3) & 1)
  } else if (counter < MAX_COUNTER) {
    counter += 1
  } else {
    lastMs += 1
    counter = 0
  }
  const high = Math.floor(lastMs / 0x1_0000)
  const low = lastMs & 0xffff
  const at = draw(6)
  return (
    `${hex(high >>> 24)}${hex((high >>> 16) & 255)}${hex((high >>> 8) & 255)}${hex(high & 255)}-` +
    `${hex(low >>> 8)}${hex(low & 255)}-` +
    `${hex(0x70 | (counter >>> 22))}${hex((counter >>> 14) & 255)}-` +
    `${hex(0x80 | ((counter >>> 8) & 63))}${hex(counter & 255)}-` +
    `${hex(byte(at))}${hex(byte(at + 1))}${hex(byte(at + 2))}${hex(byte(at + 3))}${hex(byte(at + 4))}${hex(byte(at + 5))}`
  )
}

function byte(at: number): number {
  return pool[at] as number
}

function hex(value: number): string {
  return HEX[value] as string
}

/** A new random UUID (v4). */
export function randomUuid(): string {
  return crypto.randomUUID()
}

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/

/** True for a UUID of any version in its canonical lower-case spelling: the only one pawl writes, so the only one it reads. */
export function isUuid(value: unknown): value is string {
  return typeof value === 'string' && UUID.test(value)
}

/** How often a race is run: `PAWL_RACES` (5,000 in the soak), or as many times that as is said; else the short form given. */
export function raceCount(short: number, times = 1): number {
  const asked = Number(process.env.PAWL_RACES ?? '')
  return Number.isInteger(asked) && asked > 0 ? asked * times : short
}

/** Room for that many races, in milliseconds: each takes a few requests. */
export function raceTimeout(count: number): number {
  return 60_000 + count * 100
}

/** Calls `wave` with the sizes of waves that add up to `count`, and says how many races were run. */
export async function inWaves(title: string, count: number, width: number, wave: (size: number) => Promise<void>): Promise<void> {
  for (let left = count; left > 0; left -= width) await wave(Math.min(width, left))
  console.info(`${title}: ${count} races`)
}

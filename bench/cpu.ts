import { readdirSync, readFileSync } from 'node:fs'

/** CPU time as Linux counts it, in hundredths of a second; elsewhere it is not known. */
const TICKS_PER_SECOND = 100

/** Seconds that the postmaster and all its processes have used, those that have ended included. */
export function readPostgresCpu(postmaster: number | undefined): number {
  if (postmaster === undefined) return Number.NaN
  let ticks = 0
  for (const pid of processes()) {
    const stat = readStat(pid)
    if (stat === undefined) continue
    if (pid === String(postmaster)) ticks += sum(stat.slice(11, 15))
    else if (stat[1] === String(postmaster)) ticks += sum(stat.slice(11, 13))
  }
  return ticks / TICKS_PER_SECOND
}

/** Seconds that all processors together were busy. */
export function readMachineCpu(): number {
  try {
    const fields = readFileSync('/proc/stat', 'utf8').split('\n')[0]?.trim().split(/\s+/).slice(1) ?? []
    return sum([fields[0], fields[1], fields[2], fields[5], fields[6]]) / TICKS_PER_SECOND
  } catch {
    return Number.NaN
  }
}

/** The parent of a process on this machine. */
export function readParent(pid: number): number | undefined {
  const parent = readStat(String(pid))?.[1]
  return parent === undefined ? undefined : Number(parent)
}

function processes(): readonly string[] {
  try {
    return readdirSync('/proc').filter((name) => name > '0' && name < ':')
  } catch {
    return []
  }
}

/** The fields of `/proc/<pid>/stat` behind the name, which may itself hold spaces: state, parent, … */
function readStat(pid: string): readonly string[] | undefined {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, 'utf8')
    return text.slice(text.lastIndexOf(')') + 2).split(' ')
  } catch {
    return undefined
  }
}

function sum(values: readonly (string | undefined)[]): number {
  return values.reduce((total, value) => total + Number(value ?? 0), 0)
}

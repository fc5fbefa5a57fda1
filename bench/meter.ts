import { availableParallelism } from 'node:os'
import { readMachineCpu, readPostgresCpu } from './cpu.ts'

/** What was used from `begin` to `end`. */
export interface Usage {
  readonly seconds: number
  readonly nodeCpuSeconds: number
  readonly postgresCpuSeconds: number
  /** Share of all processors that somebody else kept busy: how far to trust the numbers. */
  readonly othersCpu: number
  /** The most memory this process ever had, in MB. */
  readonly rssMb: number
}

export interface Meter {
  begin(): void
  /** `at`: the moment that counts as the end, when it is not now. */
  end(at?: number): Usage
}

export function createMeter(postmaster: number | undefined): Meter {
  let start = { at: 0, node: process.cpuUsage(), postgres: 0, machine: 0 }
  return {
    begin: () => {
      start = {
        at: performance.now(),
        node: process.cpuUsage(),
        postgres: readPostgresCpu(postmaster),
        machine: readMachineCpu(),
      }
    },
    end: (at) => {
      const { user, system } = process.cpuUsage(start.node)
      const wall = (performance.now() - start.at) / 1000
      const node = (user + system) / 1e6
      const postgres = readPostgresCpu(postmaster) - start.postgres
      const others = readMachineCpu() - start.machine - node - postgres
      return {
        seconds: at === undefined ? wall : (at - start.at) / 1000,
        nodeCpuSeconds: node,
        postgresCpuSeconds: postgres,
        othersCpu: Math.max(0, others / (wall * availableParallelism())),
        rssMb: process.resourceUsage().maxRSS / 1024,
      }
    },
  }
}

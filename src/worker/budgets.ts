/** What an invocation may spend, by host and plan: data, because platforms change their numbers. */
import { notAllowed } from '../core/errors.ts'
import type { Budget } from '../core/tick.ts'

/** One budget for each way in. */
export interface HostBudget {
  /** A pass begun by a write, after its response was sent. */
  readonly kick: Budget
  /** A pass that a caller over HTTP waits for. */
  readonly tick: Budget
  /** A pass begun by the platform's cron or by an alarm. */
  readonly cron: Budget
}

/** An hour: nothing on such a host ends a pass but the pass itself. */
const UNLIMITED_WALL_MS = 3_600_000

/** 10 ms of CPU a request: about what claiming and committing twenty small runs costs. */
const FREE_STEPS = 10

/**
 * Workers Free, developers.cloudflare.com/workers/platform/limits (read 2026-11-30): 50 subrequests, 10 ms of CPU and 6 connections per
 * invocation; `waitUntil` lasts 30 s after the response. 40 requests leave ten for what the request itself and the steps ask.
 */
const workersFree: Budget = { wallMs: 25_000, requests: 40, concurrency: FREE_STEPS, batch: FREE_STEPS, lanes: 1, lingerMs: 0 }

/**
 * Workers Paid, same page and changelog of 2026-02-11: 10,000 subrequests, 30 s of CPU by default, 6 connections at once; `waitUntil`
 * lasts 30 s, of which five are left for the last flush. Steps ask the network as well, so the engine takes a fifth of the subrequests.
 */
const workersPaid: Budget = { wallMs: 25_000, requests: 2_000, concurrency: 50, batch: 50, lanes: 2, lingerMs: 0 }

/** Same page: a cron trigger and an alarm of a Durable Object have 15 min of wall time; one is left for the last steps. */
const CLOUDFLARE_CRON_WALL_MS = 840_000

/** Steps side by side in one Node instance: they mostly wait for the network. */
const NODE_STEPS = 100

/**
 * Vercel Hobby, vercel.com/docs/functions/configuring-functions/duration (read 2026-11-30): 300 s, `waitUntil` included. Cron comes once
 * a day at most, so a pass stays for what is due within a minute.
 */
const vercelHobby: Budget = {
  wallMs: 280_000,
  requests: Number.MAX_SAFE_INTEGER,
  concurrency: NODE_STEPS,
  batch: NODE_STEPS,
  lanes: 2,
  lingerMs: 60_000,
}

/** Vercel Pro, same page: 800 s where `maxDuration` says so. */
const vercelPro: Budget = { ...vercelHobby, wallMs: 780_000 }

/** Node in one's own hands: no limit of the host. Its loop ends a pass that has been busy for long, and begins the next beside it. */
const node: Budget = { ...vercelHobby, wallMs: UNLIMITED_WALL_MS, lanes: 1, lingerMs: 0 }

/** A caller over HTTP is not kept waiting for longer, in milliseconds: proxies give up after 30 s or so. */
const CALLER_WALL_MS = 25_000

function forCaller(budget: Budget): Budget {
  return { ...budget, wallMs: Math.min(budget.wallMs, CALLER_WALL_MS), lingerMs: 0 }
}

function vercel(budget: Budget): HostBudget {
  // its cron calls over HTTP, and has the whole duration
  return { kick: budget, tick: budget, cron: budget }
}

export const BUDGETS = {
  'workers-free': {
    kick: workersFree,
    tick: workersFree,
    cron: { ...workersFree, wallMs: CLOUDFLARE_CRON_WALL_MS },
  },
  'workers-paid': {
    kick: workersPaid,
    tick: workersPaid,
    cron: { ...workersPaid, wallMs: CLOUDFLARE_CRON_WALL_MS, requests: 8_000 },
  },
  'vercel-hobby': vercel(vercelHobby),
  'vercel-pro': vercel(vercelPro),
  node: { kick: node, tick: forCaller(node), cron: node },
} as const satisfies Record<string, HostBudget>

export type BudgetName = keyof typeof BUDGETS

/** A preset by name, or a budget of one's own. Throws `invalid_configuration` for a name that is none. */
export function toHostBudget(budget: BudgetName | HostBudget): HostBudget {
  if (typeof budget !== 'string') return budget
  if (Object.hasOwn(BUDGETS, budget)) return BUDGETS[budget]
  throw notAllowed('invalid_configuration', { field: 'budget', got: budget, allowed: Object.keys(BUDGETS).join(', ') })
}

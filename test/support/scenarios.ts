import { expect } from 'vitest'
import catalogue from '../scenarios.json' with { type: 'json' }

export interface ScenarioAnswer {
  readonly status: number
  readonly headers: Headers
  readonly body: unknown
}

/** A host as the runner sees it: nothing runs there by itself but what is ticked. */
export interface ScenarioHost {
  request(method: string, path: string, headers: Readonly<Record<string, string>>, body: unknown): Promise<ScenarioAnswer>
  /** Moves the clock of its database on. */
  advance(ms: number): void
}

/** One thing that is done, and what must come of it. */
interface Step {
  /** `POST /v1/runs`; `tick`; or `wait 60000`, in milliseconds of the database's clock. */
  readonly do: string
  readonly body?: unknown
  readonly headers?: Readonly<Record<string, string>>
  readonly status?: number
  /** The answer has at least this. `<id>`, `<instant>` and `<text>` stand for any; a list is of that length. */
  readonly like?: unknown
  readonly answers?: Readonly<Record<string, string>>
  /** Members of the answer that later steps name as `${…}`. */
  readonly keep?: Readonly<Record<string, string>>
}

export interface Scenario {
  readonly id: string
  readonly does: string
  readonly steps: readonly Step[]
}

export const SCENARIOS = catalogue as readonly Scenario[]

const ANY: Readonly<Record<string, unknown>> = {
  '<id>': expect.stringMatching(/^[0-9a-f]{8}-[0-9a-f-]{27}$/),
  '<instant>': expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/),
  '<text>': expect.any(String),
}

/** Runs it in a tenant of its own. What it says must come about is expected word for word. */
export async function runScenario({ id, steps }: Scenario, host: ScenarioHost): Promise<void> {
  const kept = new Map<string, string>()
  for (const [index, step] of steps.entries()) {
    const [verb = '', target = ''] = step.do.split(' ')
    if (verb === 'wait') host.advance(Number(target))
    else await take(`${id}, step ${index + 1}: ${step.do}`, step, { kept, host, tenant: id })
  }
}

interface Surroundings {
  readonly kept: Map<string, string>
  readonly host: ScenarioHost
  readonly tenant: string
}

async function take(name: string, step: Step, { kept, host, tenant }: Surroundings): Promise<void> {
  const [method = '', path = ''] = step.do === 'tick' ? ['POST', '/v1/tick'] : step.do.split(' ')
  const fill = (value: unknown) => filled(value, kept)
  const headers = { 'pawl-tenant': tenant, ...(fill(step.headers ?? {}) as Record<string, string>) }
  const { status, headers: got, body } = await host.request(method, String(fill(path)), headers, fill(step.body))
  const said = `${name} answered ${status} ${JSON.stringify(body)}`
  expect(status, said).toBe(step.status ?? 200)
  if (step.like !== undefined) expect(body, said).toMatchObject(fill(step.like) as object)
  for (const [header, value] of Object.entries(step.answers ?? {}))
    expect(got.get(header), `${said} with ${header}`).toEqual(fill(value))
  for (const [as, member] of Object.entries(step.keep ?? {})) kept.set(as, String(memberOf(body, got, member)))
}

function memberOf(body: unknown, headers: Headers, path: string): unknown {
  if (path.startsWith('header:')) return headers.get(path.slice('header:'.length))
  return path.split('.').reduce<unknown>((value, key) => (value as Record<string, unknown> | undefined)?.[key], body)
}

function filled(value: unknown, kept: ReadonlyMap<string, string>): unknown {
  if (typeof value === 'string') {
    if (Object.hasOwn(ANY, value)) return ANY[value]
    return value.replace(/\$\{(\w+)\}/g, (_, name: string) => kept.get(name) ?? `nothing kept as ${name}`)
  }
  if (Array.isArray(value)) return value.map((item) => filled(item, kept))
  if (typeof value !== 'object' || value === null) return value
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, filled(item, kept)]))
}

/** The same pawl on a database whose clock is moved by `advance`. */
export function onMovingClock<T extends { readonly connect: (options: never) => unknown }>(pawl: T) {
  let aheadMs = 0
  const now = () => new Date(Date.now() + aheadMs).toISOString()
  const connect = (options: object) => pawl.connect({ ...options, now } as never)
  return {
    pawl: { ...pawl, connect } as T,
    advance: (ms: number) => {
      aheadMs += ms
    },
  }
}

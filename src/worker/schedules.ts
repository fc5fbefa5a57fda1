import { DEFAULT_TENANT } from '../core/bounds.ts'
import { nextSlot } from '../core/cron.ts'
import { toCall } from '../core/definition.ts'
import { queueLimitName } from '../core/gate.ts'
import type { Logger } from '../core/logger.ts'
import { toNewRun } from '../core/new-run.ts'
import type { Registry } from '../core/registry.ts'
import type { EngineStore, ScheduleRecord, ScheduleStore } from '../core/store.ts'

/** Schedules fired by one pass. */
const FIRED_AT_ONCE = 100

/** Tells the database what the code declares: policies of limits, caps of queues, schedules. Two requests, once per isolate. */
export async function declareTriggers(store: EngineStore & ScheduleStore, registry: Registry, nowMs: number): Promise<void> {
  const limits = [...registry.limits].map(([name, policy]) => ({ name, policy }))
  const caps = [...registry.queues].flatMap(([queue, { concurrency }]) =>
    concurrency === undefined ? [] : [{ name: queueLimitName(queue), policy: { concurrency, rate: undefined, shards: 1 } }],
  )
  await store.declareLimits([...limits, ...caps])
  await store.declareSchedules(
    [...registry.schedules].map(([name, { definition, trigger }]) => ({
      tenant: DEFAULT_TENANT,
      name,
      definition: definition.name,
      version: null,
      expression: trigger.expression,
      timeZone: trigger.timeZone,
      input: trigger.input,
      nextAt: nextSlot(trigger.expression, trigger.timeZone, new Date(nowMs))?.getTime() ?? null,
    })),
  )
}

/**
 * Spawns one run for the slot of every schedule that is due and moves it on to its next slot after now: slots that were missed meanwhile
 * are skipped but for the last due one. Several ticks at once fire a slot once: its receipt bears schedule and slot.
 */
export async function fireDueSchedules(store: ScheduleStore, registry: Registry, logger: Logger): Promise<number> {
  const { now, schedules } = await store.dueSchedules(FIRED_AT_ONCE)
  let fired = 0
  for (const schedule of schedules) {
    try {
      if (await fireSchedule(store, registry, schedule, now)) fired += 1
    } catch (error) {
      logger.error('pawl: a schedule could not be fired', { schedule: schedule.name, error: String(error) })
    }
  }
  return fired
}

async function fireSchedule(store: ScheduleStore, registry: Registry, schedule: ScheduleRecord, now: number): Promise<boolean> {
  if (schedule.nextAt === null) return false
  const slot = new Date(schedule.nextAt).toISOString()
  const next = nextSlot(schedule.expression, schedule.timeZone, new Date(now))?.getTime() ?? null
  const { definition, version, input, tenant, name } = schedule
  const call = toCall({ definition, version: version ?? 0, input: input ?? undefined, options: undefined })
  const run = await toNewRun(
    { ...call, version: version ?? undefined },
    { registry, tenant, receipt: { key: `schedule:${name}:${slot}`, fingerprint: slot }, origin: { schedule: name, slot } },
  )
  const admission = await store.fire(schedule, run, next)
  return admission.kind === 'created'
}

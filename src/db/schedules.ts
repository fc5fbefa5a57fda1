import type { Row } from '../core/database.ts'
import type { ScheduleRecord, ScheduleStore } from '../core/store.ts'
import { createAdmissionStore } from './admission.ts'
import { learnPlace, type StoreContext, sendRepeatable } from './context.ts'
import { ensureEnvironment } from './statements/insert-runs.ts'
import { advanceSchedule, declareSchedules, readDueSchedules } from './statements/schedules.ts'

export function createScheduleStore(context: StoreContext): ScheduleStore {
  const { database, schema, environment } = context
  const admission = createAdmissionStore(context)
  return {
    declareSchedules: async (schedules) => {
      if (schedules.length === 0) return
      const statements = [
        ensureEnvironment(schema, { environment }),
        declareSchedules(schema, {
          environment,
          tenants: schedules.map((schedule) => schedule.tenant),
          names: schedules.map((schedule) => schedule.name),
          definitions: schedules.map((schedule) => schedule.definition),
          expressions: schedules.map((schedule) => schedule.expression),
          timeZones: schedules.map((schedule) => schedule.timeZone),
          inputs: schedules.map((schedule) => (schedule.input === undefined ? null : JSON.stringify(schedule.input))),
          nextAts: schedules.map((schedule) => schedule.nextAt),
        }),
      ]
      learnPlace(context.lanes, statements, (await sendRepeatable(database, statements)).replies)
    },
    dueSchedules: async (limit) => {
      const rows = await database.query(readDueSchedules(schema, { now: context.now(), environment, limit }))
      return { now: Number(rows[0]?.now ?? Date.now()), schedules: rows.map(toSchedule) }
    },
    fire: async (schedule, run, nextAt) => {
      // The receipt of the slot makes the spawn happen once; moving on afterwards only saves the others the attempt.
      const [admission_] = await admission.spawn([run])
      if (schedule.nextAt !== null) {
        await sendRepeatable(database, [
          advanceSchedule(schema, {
            environment,
            tenant: schedule.tenant,
            name: schedule.name,
            firedAt: schedule.nextAt,
            nextAt,
          }),
        ])
      }
      return admission_ ?? { kind: 'mismatch' }
    },
  }
}

function toSchedule(row: Row): ScheduleRecord {
  return {
    tenant: row.tenant as string,
    name: row.name as string,
    definition: row.definition as string,
    version: row.version as number | null,
    expression: row.expression as string,
    timeZone: row.time_zone as string,
    input: row.input,
    enabled: row.enabled === true,
    source: row.source as string,
    nextAt: row.next_at as number | null,
    lastAt: row.last_at as number | null,
  }
}

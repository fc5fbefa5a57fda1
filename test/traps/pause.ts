import { onTestFinished } from 'vitest'
import type { FreshDatabase } from '../support/database.ts'
import { type HeldLock, holdRowLock } from '../support/races.ts'

/** Any number will do: each database has its own. */
const PAUSE_LOCK = 7_252_026

/**
 * From now on every statement of that database that reads `lanes` stops there while the answered function holds it, with its snapshot
 * taken and its rows not yet locked: what is committed meanwhile is what "changed after the snapshot" means.
 */
export async function pausable(fresh: FreshDatabase): Promise<() => Promise<HeldLock>> {
  await fresh.pool({ max: 1 }).query(`
    ALTER TABLE pawl.lanes RENAME TO lanes_table;
    CREATE FUNCTION pawl.pause() RETURNS boolean LANGUAGE plpgsql VOLATILE AS
      $$ BEGIN PERFORM pg_advisory_xact_lock_shared(${PAUSE_LOCK}); RETURN true; END $$;
    CREATE VIEW pawl.lanes AS SELECT * FROM pawl.lanes_table WHERE pawl.pause();`)
  return async () => {
    const held = await holdRowLock(fresh.connectionString, `SELECT pg_advisory_xact_lock(${PAUSE_LOCK})`)
    onTestFinished(held.abandon)
    return held
  }
}

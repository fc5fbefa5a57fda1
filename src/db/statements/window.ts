/**
 * The claim window (`ready`): who comes into it, under which lane, and how a row leaves it by its whole key. Written only under the lock of
 * its run. A run that has lost its host stands under the negative of its lane, where it is claimed alone.
 */

/**
 * Puts runs into the window. `from`: a CTE with a row per run (id, lane_id, losses, priority, available_at, position); `where`: which of
 * them are pending, due, not held and not blocked. Whoever may meet a row that stands in it already adds ON CONFLICT DO NOTHING, which is
 * dear and so not for the hot path.
 */
export function intoWindow(schema: string, from: string, where: string): string {
  return `INSERT INTO ${schema}.ready (lane_id, priority, available_at, position, run_id)
  SELECT ${windowLane('x')}, x.priority, x.available_at, x.position, x.id FROM ${from} x WHERE ${where}`
}

/**
 * Takes runs out of the window, each found by its whole key and deleted where it was found: as a join it reads the whole window while that
 * is believed empty. `from`: a CTE as for `intoWindow`, with what the rows were; `where`: which of them may stand in it.
 */
export function outOfWindow(schema: string, from: string, where: string): string {
  return `DELETE FROM ${schema}.ready y WHERE y.ctid = ANY (ARRAY(
    SELECT f.place FROM ${from} x CROSS JOIN LATERAL (
      SELECT w.ctid AS place FROM ${schema}.ready w
      WHERE w.lane_id = ${windowLane('x')} AND w.priority = x.priority AND w.available_at = x.available_at AND w.position = x.position AND w.run_id = x.id
      LIMIT 1
    ) f
    WHERE ${where}))`
}

/** The lane under which a run stands in the window. `run`: its alias. */
export function windowLane(run: string): string {
  return `CASE WHEN ${run}.losses > 0 THEN -${run}.lane_id ELSE ${run}.lane_id END`
}

import type pg from 'pg'

/**
 * A table as it looks after months: `total` runs of two tenants in 40 lanes of two environments, nine in ten of tenant `acme` in
 * `production`, nearly all completed, with some of everything else. Rows are inserted as an engine would have left them.
 * Of a million: tag `common` on half, `rare` on 300, `old` on the oldest fifth; key `order:<n>` on every hundredth, key `hot` on
 * 3,300 of all tenants; a parent with 10,000 children; 2,000 delayed, 1,200 ready (far back in time), 500 blocked, 100 running, 5,000
 * failed, 1,000 waiting.
 */
export async function insertManyRuns(pool: pg.Pool, total: number): Promise<{ readonly parentId: string }> {
  const parentId = '00000000-0000-7000-8000-000000000000'
  await pool.query(`
    ALTER TABLE pawl.runs SET (autovacuum_enabled = false);
    INSERT INTO pawl.environments (name) VALUES ('production'), ('staging');
    INSERT INTO pawl.lanes (environment_id, tenant, queue, definition, version)
    SELECT e.id, t.tenant, 'q' || (d % 4), 'd' || d, 1
    FROM pawl.environments e, unnest(ARRAY['acme', 'other']) AS t(tenant), generate_series(0, 9) d
    ORDER BY e.id, t.tenant DESC, d;`)
  await pool.query(
    `WITH lane AS (SELECT l.*, row_number() OVER (ORDER BY l.tenant, l.environment_id, l.id) - 1 AS place FROM pawl.lanes l),
    plain AS (
      SELECT n, CASE
        WHEN n % 333 = 1 AND n > $1 / 10 AND n < $1 / 2 THEN 'ready'
        WHEN n % 501 = 2 THEN 'delayed' WHEN n % 2001 = 3 THEN 'blocked' WHEN n % 9999 = 4 THEN 'running'
        WHEN n % 201 = 5 THEN 'failed' WHEN n % 1001 = 6 THEN 'waiting' ELSE 'completed' END AS kind
      FROM generate_series(1, $1::int) n
    ), facts AS (
      SELECT p.*, l.id AS lane_id, l.environment_id, now() - make_interval(secs => ($1 - n)) AS at
      -- nine in ten are acme's in production; its last lane is much less used than the others
      FROM plain p JOIN lane l ON l.place = CASE WHEN n % 97 = 0 THEN 9 WHEN n % 10 < 9 THEN n / 10 % 9 ELSE 10 + n / 10 % 30 END
    )
    INSERT INTO pawl.runs (id, created_at, available_at, timer_at, updated_at, finished_at, lane_id, environment_id, priority, max_attempts, payload_bytes,
      retention_seconds, failed_retention_seconds, status, notable, claimed_by, parent_id, parent_join_seq, child_index, step, key, blocked_on, tags)
    SELECT ('00000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, at, at, CASE WHEN kind IN ('delayed') THEN now() + interval '1 day' END, at,
      CASE WHEN kind IN ('completed', 'failed') THEN at END, lane_id, environment_id, 0, 10, 20, 1000, 1000,
      CASE WHEN kind IN ('ready', 'delayed', 'blocked') THEN 'pending' ELSE kind END::pawl.run_status,
      CASE WHEN kind IN ('failed', 'waiting') THEN kind END::pawl.run_status,
      CASE WHEN kind = 'running' THEN '00000000-0000-7000-8000-0000000000ff'::uuid END,
      CASE WHEN n BETWEEN 1001 AND 11000 THEN $2::uuid END, CASE WHEN n BETWEEN 1001 AND 11000 THEN 3 END, CASE WHEN n BETWEEN 1001 AND 11000 THEN n - 1001 END,
      'run', CASE WHEN n % 303 = 7 THEN 'hot' WHEN n % 100 = 8 THEN 'order:' || n END, CASE WHEN kind = 'blocked' THEN 'gate:' || n % 7 END,
      CASE WHEN n % 3333 = 9 THEN ARRAY['rare'] WHEN n < $1 / 5 THEN ARRAY['old', 'common'] WHEN n % 2 = 0 THEN ARRAY['common'] END
    FROM facts ORDER BY n`,
    [total, parentId],
  )
  await pool.query(`
    INSERT INTO pawl.ready (lane_id, priority, available_at, position, run_id)
    SELECT lane_id, priority, available_at, position, id FROM pawl.runs WHERE status = 'pending' AND timer_at IS NULL AND blocked_on IS NULL;
    INSERT INTO pawl.claims (id, environment_id, lease_until, alone, run_ids)
    SELECT '00000000-0000-7000-8000-0000000000ff', min(environment_id), now() + interval '1 hour', false, array_agg(id) FROM pawl.runs WHERE status = 'running';`)
  return { parentId }
}

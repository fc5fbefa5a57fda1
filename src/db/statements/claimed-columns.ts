/** Inbox and children that come with one claimed run, as stored, in bytes: a batch of runs with full inboxes still fits a reply. */
const SATELLITE_BYTES = 65_536

/**
 * What a claimed run comes with: its gates, one column for all else that only some runs have (a short one where that is how it holds its gates), and the
 * lane only where it is not known yet. `kept`: the gates whose slots it had kept until this claim.
 */
export const claimedColumns = (s: string, satellites: string, known: string, kept = 'NULL::text[]') => `
  c.id, c.seq, c.visit, c.lane_id, c.step, c.failures, c.losses, c.max_attempts, c.payload_bytes, c.input, c.state, c.gates,
  CASE WHEN c.lane_id = ANY (${known}::int[]) THEN NULL ELSE (
    SELECT jsonb_build_object('tenant', l.tenant, 'queue', l.queue, 'definition', l.definition, 'version', l.version) FROM ${s}.lanes l WHERE l.id = c.lane_id) END AS lane,
  CASE WHEN c.key IS NOT NULL OR c.tags IS NOT NULL OR c.headers IS NOT NULL OR c.parent_id IS NOT NULL OR c.awaits IS NOT NULL
      OR c.join_seq IS NOT NULL OR c.signalled OR c.timed_out OR c.snoozes > 0 OR c.lonely_losses > 0 OR c.cancel_requested_at IS NOT NULL OR c.awaited OR c.policy IS NOT NULL
    THEN jsonb_build_object(
      'key', c.key, 'tags', c.tags, 'headers', c.headers, 'parentId', c.parent_id, 'gateUnits', c.gate_units, 'heldGates', ${kept}, 'policy', c.policy, 'awaited', c.awaited, 'awaits', c.awaits, 'timedOut', c.timed_out,
      'snoozes', c.snoozes, 'lonelyLosses', c.lonely_losses, 'cancelRequested', c.cancel_requested_at IS NOT NULL,
      'inbox', CASE WHEN c.signalled AND c.awaits IS NOT NULL THEN (
        SELECT jsonb_build_object(
          'items', coalesce(jsonb_agg(jsonb_build_object('id', i.id::text, 'name', i.name, 'payload', i.payload, 'receivedAt', extract(epoch FROM i.created_at) * 1000) ORDER BY i.id)
            FILTER (WHERE i.bytes <= ${SATELLITE_BYTES}), '[]'),
          'more', bool_or(i.bytes > ${SATELLITE_BYTES}) OR count(*) >= ${satellites}::int)
        FROM (
          SELECT g.id, g.name, g.payload, g.created_at, sum(coalesce(pg_column_size(g.payload), 0)) OVER (ORDER BY g.id) AS bytes FROM (
            SELECT * FROM ${s}.signals x WHERE x.run_id = c.id AND x.consumed_seq IS NULL AND x.name = ANY (c.awaits) ORDER BY x.id LIMIT ${satellites}::int
          ) g
        ) i) END,
      'joinSeq', c.join_seq,
      'children', CASE WHEN c.join_seq IS NOT NULL THEN (
        SELECT jsonb_build_object(
          'items', coalesce(jsonb_agg(jsonb_build_object('id', k.id, 'definition', k.definition, 'key', k.key, 'index', k.child_index, 'status', k.status, 'result', k.result, 'error', k.error)
            ORDER BY k.child_index) FILTER (WHERE k.bytes <= ${SATELLITE_BYTES}), '[]'),
          'more', bool_or(k.bytes > ${SATELLITE_BYTES}) OR count(*) >= ${satellites}::int)
        FROM (
          SELECT y.*, l.definition, sum(coalesce(pg_column_size(y.result), 0) + coalesce(pg_column_size(y.error), 0)) OVER (ORDER BY y.child_index) AS bytes FROM (
            SELECT x.id, x.lane_id, x.key, x.child_index, x.status, x.result, x.error FROM ${s}.runs x
            WHERE x.parent_id = c.id AND x.parent_join_seq = c.join_seq ORDER BY x.child_index LIMIT ${satellites}::int
          ) y JOIN ${s}.lanes l ON l.id = y.lane_id
        ) k) END)
    WHEN c.gate_units IS NOT NULL OR (${kept}) IS NOT NULL THEN jsonb_build_object('gateUnits', c.gate_units, 'heldGates', ${kept})
  END AS extras`

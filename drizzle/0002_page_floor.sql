-- A plan is kept from when its tables were small, and while a table has fewer pages than some probes of its index cost, reading
-- all of it is the cheapest plan: a burst would meet it, until autovacuum came by. So tables of the hot path have pages from the start,
-- and keep them. Where rows stay, the ones that made the pages do too: a table that is analysed or vacuumed while it has pages and no
-- rows is taken to have no rows per page, and whatever comes after is planned as one row. They belong to no environment (there is no 0),
-- so that no statement finds them.
ALTER TABLE "pawl"."runs" SET (vacuum_truncate = false);--> statement-breakpoint
ALTER TABLE "pawl"."claims" SET (vacuum_truncate = false);--> statement-breakpoint
ALTER TABLE "pawl"."history" SET (vacuum_truncate = false);--> statement-breakpoint
ALTER TABLE "pawl"."signals" SET (vacuum_truncate = false);--> statement-breakpoint
ALTER TABLE "pawl"."uniques" SET (vacuum_truncate = false);--> statement-breakpoint
ALTER TABLE "pawl"."receipts" SET (vacuum_truncate = false);--> statement-breakpoint
-- A row of the window cannot be made wide: its pages are left nearly empty instead.
ALTER TABLE "pawl"."ready" SET (vacuum_truncate = false, fillfactor = 10);--> statement-breakpoint
INSERT INTO "pawl"."runs" (id, position, created_at, available_at, updated_at, lane_id, priority, max_attempts, payload_bytes, retention_seconds, failed_retention_seconds, status, finished_at, environment_id, step)
OVERRIDING SYSTEM VALUE
SELECT ('00000000-0000-0000-0000-' || lpad(n::text, 12, '0'))::uuid, -n, now(), now(), now(), 0, 0, 1, 0, 0, 0, 'discarded', now(), 0, repeat('.', 1600) FROM generate_series(1, 128) n;--> statement-breakpoint
INSERT INTO "pawl"."ready" (lane_id, priority, available_at, position, run_id)
SELECT 0, 0, now(), -n, gen_random_uuid() FROM generate_series(1, 704) n;--> statement-breakpoint
INSERT INTO "pawl"."claims" (id, environment_id, lease_until, alone, run_ids)
SELECT gen_random_uuid(), 0, now(), false, array_fill(gen_random_uuid(), ARRAY[100]) FROM generate_series(1, 192);--> statement-breakpoint
INSERT INTO "pawl"."history" (run_id, seq, visit, attempt, started_at, finished_at, step, outcome)
SELECT ('00000000-0000-0000-0000-' || lpad(n::text, 12, '0'))::uuid, s, 0, 0, now(), now(), repeat('.', 1800), '' FROM generate_series(1, 128) n, generate_series(-1, 0) s;--> statement-breakpoint
INSERT INTO "pawl"."signals" (id, run_id, name, created_at)
OVERRIDING SYSTEM VALUE
SELECT -n, ('00000000-0000-0000-0000-' || lpad((1 + n % 128)::text, 12, '0'))::uuid, repeat('.', 1800), now() FROM generate_series(1, 256) n;--> statement-breakpoint
INSERT INTO "pawl"."uniques" (tenant, environment_id, scope, token, run_id)
SELECT '', 0, '', n || repeat('.', 1800), ('00000000-0000-0000-0000-' || lpad((1 + n % 128)::text, 12, '0'))::uuid FROM generate_series(1, 256) n;--> statement-breakpoint
INSERT INTO "pawl"."receipts" (tenant, environment_id, key, fingerprint, nonce, created_at, expires_at)
SELECT '', 0, n::text, repeat('.', 1800), gen_random_uuid(), now(), now() FROM generate_series(1, 256) n;--> statement-breakpoint
DELETE FROM "pawl"."ready" WHERE lane_id = 0;--> statement-breakpoint
DELETE FROM "pawl"."claims" WHERE environment_id = 0;--> statement-breakpoint
ALTER TABLE "pawl"."ready" RESET (fillfactor);

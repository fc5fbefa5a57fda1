-- A run is written three times: when it comes, is claimed and ends. A page that is filled to a third has room for all three versions of its
-- rows, so that no update leaves it (and enters every index) when something keeps the first ones from being pruned. Pages that are there stay as they are.
DO $$
DECLARE leaf regclass;
BEGIN
  FOR leaf IN
    SELECT c.oid::regclass FROM pg_class c
    WHERE c.relkind = 'r' AND (c.oid = '"pawl"."runs"'::regclass OR c.oid IN (SELECT i.inhrelid FROM pg_inherits i WHERE i.inhparent = '"pawl"."runs"'::regclass))
  LOOP
    EXECUTE format('ALTER TABLE %s SET (fillfactor = 32)', leaf);
  END LOOP;
END $$;--> statement-breakpoint
-- The rows that made the window's first pages (0002) are gone, but not from its index, and sort behind all others: beside them the index grows by halves of
-- pages until it is vacuumed, without them by full ones.
REINDEX INDEX "pawl"."ready_order_key";--> statement-breakpoint
-- Pages from the start, as 0002 gave to others, for what every look at what is left asks: kept from when they were empty, its plan read all of them.
ALTER TABLE "pawl"."outbox" SET (vacuum_truncate = false);--> statement-breakpoint
ALTER TABLE "pawl"."cascades" SET (vacuum_truncate = false, fillfactor = 10);--> statement-breakpoint
INSERT INTO "pawl"."outbox" (created_at, environment_id, tenant, kind, subject) SELECT now(), 0, '', '', repeat('.', 1800) FROM generate_series(1, 128);--> statement-breakpoint
INSERT INTO "pawl"."cascades" (parent_id, environment_id, created_at) SELECT gen_random_uuid(), 0, now() FROM generate_series(1, 1536);--> statement-breakpoint
DELETE FROM "pawl"."outbox" WHERE environment_id = 0;--> statement-breakpoint
DELETE FROM "pawl"."cascades" WHERE environment_id = 0;--> statement-breakpoint
ALTER TABLE "pawl"."cascades" RESET (fillfactor);

-- Storage. A run is updated twice or more where it lies: room on its page for its next versions keeps those updates heap-only.
-- Long values leave the row early, so that an update does not write them again.
ALTER TABLE "pawl"."runs" SET (fillfactor = 45, toast_tuple_target = 512, autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.1);--> statement-breakpoint
-- Rows that live for seconds: vacuumed by count, however large the backlog once was.
ALTER TABLE "pawl"."ready" SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000, autovacuum_analyze_scale_factor = 0.2);--> statement-breakpoint
ALTER TABLE "pawl"."claims" SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 500, autovacuum_analyze_threshold = 500);--> statement-breakpoint
ALTER TABLE "pawl"."limit_counters" SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 500);--> statement-breakpoint
-- Only inserted into until retention deletes: visibility is set soon, by inserts.
ALTER TABLE "pawl"."history" SET (autovacuum_vacuum_insert_scale_factor = 0.1, autovacuum_vacuum_scale_factor = 0.1);

CREATE TABLE "pawl"."cascades" (
	"parent_id" uuid NOT NULL,
	"join_seq" integer DEFAULT 0 NOT NULL,
	"environment_id" smallint NOT NULL,
	"created_at" timestamp with time zone NOT NULL,
	CONSTRAINT "cascades_pkey" PRIMARY KEY("parent_id","join_seq")
);
--> statement-breakpoint
CREATE TABLE "pawl"."event_waits" (
	"tenant" text NOT NULL,
	"environment_id" smallint NOT NULL,
	"topic" text NOT NULL,
	"run_id" uuid NOT NULL,
	CONSTRAINT "event_waits_pkey" PRIMARY KEY("tenant","environment_id","topic","run_id")
);
--> statement-breakpoint
CREATE TABLE "pawl"."events" (
	"tenant" text NOT NULL,
	"environment_id" smallint NOT NULL,
	"name" text NOT NULL,
	"created_at" timestamp with time zone NOT NULL,
	"expires_at" timestamp with time zone NOT NULL,
	"payload" jsonb,
	"nonce" uuid NOT NULL,
	CONSTRAINT "events_pkey" PRIMARY KEY("tenant","environment_id","name")
);
--> statement-breakpoint
CREATE TABLE "pawl"."outbox" (
	"id" bigint GENERATED ALWAYS AS IDENTITY (sequence name "pawl"."outbox_id_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 1 CACHE 1),
	"created_at" timestamp with time zone NOT NULL,
	"environment_id" smallint NOT NULL,
	"tenant" text NOT NULL,
	"kind" text NOT NULL,
	"subject" text NOT NULL,
	"body" jsonb,
	"nonce" uuid DEFAULT gen_random_uuid() NOT NULL,
	CONSTRAINT "outbox_pkey" PRIMARY KEY("environment_id","id")
);
--> statement-breakpoint
CREATE TABLE "pawl"."pauses" (
	"tenant" text NOT NULL,
	"environment_id" smallint NOT NULL,
	"kind" text NOT NULL,
	"name" text NOT NULL,
	"paused_by" text,
	"paused_at" timestamp with time zone NOT NULL,
	CONSTRAINT "pauses_pkey" PRIMARY KEY("tenant","environment_id","kind","name")
);
--> statement-breakpoint
ALTER TABLE "pawl"."limit_counters" ALTER COLUMN "available" SET DATA TYPE double precision;--> statement-breakpoint
ALTER TABLE "pawl"."environments" ADD COLUMN "gate_cursor" text;--> statement-breakpoint
ALTER TABLE "pawl"."limit_counters" ADD COLUMN "due_at" timestamp with time zone;--> statement-breakpoint
ALTER TABLE "pawl"."limits" ADD COLUMN "burst" integer;--> statement-breakpoint
ALTER TABLE "pawl"."limits" ADD COLUMN "ms_per_token" double precision;--> statement-breakpoint
ALTER TABLE "pawl"."limits" ADD COLUMN "shards" smallint DEFAULT 1 NOT NULL;--> statement-breakpoint
ALTER TABLE "pawl"."meta" ADD COLUMN "installation" uuid DEFAULT gen_random_uuid() NOT NULL;--> statement-breakpoint
ALTER TABLE "pawl"."runs" ADD COLUMN "deadline_at" timestamp with time zone;--> statement-breakpoint
ALTER TABLE "pawl"."runs" ADD COLUMN "awaited" boolean DEFAULT false NOT NULL;--> statement-breakpoint
ALTER TABLE "pawl"."runs" ADD COLUMN "join_spare" integer;--> statement-breakpoint
ALTER TABLE "pawl"."runs" ADD COLUMN "gate_units" integer[];--> statement-breakpoint
ALTER TABLE "pawl"."runs" ADD COLUMN "held_gates" text[];--> statement-breakpoint
ALTER TABLE "pawl"."runs" ADD COLUMN "gate_shards" smallint[];--> statement-breakpoint
ALTER TABLE "pawl"."runs" ADD COLUMN "policy" jsonb;--> statement-breakpoint
ALTER TABLE "pawl"."runs" ADD COLUMN "cancellation" jsonb;--> statement-breakpoint
ALTER TABLE "pawl"."runs" ADD COLUMN "uncertainty" jsonb;--> statement-breakpoint
ALTER TABLE "pawl"."runs" ADD COLUMN "nonce" uuid;--> statement-breakpoint
ALTER TABLE "pawl"."uniques" ADD COLUMN "keep" smallint DEFAULT 0 NOT NULL;--> statement-breakpoint
ALTER TABLE "pawl"."uniques" ADD COLUMN "reserved_until" timestamp with time zone;--> statement-breakpoint
CREATE INDEX "cascades_due_idx" ON "pawl"."cascades" USING btree ("environment_id","created_at");--> statement-breakpoint
CREATE INDEX "event_waits_run_idx" ON "pawl"."event_waits" USING btree ("run_id");--> statement-breakpoint
CREATE INDEX "events_expires_idx" ON "pawl"."events" USING btree ("environment_id","expires_at");--> statement-breakpoint
CREATE INDEX "limit_counters_due_idx" ON "pawl"."limit_counters" USING btree ("environment_id","due_at") WHERE due_at IS NOT NULL;--> statement-breakpoint
CREATE INDEX "runs_deadline_idx" ON "pawl"."runs" USING btree ("environment_id","deadline_at") WHERE deadline_at IS NOT NULL;--> statement-breakpoint
CREATE INDEX "runs_held_gates_idx" ON "pawl"."runs" USING btree ("environment_id") WHERE held_gates IS NOT NULL;--> statement-breakpoint
CREATE INDEX "runs_held_idx" ON "pawl"."runs" USING btree ("hold","lane_id") WHERE hold IS NOT NULL;--> statement-breakpoint
ALTER TABLE "pawl"."limit_counters" ADD CONSTRAINT "limit_counters_available_not_negative" CHECK (available >= 0);--> statement-breakpoint
ALTER TABLE "pawl"."limits" ADD CONSTRAINT "limits_burst_positive" CHECK (burst > 0 AND ms_per_token > 0);--> statement-breakpoint
ALTER TABLE "pawl"."limits" ADD CONSTRAINT "limits_shards_positive" CHECK (shards > 0);
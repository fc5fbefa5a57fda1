CREATE SCHEMA "pawl";
--> statement-breakpoint
CREATE TYPE "pawl"."run_status" AS ENUM('pending', 'running', 'waiting', 'completed', 'failed', 'cancelled', 'discarded', 'uncertain');--> statement-breakpoint
CREATE TABLE "pawl"."api_keys" (
	"id" uuid PRIMARY KEY NOT NULL,
	"tenant" text NOT NULL,
	"environment_id" smallint NOT NULL,
	"name" text NOT NULL,
	"hash" text NOT NULL,
	"scopes" text[] NOT NULL,
	"created_at" timestamp with time zone NOT NULL,
	"expires_at" timestamp with time zone,
	"revoked_at" timestamp with time zone,
	CONSTRAINT "api_keys_hash_key" UNIQUE("hash")
);
--> statement-breakpoint
CREATE TABLE "pawl"."claims" (
	"id" uuid PRIMARY KEY NOT NULL,
	"lease_until" timestamp with time zone NOT NULL,
	"environment_id" smallint NOT NULL,
	"alone" boolean NOT NULL,
	"run_ids" uuid[] NOT NULL
);
--> statement-breakpoint
CREATE TABLE "pawl"."environments" (
	"id" smallint PRIMARY KEY GENERATED ALWAYS AS IDENTITY (sequence name "pawl"."environments_id_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 32767 START WITH 1 CACHE 1),
	"name" text NOT NULL,
	"upkeep_at" timestamp with time zone DEFAULT now() + interval '1 minute' NOT NULL,
	"last_tick_at" timestamp with time zone,
	"last_tick_source" text,
	CONSTRAINT "environments_name_key" UNIQUE("name")
);
--> statement-breakpoint
CREATE TABLE "pawl"."history" (
	"run_id" uuid NOT NULL,
	"seq" integer NOT NULL,
	"visit" integer NOT NULL,
	"attempt" integer NOT NULL,
	"claimed_by" uuid,
	"started_at" timestamp with time zone NOT NULL,
	"finished_at" timestamp with time zone NOT NULL,
	"step" text NOT NULL,
	"outcome" text NOT NULL,
	"error" jsonb,
	CONSTRAINT "history_pkey" PRIMARY KEY("run_id","seq")
);
--> statement-breakpoint
CREATE TABLE "pawl"."lanes" (
	"id" integer PRIMARY KEY GENERATED ALWAYS AS IDENTITY (sequence name "pawl"."lanes_id_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 2147483647 START WITH 1 CACHE 1),
	"environment_id" smallint NOT NULL,
	"tenant" text NOT NULL,
	"queue" text NOT NULL,
	"definition" text NOT NULL,
	"version" integer NOT NULL,
	"paused" boolean DEFAULT false NOT NULL,
	"pruned_at" timestamp with time zone DEFAULT '-infinity' NOT NULL,
	"prune_cursor_at" timestamp with time zone,
	"prune_cursor_position" bigint
);
--> statement-breakpoint
CREATE TABLE "pawl"."limit_counters" (
	"environment_id" smallint NOT NULL,
	"gate" text NOT NULL,
	"shard" smallint DEFAULT 0 NOT NULL,
	"held" integer DEFAULT 0 NOT NULL,
	"available" integer,
	"refilled_at" timestamp with time zone,
	CONSTRAINT "limit_counters_pkey" PRIMARY KEY("environment_id","gate","shard"),
	CONSTRAINT "limit_counters_held_not_negative" CHECK (held >= 0)
);
--> statement-breakpoint
CREATE TABLE "pawl"."limits" (
	"environment_id" smallint NOT NULL,
	"name" text NOT NULL,
	"concurrency" integer,
	"policy" jsonb,
	CONSTRAINT "limits_pkey" PRIMARY KEY("environment_id","name"),
	CONSTRAINT "limits_concurrency_positive" CHECK (concurrency > 0)
);
--> statement-breakpoint
CREATE TABLE "pawl"."meta" (
	"singleton" boolean PRIMARY KEY DEFAULT true NOT NULL,
	"product" text DEFAULT 'pawl' NOT NULL,
	"schema_version" integer NOT NULL,
	"min_build" integer NOT NULL,
	CONSTRAINT "meta_one_row" CHECK ("pawl"."meta"."singleton")
);
--> statement-breakpoint
CREATE TABLE "pawl"."queues" (
	"environment_id" smallint NOT NULL,
	"name" text NOT NULL,
	"paused" boolean DEFAULT false NOT NULL,
	"paused_by" text,
	"paused_at" timestamp with time zone,
	CONSTRAINT "queues_pkey" PRIMARY KEY("environment_id","name")
);
--> statement-breakpoint
CREATE TABLE "pawl"."ready" (
	"available_at" timestamp with time zone NOT NULL,
	"position" bigint NOT NULL,
	"lane_id" integer NOT NULL,
	"priority" integer NOT NULL,
	"run_id" uuid NOT NULL
);
--> statement-breakpoint
CREATE TABLE "pawl"."receipts" (
	"tenant" text NOT NULL,
	"environment_id" smallint NOT NULL,
	"key" text NOT NULL,
	"fingerprint" text NOT NULL,
	"nonce" uuid NOT NULL,
	"created_at" timestamp with time zone NOT NULL,
	"expires_at" timestamp with time zone NOT NULL,
	"decision" jsonb,
	CONSTRAINT "receipts_pkey" PRIMARY KEY("tenant","environment_id","key")
);
--> statement-breakpoint
CREATE TABLE "pawl"."runs" (
	"id" uuid PRIMARY KEY NOT NULL,
	"position" bigint GENERATED ALWAYS AS IDENTITY (sequence name "pawl"."runs_position_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 1 CACHE 1),
	"created_at" timestamp with time zone NOT NULL,
	"available_at" timestamp with time zone NOT NULL,
	"updated_at" timestamp with time zone NOT NULL,
	"lane_id" integer NOT NULL,
	"priority" integer NOT NULL,
	"seq" integer DEFAULT 0 NOT NULL,
	"visit" integer DEFAULT 1 NOT NULL,
	"failures" integer DEFAULT 0 NOT NULL,
	"losses" integer DEFAULT 0 NOT NULL,
	"lonely_losses" integer DEFAULT 0 NOT NULL,
	"snoozes" integer DEFAULT 0 NOT NULL,
	"max_attempts" integer NOT NULL,
	"payload_bytes" integer NOT NULL,
	"retention_seconds" integer NOT NULL,
	"failed_retention_seconds" integer NOT NULL,
	"status" "pawl"."run_status" NOT NULL,
	"environment_id" smallint NOT NULL,
	"signalled" boolean DEFAULT false NOT NULL,
	"timed_out" boolean DEFAULT false NOT NULL,
	"step" text NOT NULL,
	"timer_at" timestamp with time zone,
	"scheduled_for" timestamp with time zone,
	"finished_at" timestamp with time zone,
	"cancel_requested_at" timestamp with time zone,
	"join_seq" integer,
	"join_remaining" integer,
	"parent_join_seq" integer,
	"child_index" integer,
	"notable" "pawl"."run_status",
	"claimed_by" uuid,
	"parent_id" uuid,
	"key" text,
	"awaits" text[],
	"gates" text[],
	"blocked_on" text,
	"hold" text,
	"tags" text[],
	"hold_detail" jsonb,
	"headers" jsonb,
	"origin" jsonb,
	"input" jsonb,
	"state" jsonb,
	"result" jsonb,
	"error" jsonb,
	CONSTRAINT "runs_claimed_iff_running" CHECK ((status = 'running') = (claimed_by IS NOT NULL)),
	CONSTRAINT "runs_finished_iff_terminal" CHECK ((status >= 'completed' AND status <= 'discarded') = (finished_at IS NOT NULL)),
	CONSTRAINT "runs_blocked_only_pending" CHECK (blocked_on IS NULL OR status = 'pending')
);
--> statement-breakpoint
CREATE TABLE "pawl"."schedules" (
	"tenant" text NOT NULL,
	"environment_id" smallint NOT NULL,
	"name" text NOT NULL,
	"definition" text NOT NULL,
	"version" integer,
	"expression" text NOT NULL,
	"time_zone" text NOT NULL,
	"input" jsonb,
	"enabled" boolean DEFAULT true NOT NULL,
	"source" text NOT NULL,
	"next_at" timestamp with time zone,
	"last_at" timestamp with time zone,
	CONSTRAINT "schedules_pkey" PRIMARY KEY("tenant","environment_id","name")
);
--> statement-breakpoint
CREATE TABLE "pawl"."signals" (
	"id" bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY (sequence name "pawl"."signals_id_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 1 CACHE 1),
	"created_at" timestamp with time zone NOT NULL,
	"run_id" uuid NOT NULL,
	"consumed_seq" integer,
	"name" text NOT NULL,
	"dedup_key" text,
	"payload" jsonb
);
--> statement-breakpoint
CREATE TABLE "pawl"."uniques" (
	"tenant" text NOT NULL,
	"environment_id" smallint NOT NULL,
	"scope" text NOT NULL,
	"token" text NOT NULL,
	"run_id" uuid NOT NULL,
	"expires_at" timestamp with time zone,
	CONSTRAINT "uniques_pkey" PRIMARY KEY("tenant","environment_id","scope","token")
);
--> statement-breakpoint
CREATE INDEX "api_keys_tenant_idx" ON "pawl"."api_keys" USING btree ("tenant","environment_id","created_at");--> statement-breakpoint
CREATE INDEX "claims_lease_idx" ON "pawl"."claims" USING btree ("environment_id","lease_until");--> statement-breakpoint
CREATE UNIQUE INDEX "lanes_identity_key" ON "pawl"."lanes" USING btree ("tenant","environment_id","queue","definition","version");--> statement-breakpoint
CREATE UNIQUE INDEX "ready_order_key" ON "pawl"."ready" USING btree ("lane_id" DESC NULLS FIRST,"priority","available_at","position");--> statement-breakpoint
CREATE INDEX "receipts_expires_idx" ON "pawl"."receipts" USING btree ("environment_id","expires_at");--> statement-breakpoint
CREATE INDEX "runs_list_idx" ON "pawl"."runs" USING btree ("lane_id","created_at","position");--> statement-breakpoint
CREATE INDEX "runs_timer_idx" ON "pawl"."runs" USING btree ("environment_id","timer_at") WHERE timer_at IS NOT NULL;--> statement-breakpoint
CREATE INDEX "runs_blocked_idx" ON "pawl"."runs" USING btree ("blocked_on","priority","available_at","position") WHERE blocked_on IS NOT NULL;--> statement-breakpoint
CREATE INDEX "runs_notable_idx" ON "pawl"."runs" USING btree ("notable","lane_id","created_at","position") WHERE notable IS NOT NULL;--> statement-breakpoint
CREATE INDEX "runs_key_idx" ON "pawl"."runs" USING btree ("key","created_at","position") WHERE key IS NOT NULL;--> statement-breakpoint
CREATE INDEX "runs_parent_idx" ON "pawl"."runs" USING btree ("parent_id","parent_join_seq","child_index") WHERE parent_id IS NOT NULL;--> statement-breakpoint
CREATE INDEX "runs_tags_idx" ON "pawl"."runs" USING gin ("tags") WHERE tags IS NOT NULL;--> statement-breakpoint
CREATE INDEX "schedules_due_idx" ON "pawl"."schedules" USING btree ("environment_id","next_at") WHERE enabled AND next_at IS NOT NULL;--> statement-breakpoint
CREATE INDEX "signals_inbox_idx" ON "pawl"."signals" USING btree ("run_id","id");--> statement-breakpoint
CREATE UNIQUE INDEX "signals_dedup_key" ON "pawl"."signals" USING btree ("run_id","dedup_key") WHERE dedup_key IS NOT NULL;--> statement-breakpoint
CREATE INDEX "uniques_run_idx" ON "pawl"."uniques" USING btree ("run_id");--> statement-breakpoint
CREATE INDEX "uniques_token_idx" ON "pawl"."uniques" USING btree ("tenant","environment_id","token");
-- types
TYPE pawl.run_status AS ENUM ('pending', 'running', 'waiting', 'completed', 'failed', 'cancelled', 'discarded', 'uncertain')

-- sequences
SEQUENCE pawl.environments_id_seq AS smallint START 1 INCREMENT 1 CACHE 1
SEQUENCE pawl.lanes_id_seq AS integer START 1 INCREMENT 1 CACHE 1
SEQUENCE pawl.outbox_id_seq AS bigint START 1 INCREMENT 1 CACHE 1
SEQUENCE pawl.runs_position_seq AS bigint START 1 INCREMENT 1 CACHE 1
SEQUENCE pawl.signals_id_seq AS bigint START 1 INCREMENT 1 CACHE 1

-- tables
TABLE pawl.api_keys (
  id uuid NOT NULL,
  tenant text NOT NULL,
  environment_id smallint NOT NULL,
  name text NOT NULL,
  hash text NOT NULL,
  scopes text[] NOT NULL,
  created_at timestamp with time zone NOT NULL,
  expires_at timestamp with time zone,
  revoked_at timestamp with time zone
)
TABLE pawl.cascades WITH (vacuum_truncate=false) (
  parent_id uuid NOT NULL,
  join_seq integer NOT NULL DEFAULT 0,
  environment_id smallint NOT NULL,
  created_at timestamp with time zone NOT NULL
)
TABLE pawl.claims WITH (fillfactor=70, autovacuum_vacuum_scale_factor=0.0, autovacuum_vacuum_threshold=500, autovacuum_analyze_threshold=500, vacuum_truncate=false) (
  id uuid NOT NULL,
  lease_until timestamp with time zone NOT NULL,
  environment_id smallint NOT NULL,
  alone boolean NOT NULL,
  run_ids uuid[] NOT NULL
)
TABLE pawl.environments (
  id smallint NOT NULL IDENTITY ALWAYS,
  name text NOT NULL,
  upkeep_at timestamp with time zone NOT NULL DEFAULT (now() + '00:01:00'::interval),
  last_tick_at timestamp with time zone,
  last_tick_source text,
  gate_cursor text
)
TABLE pawl.event_waits (
  tenant text NOT NULL,
  environment_id smallint NOT NULL,
  topic text NOT NULL,
  run_id uuid NOT NULL
)
TABLE pawl.events (
  tenant text NOT NULL,
  environment_id smallint NOT NULL,
  name text NOT NULL,
  created_at timestamp with time zone NOT NULL,
  expires_at timestamp with time zone NOT NULL,
  payload jsonb,
  nonce uuid NOT NULL
)
TABLE pawl.history WITH (autovacuum_vacuum_insert_scale_factor=0.1, autovacuum_vacuum_scale_factor=0.1, vacuum_truncate=false) (
  run_id uuid NOT NULL,
  seq integer NOT NULL,
  visit integer NOT NULL,
  attempt integer NOT NULL,
  claimed_by uuid,
  started_at timestamp with time zone NOT NULL,
  finished_at timestamp with time zone NOT NULL,
  step text NOT NULL,
  outcome text NOT NULL,
  error jsonb
)
TABLE pawl.lanes (
  id integer NOT NULL IDENTITY ALWAYS,
  environment_id smallint NOT NULL,
  tenant text NOT NULL,
  queue text NOT NULL,
  definition text NOT NULL,
  version integer NOT NULL,
  paused boolean NOT NULL DEFAULT false,
  pruned_at timestamp with time zone NOT NULL DEFAULT '-infinity'::timestamp with time zone,
  prune_cursor_at timestamp with time zone,
  prune_cursor_position bigint
)
TABLE pawl.limit_counters WITH (fillfactor=50, autovacuum_vacuum_scale_factor=0.0, autovacuum_vacuum_threshold=500) (
  environment_id smallint NOT NULL,
  gate text NOT NULL,
  shard smallint NOT NULL DEFAULT 0,
  held integer NOT NULL DEFAULT 0,
  available double precision,
  refilled_at timestamp with time zone,
  due_at timestamp with time zone
)
TABLE pawl.limits (
  environment_id smallint NOT NULL,
  name text NOT NULL,
  concurrency integer,
  policy jsonb,
  burst integer,
  ms_per_token double precision,
  shards smallint NOT NULL DEFAULT 1
)
TABLE pawl.meta (
  singleton boolean NOT NULL DEFAULT true,
  product text NOT NULL DEFAULT 'pawl'::text,
  schema_version integer NOT NULL,
  min_build integer NOT NULL,
  installation uuid NOT NULL DEFAULT gen_random_uuid(),
  partitioned_by text
)
TABLE pawl.outbox WITH (vacuum_truncate=false) (
  id bigint NOT NULL IDENTITY ALWAYS,
  created_at timestamp with time zone NOT NULL,
  environment_id smallint NOT NULL,
  tenant text NOT NULL,
  kind text NOT NULL,
  subject text NOT NULL,
  body jsonb,
  nonce uuid NOT NULL DEFAULT gen_random_uuid()
)
TABLE pawl.pauses (
  tenant text NOT NULL,
  environment_id smallint NOT NULL,
  kind text NOT NULL,
  name text NOT NULL,
  paused_by text,
  paused_at timestamp with time zone NOT NULL
)
TABLE pawl.queues (
  environment_id smallint NOT NULL,
  name text NOT NULL,
  paused boolean NOT NULL DEFAULT false,
  paused_by text,
  paused_at timestamp with time zone
)
TABLE pawl.ready WITH (autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_threshold=2000, autovacuum_analyze_scale_factor=0.2, vacuum_truncate=false) (
  available_at timestamp with time zone NOT NULL,
  "position" bigint NOT NULL,
  lane_id integer NOT NULL,
  priority integer NOT NULL,
  run_id uuid NOT NULL
)
TABLE pawl.receipts WITH (vacuum_truncate=false) (
  tenant text NOT NULL,
  environment_id smallint NOT NULL,
  key text NOT NULL,
  fingerprint text NOT NULL,
  nonce uuid NOT NULL,
  created_at timestamp with time zone NOT NULL,
  expires_at timestamp with time zone NOT NULL,
  decision jsonb
)
TABLE pawl.runs WITH (toast_tuple_target=512, autovacuum_vacuum_scale_factor=0.05, autovacuum_analyze_scale_factor=0.1, vacuum_truncate=false, fillfactor=32) (
  id uuid NOT NULL,
  "position" bigint NOT NULL IDENTITY ALWAYS,
  created_at timestamp with time zone NOT NULL,
  available_at timestamp with time zone NOT NULL,
  updated_at timestamp with time zone NOT NULL,
  lane_id integer NOT NULL,
  priority integer NOT NULL,
  seq integer NOT NULL DEFAULT 0,
  visit integer NOT NULL DEFAULT 1,
  failures integer NOT NULL DEFAULT 0,
  losses integer NOT NULL DEFAULT 0,
  lonely_losses integer NOT NULL DEFAULT 0,
  snoozes integer NOT NULL DEFAULT 0,
  max_attempts integer NOT NULL,
  payload_bytes integer NOT NULL,
  retention_seconds integer NOT NULL,
  failed_retention_seconds integer NOT NULL,
  status pawl.run_status NOT NULL,
  environment_id smallint NOT NULL,
  signalled boolean NOT NULL DEFAULT false,
  timed_out boolean NOT NULL DEFAULT false,
  step text NOT NULL,
  timer_at timestamp with time zone,
  scheduled_for timestamp with time zone,
  finished_at timestamp with time zone,
  cancel_requested_at timestamp with time zone,
  join_seq integer,
  join_remaining integer,
  parent_join_seq integer,
  child_index integer,
  notable pawl.run_status,
  claimed_by uuid,
  parent_id uuid,
  key text,
  awaits text[],
  gates text[],
  blocked_on text,
  hold text,
  tags text[],
  hold_detail jsonb,
  headers jsonb,
  origin jsonb,
  input jsonb,
  state jsonb,
  result jsonb,
  error jsonb,
  deadline_at timestamp with time zone,
  awaited boolean NOT NULL DEFAULT false,
  join_spare integer,
  gate_units integer[],
  held_gates text[],
  gate_shards smallint[],
  policy jsonb,
  cancellation jsonb,
  uncertainty jsonb,
  nonce uuid
)
TABLE pawl.schedules (
  tenant text NOT NULL,
  environment_id smallint NOT NULL,
  name text NOT NULL,
  definition text NOT NULL,
  version integer,
  expression text NOT NULL,
  time_zone text NOT NULL,
  input jsonb,
  enabled boolean NOT NULL DEFAULT true,
  source text NOT NULL,
  next_at timestamp with time zone,
  last_at timestamp with time zone
)
TABLE pawl.signals WITH (vacuum_truncate=false) (
  id bigint NOT NULL IDENTITY ALWAYS,
  created_at timestamp with time zone NOT NULL,
  run_id uuid NOT NULL,
  consumed_seq integer,
  name text NOT NULL,
  dedup_key text,
  payload jsonb
)
TABLE pawl.uniques WITH (vacuum_truncate=false) (
  tenant text NOT NULL,
  environment_id smallint NOT NULL,
  scope text NOT NULL,
  token text NOT NULL,
  run_id uuid NOT NULL,
  expires_at timestamp with time zone,
  keep smallint NOT NULL DEFAULT 0,
  reserved_until timestamp with time zone
)

-- constraints
api_keys: api_keys_hash_key UNIQUE (hash)
api_keys: api_keys_pkey PRIMARY KEY (id)
cascades: cascades_pkey PRIMARY KEY (parent_id, join_seq)
claims: claims_pkey PRIMARY KEY (id)
environments: environments_name_key UNIQUE (name)
environments: environments_pkey PRIMARY KEY (id)
event_waits: event_waits_pkey PRIMARY KEY (tenant, environment_id, topic, run_id)
events: events_pkey PRIMARY KEY (tenant, environment_id, name)
history: history_pkey PRIMARY KEY (run_id, seq)
lanes: lanes_pkey PRIMARY KEY (id)
limit_counters: limit_counters_available_not_negative CHECK ((available >= (0)::double precision))
limit_counters: limit_counters_held_not_negative CHECK ((held >= 0))
limit_counters: limit_counters_pkey PRIMARY KEY (environment_id, gate, shard)
limits: limits_burst_positive CHECK (((burst > 0) AND (ms_per_token > (0)::double precision)))
limits: limits_concurrency_positive CHECK ((concurrency > 0))
limits: limits_pkey PRIMARY KEY (environment_id, name)
limits: limits_shards_positive CHECK ((shards > 0))
meta: meta_one_row CHECK (singleton)
meta: meta_pkey PRIMARY KEY (singleton)
outbox: outbox_pkey PRIMARY KEY (environment_id, id)
pauses: pauses_pkey PRIMARY KEY (tenant, environment_id, kind, name)
queues: queues_pkey PRIMARY KEY (environment_id, name)
receipts: receipts_pkey PRIMARY KEY (tenant, environment_id, key)
runs: runs_blocked_only_pending CHECK (((blocked_on IS NULL) OR (status = 'pending'::pawl.run_status)))
runs: runs_claimed_iff_running CHECK (((status = 'running'::pawl.run_status) = (claimed_by IS NOT NULL)))
runs: runs_finished_iff_terminal CHECK ((((status >= 'completed'::pawl.run_status) AND (status <= 'discarded'::pawl.run_status)) = (finished_at IS NOT NULL)))
runs: runs_pkey PRIMARY KEY (id)
schedules: schedules_pkey PRIMARY KEY (tenant, environment_id, name)
signals: signals_pkey PRIMARY KEY (id)
uniques: uniques_pkey PRIMARY KEY (tenant, environment_id, scope, token)

-- indexes
CREATE UNIQUE INDEX api_keys_hash_key ON pawl.api_keys USING btree (hash)
CREATE UNIQUE INDEX api_keys_pkey ON pawl.api_keys USING btree (id)
CREATE INDEX api_keys_tenant_idx ON pawl.api_keys USING btree (tenant, environment_id, created_at)
CREATE INDEX cascades_due_idx ON pawl.cascades USING btree (environment_id, created_at)
CREATE UNIQUE INDEX cascades_pkey ON pawl.cascades USING btree (parent_id, join_seq)
CREATE INDEX claims_lease_idx ON pawl.claims USING btree (environment_id, lease_until)
CREATE UNIQUE INDEX claims_pkey ON pawl.claims USING btree (id)
CREATE UNIQUE INDEX environments_name_key ON pawl.environments USING btree (name)
CREATE UNIQUE INDEX environments_pkey ON pawl.environments USING btree (id)
CREATE UNIQUE INDEX event_waits_pkey ON pawl.event_waits USING btree (tenant, environment_id, topic, run_id)
CREATE INDEX event_waits_run_idx ON pawl.event_waits USING btree (run_id)
CREATE INDEX events_expires_idx ON pawl.events USING btree (environment_id, expires_at)
CREATE UNIQUE INDEX events_pkey ON pawl.events USING btree (tenant, environment_id, name)
CREATE UNIQUE INDEX history_pkey ON pawl.history USING btree (run_id, seq)
CREATE UNIQUE INDEX lanes_identity_key ON pawl.lanes USING btree (tenant, environment_id, queue, definition, version)
CREATE UNIQUE INDEX lanes_pkey ON pawl.lanes USING btree (id)
CREATE INDEX limit_counters_due_idx ON pawl.limit_counters USING btree (environment_id, due_at) WHERE (due_at IS NOT NULL)
CREATE UNIQUE INDEX limit_counters_pkey ON pawl.limit_counters USING btree (environment_id, gate, shard)
CREATE UNIQUE INDEX limits_pkey ON pawl.limits USING btree (environment_id, name)
CREATE UNIQUE INDEX meta_pkey ON pawl.meta USING btree (singleton)
CREATE UNIQUE INDEX outbox_pkey ON pawl.outbox USING btree (environment_id, id)
CREATE UNIQUE INDEX pauses_pkey ON pawl.pauses USING btree (tenant, environment_id, kind, name)
CREATE UNIQUE INDEX queues_pkey ON pawl.queues USING btree (environment_id, name)
CREATE UNIQUE INDEX ready_order_key ON pawl.ready USING btree (lane_id DESC, priority, available_at, "position")
CREATE INDEX receipts_expires_idx ON pawl.receipts USING btree (environment_id, expires_at)
CREATE UNIQUE INDEX receipts_pkey ON pawl.receipts USING btree (tenant, environment_id, key)
CREATE INDEX runs_blocked_idx ON pawl.runs USING btree (blocked_on, priority, available_at, "position") WHERE (blocked_on IS NOT NULL)
CREATE INDEX runs_deadline_idx ON pawl.runs USING btree (environment_id, deadline_at) WHERE (deadline_at IS NOT NULL)
CREATE INDEX runs_held_gates_idx ON pawl.runs USING btree (environment_id) WHERE (held_gates IS NOT NULL)
CREATE INDEX runs_held_idx ON pawl.runs USING btree (hold, lane_id) WHERE (hold IS NOT NULL)
CREATE INDEX runs_key_idx ON pawl.runs USING btree (key, created_at, "position") WHERE (key IS NOT NULL)
CREATE INDEX runs_list_idx ON pawl.runs USING btree (lane_id, created_at, "position")
CREATE INDEX runs_notable_idx ON pawl.runs USING btree (notable, lane_id, created_at, "position") WHERE (notable IS NOT NULL)
CREATE INDEX runs_parent_idx ON pawl.runs USING btree (parent_id, parent_join_seq, child_index) WHERE (parent_id IS NOT NULL)
CREATE UNIQUE INDEX runs_pkey ON pawl.runs USING btree (id)
CREATE INDEX runs_tags_idx ON pawl.runs USING gin (tags) WHERE (tags IS NOT NULL)
CREATE INDEX runs_timer_idx ON pawl.runs USING btree (environment_id, timer_at) WHERE (timer_at IS NOT NULL)
CREATE INDEX schedules_due_idx ON pawl.schedules USING btree (environment_id, next_at) WHERE (enabled AND (next_at IS NOT NULL))
CREATE UNIQUE INDEX schedules_pkey ON pawl.schedules USING btree (tenant, environment_id, name)
CREATE UNIQUE INDEX signals_dedup_key ON pawl.signals USING btree (run_id, dedup_key) WHERE (dedup_key IS NOT NULL)
CREATE INDEX signals_inbox_idx ON pawl.signals USING btree (run_id, id)
CREATE UNIQUE INDEX signals_pkey ON pawl.signals USING btree (id)
CREATE UNIQUE INDEX uniques_pkey ON pawl.uniques USING btree (tenant, environment_id, scope, token)
CREATE INDEX uniques_run_idx ON pawl.uniques USING btree (run_id)
CREATE INDEX uniques_token_idx ON pawl.uniques USING btree (tenant, environment_id, token)

-- types
TYPE pawl.run_status AS ENUM ('pending', 'running', 'waiting', 'completed', 'failed', 'cancelled', 'discarded', 'uncertain')

-- sequences
SEQUENCE pawl.environments_id_seq AS smallint START 1 INCREMENT 1 CACHE 1
SEQUENCE pawl.facts_position_seq AS bigint START 1 INCREMENT 1 CACHE 1
SEQUENCE pawl.lanes_id_seq AS integer START 1 INCREMENT 1 CACHE 1
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
TABLE pawl.environments (
  id smallint NOT NULL IDENTITY ALWAYS,
  name text NOT NULL
)
TABLE pawl.facts (
  run_id uuid NOT NULL,
  "position" bigint NOT NULL IDENTITY ALWAYS,
  created_at timestamp with time zone NOT NULL,
  scheduled_for timestamp with time zone,
  lane_id integer NOT NULL,
  version integer NOT NULL,
  max_attempts integer NOT NULL,
  environment_id smallint NOT NULL,
  tenant text NOT NULL,
  definition text NOT NULL,
  queue text NOT NULL,
  key text,
  parent_id uuid,
  parent_join_seq integer,
  child_index integer,
  tags text[],
  headers jsonb,
  origin jsonb,
  input jsonb
)
TABLE pawl.history (
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
  paused boolean NOT NULL DEFAULT false
)
TABLE pawl.limit_counters (
  environment_id smallint NOT NULL,
  gate text NOT NULL,
  shard smallint NOT NULL DEFAULT 0,
  held integer NOT NULL DEFAULT 0,
  available integer,
  refilled_at timestamp with time zone
)
TABLE pawl.limits (
  environment_id smallint NOT NULL,
  name text NOT NULL,
  concurrency integer,
  policy jsonb
)
TABLE pawl.meta (
  singleton boolean NOT NULL DEFAULT true,
  product text NOT NULL DEFAULT 'pawl'::text,
  schema_version integer NOT NULL,
  min_build integer NOT NULL,
  upkeep_at timestamp with time zone NOT NULL DEFAULT now(),
  last_tick_at timestamp with time zone,
  last_tick_source text
)
TABLE pawl.queues (
  environment_id smallint NOT NULL,
  name text NOT NULL,
  paused boolean NOT NULL DEFAULT false,
  paused_by text,
  paused_at timestamp with time zone
)
TABLE pawl.receipts (
  tenant text NOT NULL,
  environment_id smallint NOT NULL,
  key text NOT NULL,
  fingerprint text NOT NULL,
  nonce uuid NOT NULL,
  created_at timestamp with time zone NOT NULL,
  expires_at timestamp with time zone NOT NULL,
  decision jsonb
)
TABLE pawl.runs (
  id uuid NOT NULL,
  "position" bigint NOT NULL IDENTITY ALWAYS,
  available_at timestamp with time zone,
  updated_at timestamp with time zone NOT NULL DEFAULT now(),
  finished_at timestamp with time zone,
  cancel_requested_at timestamp with time zone,
  lane_id integer NOT NULL,
  priority integer NOT NULL DEFAULT 0,
  seq integer NOT NULL DEFAULT 0,
  visit integer NOT NULL DEFAULT 1,
  failures integer NOT NULL DEFAULT 0,
  losses integer NOT NULL DEFAULT 0,
  snoozes integer NOT NULL DEFAULT 0,
  payload_bytes integer NOT NULL DEFAULT 0,
  retention_seconds integer NOT NULL,
  join_seq integer,
  join_remaining integer,
  status pawl.run_status NOT NULL,
  environment_id smallint NOT NULL,
  claimable boolean NOT NULL,
  signalled boolean NOT NULL DEFAULT false,
  timed_out boolean NOT NULL DEFAULT false,
  claimed_by uuid,
  parent_id uuid,
  parent_join_seq integer,
  step text NOT NULL,
  awaits text[],
  gates text[],
  blocked_on text,
  hold text,
  hold_detail jsonb,
  state jsonb,
  result jsonb,
  error jsonb
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
TABLE pawl.signals (
  id bigint NOT NULL IDENTITY ALWAYS,
  created_at timestamp with time zone NOT NULL,
  run_id uuid NOT NULL,
  consumed_seq integer,
  name text NOT NULL,
  dedup_key text,
  payload jsonb
)
TABLE pawl.uniques (
  tenant text NOT NULL,
  environment_id smallint NOT NULL,
  scope text NOT NULL,
  token text NOT NULL,
  run_id uuid NOT NULL,
  expires_at timestamp with time zone
)

-- constraints
api_keys: api_keys_hash_key UNIQUE (hash)
api_keys: api_keys_pkey PRIMARY KEY (id)
environments: environments_name_key UNIQUE (name)
environments: environments_pkey PRIMARY KEY (id)
facts: facts_pkey PRIMARY KEY (run_id)
history: history_pkey PRIMARY KEY (run_id, seq)
lanes: lanes_pkey PRIMARY KEY (id)
limit_counters: limit_counters_held_not_negative CHECK ((held >= 0))
limit_counters: limit_counters_pkey PRIMARY KEY (environment_id, gate, shard)
limits: limits_concurrency_positive CHECK ((concurrency > 0))
limits: limits_pkey PRIMARY KEY (environment_id, name)
meta: meta_one_row CHECK (singleton)
meta: meta_pkey PRIMARY KEY (singleton)
queues: queues_pkey PRIMARY KEY (environment_id, name)
receipts: receipts_pkey PRIMARY KEY (tenant, environment_id, key)
runs: runs_claimable_iff_free CHECK (((NOT claimable) OR ((status = 'pending'::pawl.run_status) AND (hold IS NULL) AND (blocked_on IS NULL) AND (claimed_by IS NULL))))
runs: runs_claimed_iff_running CHECK (((status = 'running'::pawl.run_status) = (claimed_by IS NOT NULL)))
runs: runs_finished_iff_terminal CHECK (((status = ANY (ARRAY['completed'::pawl.run_status, 'failed'::pawl.run_status, 'cancelled'::pawl.run_status, 'discarded'::pawl.run_status])) = (finished_at IS NOT NULL)))
runs: runs_pkey PRIMARY KEY (id)
runs: runs_running_has_lease CHECK (((status <> 'running'::pawl.run_status) OR (available_at IS NOT NULL)))
schedules: schedules_pkey PRIMARY KEY (tenant, environment_id, name)
signals: signals_pkey PRIMARY KEY (id)
uniques: uniques_pkey PRIMARY KEY (tenant, environment_id, scope, token)

-- indexes
CREATE UNIQUE INDEX api_keys_hash_key ON pawl.api_keys USING btree (hash)
CREATE UNIQUE INDEX api_keys_pkey ON pawl.api_keys USING btree (id)
CREATE INDEX api_keys_tenant_idx ON pawl.api_keys USING btree (tenant, environment_id, created_at)
CREATE UNIQUE INDEX environments_name_key ON pawl.environments USING btree (name)
CREATE UNIQUE INDEX environments_pkey ON pawl.environments USING btree (id)
CREATE INDEX facts_created_idx ON pawl.facts USING btree (tenant, environment_id, created_at, "position")
CREATE INDEX facts_definition_idx ON pawl.facts USING btree (tenant, environment_id, definition, created_at, "position")
CREATE INDEX facts_key_idx ON pawl.facts USING btree (tenant, environment_id, key, created_at, "position") WHERE (key IS NOT NULL)
CREATE INDEX facts_parent_idx ON pawl.facts USING btree (parent_id, parent_join_seq, child_index) WHERE (parent_id IS NOT NULL)
CREATE UNIQUE INDEX facts_pkey ON pawl.facts USING btree (run_id)
CREATE INDEX facts_tags_idx ON pawl.facts USING gin (tags) WHERE (tags IS NOT NULL)
CREATE UNIQUE INDEX history_pkey ON pawl.history USING btree (run_id, seq)
CREATE UNIQUE INDEX lanes_identity_key ON pawl.lanes USING btree (tenant, environment_id, queue, definition, version)
CREATE UNIQUE INDEX lanes_pkey ON pawl.lanes USING btree (id)
CREATE UNIQUE INDEX limit_counters_pkey ON pawl.limit_counters USING btree (environment_id, gate, shard)
CREATE UNIQUE INDEX limits_pkey ON pawl.limits USING btree (environment_id, name)
CREATE UNIQUE INDEX meta_pkey ON pawl.meta USING btree (singleton)
CREATE UNIQUE INDEX queues_pkey ON pawl.queues USING btree (environment_id, name)
CREATE INDEX receipts_expires_idx ON pawl.receipts USING btree (environment_id, expires_at)
CREATE UNIQUE INDEX receipts_pkey ON pawl.receipts USING btree (tenant, environment_id, key)
CREATE INDEX runs_blocked_idx ON pawl.runs USING btree (blocked_on, priority, available_at, "position") WHERE (blocked_on IS NOT NULL)
CREATE INDEX runs_claim_idx ON pawl.runs USING btree (lane_id, priority, available_at, "position") WHERE (claimable AND (losses = 0))
CREATE INDEX runs_notable_idx ON pawl.runs USING btree (status, "position") WHERE (status = ANY (ARRAY['failed'::pawl.run_status, 'cancelled'::pawl.run_status, 'discarded'::pawl.run_status, 'uncertain'::pawl.run_status]))
CREATE UNIQUE INDEX runs_pkey ON pawl.runs USING btree (id)
CREATE INDEX runs_prune_idx ON pawl.runs USING btree (environment_id, available_at) WHERE (status = ANY (ARRAY['completed'::pawl.run_status, 'failed'::pawl.run_status, 'cancelled'::pawl.run_status, 'discarded'::pawl.run_status]))
CREATE INDEX runs_quarantine_idx ON pawl.runs USING btree (environment_id, available_at, id) WHERE (claimable AND (losses > 0))
CREATE INDEX runs_timer_idx ON pawl.runs USING btree (environment_id, available_at) WHERE ((status = ANY (ARRAY['pending'::pawl.run_status, 'running'::pawl.run_status, 'waiting'::pawl.run_status])) AND (NOT claimable) AND (available_at IS NOT NULL) AND (hold IS NULL) AND (blocked_on IS NULL))
CREATE INDEX schedules_due_idx ON pawl.schedules USING btree (environment_id, next_at) WHERE (enabled AND (next_at IS NOT NULL))
CREATE UNIQUE INDEX schedules_pkey ON pawl.schedules USING btree (tenant, environment_id, name)
CREATE UNIQUE INDEX signals_dedup_key ON pawl.signals USING btree (run_id, dedup_key) WHERE (dedup_key IS NOT NULL)
CREATE INDEX signals_inbox_idx ON pawl.signals USING btree (run_id, id)
CREATE UNIQUE INDEX signals_pkey ON pawl.signals USING btree (id)
CREATE UNIQUE INDEX uniques_pkey ON pawl.uniques USING btree (tenant, environment_id, scope, token)
CREATE INDEX uniques_run_idx ON pawl.uniques USING btree (run_id)
CREATE INDEX uniques_token_idx ON pawl.uniques USING btree (tenant, environment_id, token)

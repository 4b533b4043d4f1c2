-- The record that the first migration makes: its tables, indexes and triggers. It never changes.

CREATE TABLE counters (
    name VARCHAR NOT NULL,
    value INTEGER NOT NULL,
    PRIMARY KEY (name)
);

CREATE INDEX copy_of_counters ON counters (name, value);

CREATE TABLE pool (
    pool_id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    task_id VARCHAR NOT NULL,
    seed INTEGER NOT NULL,
    origin VARCHAR NOT NULL,
    instruction VARCHAR NOT NULL,
    reward FLOAT NOT NULL,
    num_steps INTEGER NOT NULL,
    content_sha256 VARCHAR NOT NULL,
    uses INTEGER NOT NULL,
    dropped BOOLEAN NOT NULL,
    added_unix_s FLOAT NOT NULL,
    checksum BLOB NOT NULL,
    lacks_thought BOOLEAN DEFAULT '0' NOT NULL,
    guide_id INTEGER,
    rolls INTEGER DEFAULT '0' NOT NULL,
    UNIQUE (content_sha256)
);

CREATE INDEX copy_of_pool ON pool (pool_id, task_id, seed, origin, instruction, reward, num_steps, content_sha256, uses, dropped, added_unix_s, checksum, lacks_thought, guide_id, rolls);

CREATE INDEX ix_pool_task_id ON pool (task_id);

CREATE TABLE task_statistics (
    task_id VARCHAR NOT NULL,
    groups_opened INTEGER NOT NULL,
    finished INTEGER NOT NULL,
    steps_played INTEGER NOT NULL,
    longest_success_steps INTEGER,
    PRIMARY KEY (task_id)
);

CREATE INDEX copy_of_task_statistics ON task_statistics (task_id, groups_opened, finished, steps_played, longest_success_steps);

CREATE TABLE decisions (
    decision_id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    task_id VARCHAR NOT NULL,
    kind VARCHAR NOT NULL,
    "before" VARCHAR NOT NULL,
    "after" VARCHAR NOT NULL,
    reason VARCHAR NOT NULL,
    policy_version INTEGER NOT NULL,
    unix_s FLOAT NOT NULL,
    CONSTRAINT one_decision_each UNIQUE (task_id, kind, unix_s, "before", "after")
);

CREATE INDEX copy_of_decisions ON decisions (decision_id, task_id, kind, "before", "after", reason, policy_version, unix_s);

CREATE INDEX decisions_by_task ON decisions (task_id, kind, decision_id);

CREATE TABLE tallies (
    what VARCHAR NOT NULL,
    task_id VARCHAR NOT NULL,
    name VARCHAR NOT NULL,
    value INTEGER NOT NULL,
    PRIMARY KEY (what, task_id, name)
);

CREATE INDEX copy_of_tallies ON tallies (what, task_id, name, value);

CREATE TABLE versions (
    version INTEGER NOT NULL,
    checkpoint VARCHAR NOT NULL,
    metrics VARCHAR NOT NULL,
    created_unix_s FLOAT NOT NULL,
    PRIMARY KEY (version)
);

CREATE INDEX copy_of_versions ON versions (version, checkpoint, metrics, created_unix_s);

CREATE TABLE evaluations (
    evaluation_id INTEGER NOT NULL,
    phase VARCHAR NOT NULL,
    policy_version INTEGER NOT NULL,
    task_id VARCHAR NOT NULL,
    seed INTEGER NOT NULL,
    reward FLOAT NOT NULL,
    created_unix_s FLOAT NOT NULL,
    is_greedy BOOLEAN DEFAULT '0' NOT NULL,
    PRIMARY KEY (evaluation_id),
    CONSTRAINT one_evaluation_each UNIQUE (phase, policy_version, task_id, seed, is_greedy)
);

CREATE INDEX copy_of_evaluations ON evaluations (evaluation_id, phase, policy_version, task_id, seed, reward, created_unix_s, is_greedy);

CREATE TABLE events (
    event_id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    unix_s FLOAT NOT NULL,
    kind VARCHAR NOT NULL,
    subject VARCHAR NOT NULL,
    data VARCHAR NOT NULL,
    checksum BLOB NOT NULL
);

CREATE INDEX ix_events_kind ON events (kind);

CREATE TABLE pool_steps (
    pool_id INTEGER NOT NULL,
    steps BLOB NOT NULL,
    PRIMARY KEY (pool_id),
    FOREIGN KEY(pool_id) REFERENCES pool (pool_id)
);

CREATE TABLE batches (
    batch_id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    state VARCHAR NOT NULL,
    leased_unix_s FLOAT NOT NULL,
    version INTEGER,
    fence INTEGER DEFAULT '1' NOT NULL,
    deadline_unix_s FLOAT DEFAULT '0' NOT NULL,
    UNIQUE (version),
    FOREIGN KEY(version) REFERENCES versions (version)
);

CREATE INDEX ix_batches_state ON batches (state);

CREATE INDEX copy_of_batches ON batches (batch_id, state, leased_unix_s, version, fence, deadline_unix_s);

CREATE TABLE groups (
    group_id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    task_id VARCHAR NOT NULL,
    seed INTEGER NOT NULL,
    rollouts_wanted INTEGER NOT NULL,
    step_cap INTEGER NOT NULL,
    policy_version INTEGER NOT NULL,
    state VARCHAR NOT NULL,
    drop_reason VARCHAR,
    batch_id INTEGER,
    opened_unix_s FLOAT NOT NULL,
    probes_length BOOLEAN DEFAULT '0' NOT NULL,
    FOREIGN KEY(batch_id) REFERENCES batches (batch_id)
);

CREATE INDEX ix_groups_task_id ON groups (task_id);

CREATE INDEX copy_of_groups ON groups (group_id, task_id, seed, rollouts_wanted, step_cap, policy_version, state, drop_reason, batch_id, opened_unix_s, probes_length);

CREATE INDEX ix_groups_batch_id ON groups (batch_id);

CREATE INDEX ix_groups_state ON groups (state);

CREATE TABLE rollouts (
    rollout_id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    group_id INTEGER NOT NULL,
    state VARCHAR NOT NULL,
    environment VARCHAR,
    attempt INTEGER NOT NULL,
    fence INTEGER NOT NULL,
    deadline_unix_s FLOAT NOT NULL,
    drop_reason VARCHAR,
    batch_id INTEGER,
    resumes INTEGER DEFAULT '0' NOT NULL,
    FOREIGN KEY(group_id) REFERENCES groups (group_id),
    FOREIGN KEY(batch_id) REFERENCES batches (batch_id)
);

CREATE INDEX ix_rollouts_group_id ON rollouts (group_id);

CREATE INDEX copy_of_rollouts ON rollouts (rollout_id, group_id, state, environment, attempt, fence, deadline_unix_s, drop_reason, batch_id, resumes);

CREATE INDEX ix_rollouts_batch_id ON rollouts (batch_id);

CREATE INDEX ix_rollouts_state ON rollouts (state);

CREATE TABLE group_demonstrations (
    group_id INTEGER NOT NULL,
    pool_id INTEGER NOT NULL,
    added_unix_s FLOAT NOT NULL,
    PRIMARY KEY (group_id, pool_id),
    FOREIGN KEY(group_id) REFERENCES groups (group_id),
    FOREIGN KEY(pool_id) REFERENCES pool (pool_id)
);

CREATE INDEX copy_of_group_demonstrations ON group_demonstrations (group_id, pool_id, added_unix_s);

CREATE INDEX ix_group_demonstrations_pool_id ON group_demonstrations (pool_id);

CREATE TABLE attempts (
    rollout_id INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    environment VARCHAR,
    fault_kind VARCHAR NOT NULL,
    detail VARCHAR NOT NULL,
    spent_unix_s FLOAT NOT NULL,
    PRIMARY KEY (rollout_id, attempt),
    FOREIGN KEY(rollout_id) REFERENCES rollouts (rollout_id)
);

CREATE INDEX copy_of_attempts ON attempts (rollout_id, attempt, environment, fault_kind, detail, spent_unix_s);

CREATE TABLE trajectories (
    rollout_id INTEGER NOT NULL,
    group_id INTEGER NOT NULL,
    task_id VARCHAR NOT NULL,
    seed INTEGER NOT NULL,
    environment VARCHAR NOT NULL,
    instruction VARCHAR NOT NULL,
    outcome VARCHAR NOT NULL,
    reward FLOAT NOT NULL,
    num_steps INTEGER NOT NULL,
    oldest_version INTEGER NOT NULL,
    started_unix_s FLOAT NOT NULL,
    duration_s FLOAT NOT NULL,
    fence INTEGER NOT NULL,
    stored_unix_s FLOAT NOT NULL,
    checksum BLOB NOT NULL,
    PRIMARY KEY (rollout_id),
    FOREIGN KEY(rollout_id) REFERENCES rollouts (rollout_id),
    FOREIGN KEY(group_id) REFERENCES groups (group_id)
);

CREATE INDEX ix_trajectories_stored_unix_s ON trajectories (stored_unix_s);

CREATE INDEX trajectories_by_task ON trajectories (task_id, stored_unix_s);

CREATE INDEX ix_trajectories_group_id ON trajectories (group_id);

CREATE TABLE parked (
    rollout_id INTEGER NOT NULL,
    fence INTEGER NOT NULL,
    steps BLOB NOT NULL,
    num_steps INTEGER NOT NULL,
    oldest_version INTEGER,
    reason VARCHAR NOT NULL,
    parked_unix_s FLOAT NOT NULL,
    checksum BLOB NOT NULL,
    PRIMARY KEY (rollout_id),
    FOREIGN KEY(rollout_id) REFERENCES rollouts (rollout_id)
);

CREATE INDEX copy_of_parked ON parked (rollout_id, fence, num_steps, oldest_version, reason, parked_unix_s, checksum);

CREATE TABLE steps (
    rollout_id INTEGER NOT NULL,
    steps BLOB NOT NULL,
    PRIMARY KEY (rollout_id),
    FOREIGN KEY(rollout_id) REFERENCES trajectories (rollout_id)
);

CREATE TRIGGER rollout_issued AFTER INSERT ON rollouts BEGIN
    INSERT INTO tallies (what, task_id, name, value) VALUES ('state', '', new.state, 1)
    ON CONFLICT (what, task_id, name) DO UPDATE SET value = value + 1;
 END;

CREATE TRIGGER rollout_moved AFTER UPDATE OF state ON rollouts WHEN new.state != old.state BEGIN UPDATE tallies SET value = value - 1 WHERE what = 'state' AND task_id = '' AND name = old.state;
    INSERT INTO tallies (what, task_id, name, value) VALUES ('state', '', new.state, 1)
    ON CONFLICT (what, task_id, name) DO UPDATE SET value = value + 1;
 END;

CREATE TRIGGER rollout_parked AFTER UPDATE OF resumes ON rollouts WHEN new.resumes > old.resumes BEGIN
    INSERT INTO tallies (what, task_id, name, value) VALUES ('parking', '', '', 1)
    ON CONFLICT (what, task_id, name) DO UPDATE SET value = value + 1;
 END;

CREATE TRIGGER rollout_dropped AFTER UPDATE OF drop_reason ON rollouts WHEN new.drop_reason IS NOT NULL BEGIN
    INSERT INTO tallies (what, task_id, name, value) VALUES ('drop', '', new.drop_reason, 1)
    ON CONFLICT (what, task_id, name) DO UPDATE SET value = value + 1;
 END;

CREATE TRIGGER trajectory_stored AFTER INSERT ON trajectories BEGIN
    INSERT INTO tallies (what, task_id, name, value) VALUES ('outcome', '', new.outcome, 1)
    ON CONFLICT (what, task_id, name) DO UPDATE SET value = value + 1;
 END;

CREATE TRIGGER attempt_spent AFTER INSERT ON attempts BEGIN
    INSERT INTO tallies (what, task_id, name, value) VALUES ('fault', '', new.fault_kind, 1)
    ON CONFLICT (what, task_id, name) DO UPDATE SET value = value + 1;
 END;

CREATE TRIGGER group_dropped AFTER UPDATE OF drop_reason ON groups WHEN new.drop_reason IS NOT NULL BEGIN
    INSERT INTO tallies (what, task_id, name, value) VALUES ('group_drop', new.task_id, new.drop_reason, 1)
    ON CONFLICT (what, task_id, name) DO UPDATE SET value = value + 1;
 END;

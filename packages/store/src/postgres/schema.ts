import { APPEND_FUNCTION, NOTING_APPEND_FUNCTION } from './append-function.ts';
import { MEMORY_MIGRATIONS } from './memory.ts';
import { METRIC_MIGRATIONS } from './metrics.ts';
import { SCHEDULE_MIGRATION } from './schedules.ts';
import type { Migration } from './migrate.ts';

/*
 * The tables of a store in PostgreSQL, in a schema of their own, and the functions that change several of them at once.
 *
 * 1. Names, and other texts that people choose, are `bytea`: `text` cannot hold U+0000, and bytes sort in the same way in every
 *    database. JSON is `text`: it escapes U+0000 and unpaired surrogates.
 * 2. A run, or a lease of a run that has not started, has one row in `heads`. Everything that appends, acquires, renews or releases
 *    has its conditions (token, nonce, position) in the `WHERE` of one `UPDATE` of that row. So of two transactions one waits for
 *    the other and then sees what it did. `runs` has what is listed, and changes only with the status.
 * 3. Long strings and messages are found by their digests. A foreign key refers to them from each user. So a transaction that
 *    begins to use one, while another deletes it as unused, fails and is repeated.
 * 4. A function is one round trip. It holds no lock while a client is frozen.
 */

/**
 * The migration at index N brings a store from version N to N + 1. Processes of the version before may have the store open: what
 * they use stays, or they fail. What is written in each row is left to `treadle store check` and to reads, not to a migration.
 */
export const MIGRATIONS: readonly Migration[] = [
  `
  CREATE FUNCTION treadle.now_ms() RETURNS float8 LANGUAGE sql VOLATILE AS
    $$ SELECT extract(epoch FROM clock_timestamp())::float8 * 1000 $$;

  CREATE SEQUENCE treadle.lease_tokens;
  CREATE TABLE treadle.heads (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run bytea NOT NULL UNIQUE,
    entries integer NOT NULL DEFAULT 0,
    updated_at float8 NOT NULL DEFAULT 0,
    -- The lease. Null: nobody has one.
    token bigint,
    nonce uuid,
    ttl_ms float8,
    since float8,
    renewed_at float8,
    host text,
    pid integer,
    process_start text,
    place text,
    thread text
  ) WITH (fillfactor = 70);

  CREATE TABLE treadle.texts (
    digest bytea PRIMARY KEY,
    text text NOT NULL
  );
  -- kind: 1 a run (id of its head), 2 a message, 3 a request.
  CREATE TABLE treadle.text_uses (
    kind smallint NOT NULL,
    user_id bigint NOT NULL,
    text bytea NOT NULL REFERENCES treadle.texts,
    PRIMARY KEY (kind, user_id, text)
  );
  CREATE INDEX text_uses_by_text ON treadle.text_uses (text);

  -- depth: how many messages there are up to this one.
  CREATE TABLE treadle.messages (
    id bigint GENERATED ALWAYS AS IDENTITY UNIQUE,
    digest bytea PRIMARY KEY,
    previous bytea REFERENCES treadle.messages,
    depth integer NOT NULL,
    text text NOT NULL
  );
  CREATE INDEX messages_by_previous ON treadle.messages (previous) WHERE previous IS NOT NULL;

  -- ended_at: when the last entry was appended, if the run has ended. label_pairs: name, 0xff, value.
  CREATE TABLE treadle.runs (
    id bigint PRIMARY KEY,
    place bigint GENERATED ALWAYS AS IDENTITY,
    run bytea NOT NULL UNIQUE,
    status text NOT NULL,
    started_at float8 NOT NULL,
    ended_at float8,
    model bytea NOT NULL,
    title bytea NOT NULL,
    folded_title bytea NOT NULL,
    tenant bytea,
    parent bytea,
    is_child boolean NOT NULL,
    wake_at float8,
    recovered integer NOT NULL DEFAULT 0,
    recovered_at float8,
    session bytea,
    task bytea,
    labels text,
    label_pairs bytea[],
    input_last bytea REFERENCES treadle.messages,
    input_at integer
  );
  CREATE INDEX runs_by_status ON treadle.runs (status, started_at, place);
  CREATE INDEX runs_by_tenant ON treadle.runs (tenant, status, started_at, place) WHERE tenant IS NOT NULL;
  CREATE INDEX runs_by_parent ON treadle.runs (parent, status, started_at, place) WHERE parent IS NOT NULL;
  CREATE INDEX runs_by_session ON treadle.runs (session, status, started_at, place) WHERE session IS NOT NULL;
  CREATE INDEX runs_by_task ON treadle.runs (task, status, started_at, place) WHERE task IS NOT NULL;
  CREATE INDEX runs_by_end ON treadle.runs (ended_at, id) WHERE ended_at IS NOT NULL;
  CREATE INDEX runs_recovered ON treadle.runs (status, started_at, place) WHERE recovered > 0;
  CREATE INDEX runs_by_wake ON treadle.runs (wake_at) WHERE wake_at IS NOT NULL;
  CREATE INDEX runs_by_input_last ON treadle.runs (input_last) WHERE input_last IS NOT NULL;

  -- sum: CRC-32 of the name of the run, the number and the text. size: the bytes of the whole JSON.
  CREATE TABLE treadle.entries (
    run bigint NOT NULL,
    seq integer NOT NULL,
    entry text NOT NULL,
    sum bigint NOT NULL,
    size bigint NOT NULL,
    PRIMARY KEY (run, seq)
  );
  CREATE TABLE treadle.snapshots (
    run bigint PRIMARY KEY,
    seq integer NOT NULL,
    state text NOT NULL,
    sum bigint NOT NULL
  );

  CREATE TABLE treadle.blobs (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    digest text NOT NULL UNIQUE,
    length bigint NOT NULL,
    -- Null: a text.
    media_type bytea
  );
  CREATE TABLE treadle.blob_parts (
    blob bigint NOT NULL REFERENCES treadle.blobs,
    part integer NOT NULL,
    content bytea NOT NULL,
    -- The content is UTF-8.
    is_text boolean NOT NULL,
    sum bigint NOT NULL,
    PRIMARY KEY (blob, part)
  );
  CREATE TABLE treadle.blob_runs (
    run bigint NOT NULL,
    blob bigint NOT NULL REFERENCES treadle.blobs,
    PRIMARY KEY (run, blob)
  );
  CREATE INDEX blob_runs_by_blob ON treadle.blob_runs (blob);

  CREATE TABLE treadle.requests (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    response bytea NOT NULL UNIQUE,
    run bytea NOT NULL UNIQUE,
    kind bytea NOT NULL,
    tenant bytea NOT NULL,
    status bytea NOT NULL,
    created_at float8 NOT NULL,
    updated_at float8 NOT NULL,
    expires_at float8,
    previous bytea,
    request text NOT NULL,
    request_crc bigint NOT NULL,
    answer text,
    answer_crc bigint,
    -- The bytes of both.
    request_size bigint NOT NULL,
    answer_size bigint NOT NULL DEFAULT 0,
    input_last bytea REFERENCES treadle.messages,
    input_at integer,
    -- The number of entries of its run when it began to wait for answers.
    waits_at integer
  );
  CREATE INDEX requests_unfinished ON treadle.requests (created_at, id) WHERE status = 'in_progress'::bytea;
  CREATE INDEX requests_ended ON treadle.requests (updated_at, id) WHERE status <> 'in_progress'::bytea;
  CREATE INDEX requests_expiring ON treadle.requests (expires_at, id) WHERE expires_at IS NOT NULL;
  CREATE INDEX requests_by_input_last ON treadle.requests (input_last) WHERE input_last IS NOT NULL;

  CREATE TABLE treadle.idempotency_keys (
    tenant bytea NOT NULL,
    key bytea NOT NULL,
    digest bytea NOT NULL,
    response bytea NOT NULL,
    expires_at float8 NOT NULL,
    kept_with bytea,
    PRIMARY KEY (tenant, key)
  );
  CREATE INDEX idempotency_keys_by_response ON treadle.idempotency_keys (response);
  CREATE INDEX idempotency_keys_expiring ON treadle.idempotency_keys (expires_at);

  CREATE TABLE treadle.conversations (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    conversation bytea NOT NULL UNIQUE,
    tenant bytea NOT NULL,
    title bytea NOT NULL,
    created_at float8 NOT NULL,
    updated_at float8 NOT NULL,
    head bytea,
    metadata text,
    instructions bytea,
    is_deleted boolean NOT NULL DEFAULT false
  );
  CREATE INDEX conversations_by_tenant ON treadle.conversations (tenant, updated_at, conversation);
  CREATE INDEX conversations_by_update ON treadle.conversations (updated_at, id);
  CREATE INDEX conversations_deleted ON treadle.conversations (id) WHERE is_deleted;

  -- The title (without a response, place 0) and the responses of a conversation, in order. Branches share responses.
  CREATE TABLE treadle.conversation_parts (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    conversation bigint NOT NULL,
    place integer NOT NULL,
    response bytea,
    words tsvector NOT NULL,
    UNIQUE (conversation, place)
  );
  CREATE INDEX conversation_parts_by_response ON treadle.conversation_parts (response) WHERE response IS NOT NULL;
  CREATE INDEX conversation_parts_by_words ON treadle.conversation_parts USING gin (words);

  CREATE TABLE treadle.streams (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    stream bytea NOT NULL UNIQUE,
    last bigint NOT NULL,
    updated_at float8 NOT NULL
  ) WITH (fillfactor = 70);
  CREATE INDEX streams_by_update ON treadle.streams (updated_at);
  CREATE TABLE treadle.stream_events (
    stream bigint NOT NULL,
    last bigint NOT NULL,
    first bigint NOT NULL,
    events text NOT NULL,
    sum bigint NOT NULL,
    PRIMARY KEY (stream, last)
  );

  CREATE TABLE treadle.notices (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run bytea NOT NULL,
    seq integer NOT NULL,
    status text NOT NULL,
    at float8 NOT NULL,
    attempts integer NOT NULL DEFAULT 0,
    due_at float8 NOT NULL
  );
  CREATE INDEX notices_by_due ON treadle.notices (due_at, id);
  CREATE INDEX notices_by_time ON treadle.notices (at);

  CREATE TABLE treadle.inbox (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run bytea NOT NULL,
    request text NOT NULL,
    at float8 NOT NULL,
    is_taken boolean NOT NULL DEFAULT false,
    reply text
  );
  CREATE INDEX inbox_open ON treadle.inbox (at) WHERE NOT is_taken;
  CREATE INDEX inbox_by_time ON treadle.inbox (at);

  CREATE TABLE treadle.kept_processes (
    run bytea PRIMARY KEY,
    keeper text NOT NULL,
    processes text NOT NULL
  );

  CREATE TABLE treadle.budget_definitions (
    name bytea PRIMARY KEY,
    definition text NOT NULL
  );
  CREATE TABLE treadle.budget_usage (
    budget bytea NOT NULL,
    since float8 NOT NULL,
    tokens float8 NOT NULL,
    cost float8 NOT NULL,
    calls float8 NOT NULL,
    files float8 NOT NULL,
    lines float8 NOT NULL,
    requests float8 NOT NULL,
    duration_ms float8 NOT NULL,
    PRIMARY KEY (budget, since)
  );
  CREATE TABLE treadle.reservations (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    key bytea NOT NULL,
    budget bytea NOT NULL,
    tokens float8 NOT NULL,
    cost float8 NOT NULL,
    calls float8 NOT NULL,
    files float8 NOT NULL,
    lines float8 NOT NULL,
    requests float8 NOT NULL,
    duration_ms float8 NOT NULL,
    repeated boolean NOT NULL,
    at float8 NOT NULL,
    UNIQUE (key, budget)
  );
  CREATE INDEX reservations_by_budget ON treadle.reservations (budget);

  CREATE TABLE treadle.rates (
    subject bytea PRIMARY KEY,
    times text NOT NULL,
    latest float8 NOT NULL
  );
  CREATE INDEX rates_by_latest ON treadle.rates (latest);

  CREATE TABLE treadle.secret_keys (
    name bytea PRIMARY KEY,
    key bytea NOT NULL
  );

  -- Makes everything durable that can be seen. Emitting a message writes to the log, so that the commit waits for it.
  CREATE FUNCTION treadle.make_durable() RETURNS void LANGUAGE plpgsql AS $$
  BEGIN
    IF current_setting('synchronous_standby_names') <> '' OR pg_current_wal_flush_lsn() < pg_current_wal_insert_lsn() THEN
      PERFORM set_config('synchronous_commit', 'on', true);
      PERFORM pg_logical_emit_message(true, 'treadle', 'durable');
    END IF;
  END $$;

  CREATE FUNCTION treadle.store_texts(digests bytea[], contents text[]) RETURNS void LANGUAGE sql AS $$
    -- In one order, so that two transactions do not wait for each other. A text that is damaged is repaired.
    INSERT INTO treadle.texts AS t (digest, text)
      SELECT DISTINCT ON (digest) digest, content FROM unnest(digests, contents) AS given (digest, content) ORDER BY digest
    ON CONFLICT (digest) DO UPDATE SET text = excluded.text WHERE t.text <> excluded.text;
  $$;

  -- texts_of: the digest of the message that contains the text.
  CREATE FUNCTION treadle.store_messages(
    digests bytea[], previous bytea[], depths integer[], texts text[], texts_of bytea[], used bytea[]
  ) RETURNS void LANGUAGE sql AS $$
    INSERT INTO treadle.messages (digest, previous, depth, text)
      SELECT DISTINCT ON (m.digest) m.* FROM unnest(digests, previous, depths, texts) AS m (digest, previous, depth, text)
      ORDER BY m.digest
    ON CONFLICT (digest) DO NOTHING;
    INSERT INTO treadle.text_uses (kind, user_id, text)
      SELECT DISTINCT 2, m.id, u.text FROM unnest(texts_of, used) AS u (message, text)
      JOIN treadle.messages m ON m.digest = u.message ORDER BY u.text
    ON CONFLICT DO NOTHING;
  $$;

  CREATE FUNCTION treadle.release_texts(of_kind integer, of_user bigint) RETURNS void LANGUAGE plpgsql AS $$
  DECLARE
    released bytea[];
  BEGIN
    WITH gone AS (DELETE FROM treadle.text_uses WHERE kind = of_kind AND user_id = of_user RETURNING text)
      SELECT array_agg(text ORDER BY text) INTO released FROM gone;
    IF released IS NULL THEN RETURN; END IF;
    DELETE FROM treadle.texts t WHERE t.digest = ANY (released)
      AND NOT EXISTS (SELECT 1 FROM treadle.text_uses u WHERE u.text = t.digest);
  END $$;

  CREATE FUNCTION treadle.release_messages(last bytea) RETURNS void LANGUAGE plpgsql AS $$
  DECLARE
    current bytea := last;
    removed record;
  BEGIN
    WHILE current IS NOT NULL LOOP
      DELETE FROM treadle.messages m WHERE m.digest = current
        AND NOT EXISTS (SELECT 1 FROM treadle.messages n WHERE n.previous = m.digest)
        AND NOT EXISTS (SELECT 1 FROM treadle.runs r WHERE r.input_last = m.digest)
        AND NOT EXISTS (SELECT 1 FROM treadle.requests r WHERE r.input_last = m.digest)
        RETURNING m.id, m.previous INTO removed;
      IF NOT FOUND THEN RETURN; END IF;
      PERFORM treadle.release_texts(2, removed.id);
      current := removed.previous;
    END LOOP;
  END $$;

  -- jobs: one object for each run. Returns the numbers of those that were appended; the others did not fit their heads.
  CREATE FUNCTION treadle.append_entries(
    jobs json, is_durable boolean,
    entry_job integer[], entry_seq integer[], entry_text text[], entry_sum bigint[], entry_size bigint[],
    text_job integer[], text_digest bytea[], text_content text[], text_message bytea[],
    message_job integer[], message_digest bytea[], message_previous bytea[], message_depth integer[], message_text text[]
  ) RETURNS integer[] LANGUAGE plpgsql SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
  DECLARE
    done integer[];
    ids bigint[];
  BEGIN
    IF NOT is_durable THEN PERFORM set_config('synchronous_commit', 'off', true); END IF;
    INSERT INTO treadle.heads (run)
      SELECT decode(j.run, 'hex') FROM json_to_recordset(jobs) AS j (run text, token bigint, next integer)
      WHERE j.token IS NULL AND j.next = 0 ORDER BY j.run
    ON CONFLICT DO NOTHING;
    WITH moved AS (
      UPDATE treadle.heads h SET entries = h.entries + j.count, updated_at = j.updated_at, renewed_at = treadle.now_ms()
      FROM json_to_recordset(jobs) AS j (i integer, run text, next integer, count integer, token bigint, nonce uuid, updated_at float8)
      WHERE h.run = decode(j.run, 'hex') AND h.entries = j.next
        AND h.token IS NOT DISTINCT FROM j.token AND h.nonce IS NOT DISTINCT FROM j.nonce
      RETURNING j.i, h.id
    ) SELECT array_agg(i), array_agg(id) INTO done, ids FROM moved;
    IF done IS NULL THEN RETURN '{}'; END IF;

    IF cardinality(text_job) > 0 THEN
      PERFORM treadle.store_texts(array_agg(t.digest), array_agg(t.content))
        FROM unnest(text_job, text_digest, text_content) AS t (job, digest, content) WHERE t.job = ANY (done);
      INSERT INTO treadle.text_uses (kind, user_id, text)
        SELECT DISTINCT 1, d.id, t.digest FROM unnest(text_job, text_digest, text_message) AS t (job, digest, message)
        JOIN unnest(done, ids) AS d (job, id) ON d.job = t.job WHERE t.message IS NULL ORDER BY t.digest
      ON CONFLICT DO NOTHING;
    END IF;
    IF cardinality(message_job) > 0 THEN
      PERFORM treadle.store_messages(
          array_agg(m.digest), array_agg(m.previous), array_agg(m.depth), array_agg(m.text),
          (SELECT array_agg(t.message) FROM unnest(text_job, text_message) AS t (job, message)
            WHERE t.message IS NOT NULL AND t.job = ANY (done)),
          (SELECT array_agg(t.digest) FROM unnest(text_job, text_digest, text_message) AS t (job, digest, message)
            WHERE t.message IS NOT NULL AND t.job = ANY (done)))
        FROM unnest(message_job, message_digest, message_previous, message_depth, message_text)
          AS m (job, digest, previous, depth, text) WHERE m.job = ANY (done);
    END IF;

    INSERT INTO treadle.entries (run, seq, entry, sum, size)
      SELECT d.id, e.seq, e.entry, e.sum, e.size
      FROM unnest(entry_job, entry_seq, entry_text, entry_sum, entry_size) AS e (job, seq, entry, sum, size)
      JOIN unnest(done, ids) AS d (job, id) ON d.job = e.job;

    -- Before the status changes: a status that the run already had is no news.
    INSERT INTO treadle.notices (run, seq, status, at, due_at)
      SELECT decode(j.run, 'hex'), j.next + j.count - 1, j.status, j.updated_at, j.updated_at
      FROM json_to_recordset(jobs) AS j
        (i integer, run text, next integer, count integer, status text, updated_at float8, notice boolean, same boolean, is_child boolean)
      JOIN unnest(done, ids) AS d (job, id) ON d.job = j.i
      LEFT JOIN treadle.runs r ON r.id = d.id
      WHERE j.notice AND NOT coalesce(r.is_child, j.is_child) AND NOT (r.status IS NOT NULL AND r.status = j.status AND j.same);

    UPDATE treadle.runs r SET status = j.status, ended_at = j.ended_at,
        wake_at = CASE WHEN r.is_child THEN NULL ELSE j.wake_at END
      FROM json_to_recordset(jobs) AS j (i integer, next integer, status text, ended_at float8, wake_at float8)
      JOIN unnest(done, ids) AS d (job, id) ON d.job = j.i
      WHERE r.id = d.id AND j.next > 0 AND (r.status <> j.status OR r.ended_at IS DISTINCT FROM j.ended_at
        OR r.wake_at IS DISTINCT FROM CASE WHEN r.is_child THEN NULL ELSE j.wake_at END);

    INSERT INTO treadle.runs (id, run, status, started_at, ended_at, model, title, folded_title, tenant, parent, is_child, wake_at,
        session, task, labels, label_pairs, input_last, input_at)
      SELECT d.id, decode(j.run, 'hex'), j.status, j.started_at, j.ended_at, decode(j.model, 'hex'), decode(j.title, 'hex'),
        decode(j.folded_title, 'hex'), decode(j.tenant, 'hex'), decode(j.parent, 'hex'), j.is_child, j.wake_at,
        decode(j.session, 'hex'), decode(j.task, 'hex'), j.labels,
        (SELECT array_agg(decode(pair, 'hex')) FROM json_array_elements_text(j.label_pairs) AS pair),
        decode(j.input_last, 'hex'), j.input_at
      FROM json_to_recordset(jobs) AS j
        (i integer, run text, next integer, status text, started_at float8, ended_at float8, model text, title text,
         folded_title text, tenant text, parent text, is_child boolean, wake_at float8, session text, task text, labels text,
         label_pairs json, input_last text, input_at integer)
      JOIN unnest(done, ids) AS d (job, id) ON d.job = j.i
      WHERE j.next = 0 ORDER BY j.i;
    RETURN done;
  END $$;

  -- Gives the leases that nobody has. The others are not in the result.
  CREATE FUNCTION treadle.acquire_leases(
    names bytea[], nonces uuid[], by_ttl float8, by_host text, by_pid integer, by_start text, by_place text, by_thread text
  ) RETURNS TABLE (run bytea, token bigint, since float8) LANGUAGE sql AS $$
    INSERT INTO treadle.heads AS h
        (run, token, nonce, ttl_ms, since, renewed_at, host, pid, process_start, place, thread)
      SELECT n.run, nextval('treadle.lease_tokens'), n.nonce, by_ttl, treadle.now_ms(), treadle.now_ms(),
        by_host, by_pid, by_start, by_place, by_thread
      FROM unnest(names, nonces) AS n (run, nonce) ORDER BY n.run
    ON CONFLICT (run) DO UPDATE SET token = excluded.token, nonce = excluded.nonce, ttl_ms = excluded.ttl_ms,
        since = excluded.since, renewed_at = excluded.renewed_at, host = excluded.host, pid = excluded.pid,
        process_start = excluded.process_start, place = excluded.place, thread = excluded.thread
      WHERE h.token IS NULL
    RETURNING h.run, h.token, h.since;
  $$;

  -- Ends leases. A head without entries is then nothing.
  CREATE FUNCTION treadle.end_leases(tokens bigint[], nonces uuid[], names bytea[]) RETURNS SETOF bytea LANGUAGE plpgsql AS $$
  BEGIN
    DELETE FROM treadle.heads h USING unnest(tokens, nonces, names) AS l (token, nonce, run)
      WHERE h.run = l.run AND h.token = l.token AND h.nonce = l.nonce AND h.entries = 0;
    RETURN QUERY UPDATE treadle.heads h SET token = NULL, nonce = NULL
      FROM unnest(tokens, nonces, names) AS l (token, nonce, run)
      WHERE h.run = l.run AND h.token = l.token AND h.nonce = l.nonce RETURNING h.run;
  END $$;

  CREATE FUNCTION treadle.is_driven(name bytea) RETURNS boolean LANGUAGE sql AS $$
    SELECT EXISTS (SELECT 1 FROM treadle.heads WHERE run = name AND token IS NOT NULL AND renewed_at + ttl_ms > treadle.now_ms())
  $$;

  CREATE FUNCTION treadle.family_of(name bytea) RETURNS TABLE (id bigint, run bytea) LANGUAGE sql AS $$
    WITH RECURSIVE family AS (
      SELECT r.id, r.run FROM treadle.runs r WHERE r.run = name
      UNION
      SELECT r.id, r.run FROM family f JOIN treadle.runs r ON r.parent = f.run AND r.is_child
    ) SELECT family.id, family.run FROM family
  $$;

  CREATE FUNCTION treadle.remove_request(of_run bytea) RETURNS void LANGUAGE plpgsql AS $$
  DECLARE
    removed record;
  BEGIN
    DELETE FROM treadle.requests WHERE run = of_run RETURNING id, input_last INTO removed;
    IF NOT FOUND THEN RETURN; END IF;
    PERFORM treadle.release_texts(3, removed.id);
    PERFORM treadle.release_messages(removed.input_last);
  END $$;

  -- The head stays if somebody has the lease.
  CREATE FUNCTION treadle.remove_run(of_id bigint, of_run bytea) RETURNS void LANGUAGE plpgsql AS $$
  DECLARE
    last bytea;
    released bigint[];
  BEGIN
    DELETE FROM treadle.entries WHERE run = of_id;
    DELETE FROM treadle.snapshots WHERE run = of_id;
    DELETE FROM treadle.runs WHERE id = of_id RETURNING input_last INTO last;
    DELETE FROM treadle.heads WHERE id = of_id;
    PERFORM treadle.release_texts(1, of_id);
    PERFORM treadle.release_messages(last);
    PERFORM treadle.remove_request(of_run);
    WITH gone AS (DELETE FROM treadle.blob_runs WHERE run = of_id RETURNING blob)
      SELECT array_agg(blob ORDER BY blob) INTO released FROM gone;
    IF released IS NULL THEN RETURN; END IF;
    SELECT array_agg(b.id) INTO released FROM treadle.blobs b WHERE b.id = ANY (released)
      AND NOT EXISTS (SELECT 1 FROM treadle.blob_runs u WHERE u.blob = b.id);
    DELETE FROM treadle.blob_parts WHERE blob = ANY (released);
    DELETE FROM treadle.blobs WHERE id = ANY (released);
  END $$;

  -- Locks the heads of runs, in one order, so that nothing is appended and nobody gets a lease before the transaction ends.
  CREATE FUNCTION treadle.lock_heads(names bytea[]) RETURNS void LANGUAGE plpgsql AS $$
  BEGIN
    PERFORM 1 FROM treadle.heads WHERE run = ANY (names) ORDER BY run FOR UPDATE;
  END $$;

  -- Returns whether the batch has ended at the last candidate, how many runs were removed, and the position reached.
  CREATE FUNCTION treadle.prune_runs(
    before float8, after_time float8, after_id bigint, most integer, most_entries bigint,
    OUT pruned integer, OUT reached_time float8, OUT reached_id bigint
  ) LANGUAGE plpgsql AS $$
  DECLARE
    candidate record;
    names bytea[];
    found_entries bigint;
    deleted_entries bigint := 0;
  BEGIN
    pruned := 0;
    FOR candidate IN
      SELECT r.id, r.run, r.parent, r.is_child, r.ended_at FROM treadle.runs r
      WHERE r.ended_at < before AND (r.ended_at, r.id) > (after_time, after_id) ORDER BY r.ended_at, r.id LIMIT most
    LOOP
      -- An open run may still need its child runs.
      IF candidate.is_child AND EXISTS (
        SELECT 1 FROM treadle.runs p WHERE p.run = candidate.parent AND p.ended_at IS NULL
      ) THEN
        reached_time := candidate.ended_at; reached_id := candidate.id;
        CONTINUE;
      END IF;
      SELECT array_agg(f.run), coalesce(sum(h.entries), 0) INTO names, found_entries
        FROM treadle.family_of(candidate.run) f JOIN treadle.heads h ON h.id = f.id;
      IF deleted_entries + found_entries > most_entries AND pruned > 0 THEN RETURN; END IF;
      reached_time := candidate.ended_at; reached_id := candidate.id;
      -- It was removed with its parent.
      IF names IS NULL THEN CONTINUE; END IF;
      PERFORM treadle.lock_heads(names);
      IF EXISTS (
        SELECT 1 FROM treadle.family_of(candidate.run) f JOIN treadle.runs r ON r.id = f.id
        WHERE r.ended_at IS NULL OR r.ended_at >= before OR NOT f.run = ANY (names)
          OR EXISTS (SELECT 1 FROM treadle.requests q WHERE q.run = f.run) OR treadle.is_driven(f.run)
      ) THEN CONTINUE; END IF;
      pruned := pruned + cardinality(names);
      PERFORM treadle.remove_run(f.id, f.run) FROM treadle.family_of(candidate.run) f;
      deleted_entries := deleted_entries + found_entries;
    END LOOP;
  END $$;

  -- Removes the request of a run, and the run with its child runs, unless one of them is driven. Returns the number of entries.
  CREATE FUNCTION treadle.remove_with_runs(of_run bytea) RETURNS bigint LANGUAGE plpgsql AS $$
  DECLARE
    names bytea[];
    found_entries bigint;
  BEGIN
    SELECT array_agg(f.run) INTO names FROM treadle.family_of(of_run) f;
    names := array_append(names, of_run);
    PERFORM treadle.lock_heads(names);
    IF EXISTS (SELECT 1 FROM unnest(names) AS n (run) WHERE treadle.is_driven(n.run)) THEN RETURN NULL; END IF;
    SELECT coalesce(sum(h.entries), 0) INTO found_entries FROM treadle.heads h WHERE h.run = ANY (names);
    PERFORM treadle.remove_run(f.id, f.run) FROM treadle.family_of(of_run) f;
    PERFORM treadle.remove_request(of_run);
    RETURN found_entries;
  END $$;

  CREATE FUNCTION treadle.prune_requests(
    before float8, after_time float8, after_id bigint, most integer, most_entries bigint,
    OUT pruned integer, OUT reached_time float8, OUT reached_id bigint
  ) LANGUAGE plpgsql AS $$
  DECLARE
    candidate record;
    removed bigint;
    deleted_entries bigint := 0;
  BEGIN
    pruned := 0;
    FOR candidate IN
      SELECT q.id, q.run, q.updated_at AS time FROM treadle.requests q
      WHERE q.status <> 'in_progress'::bytea AND q.updated_at < before AND (q.updated_at, q.id) > (after_time, after_id)
        AND NOT EXISTS (SELECT 1 FROM treadle.conversation_parts p WHERE p.response = q.response)
      ORDER BY q.updated_at, q.id LIMIT most
    LOOP
      IF deleted_entries > most_entries THEN RETURN; END IF;
      reached_time := candidate.time; reached_id := candidate.id;
      removed := treadle.remove_with_runs(candidate.run);
      IF removed IS NULL THEN CONTINUE; END IF;
      pruned := pruned + 1;
      deleted_entries := deleted_entries + removed;
    END LOOP;
  END $$;

  CREATE FUNCTION treadle.prune_expired_requests(
    before float8, after_time float8, after_id bigint, most integer, most_entries bigint,
    OUT pruned integer, OUT reached_time float8, OUT reached_id bigint
  ) LANGUAGE plpgsql AS $$
  DECLARE
    candidate record;
    removed bigint;
    deleted_entries bigint := 0;
  BEGIN
    pruned := 0;
    FOR candidate IN
      SELECT q.id, q.run, q.expires_at AS time FROM treadle.requests q
      WHERE q.expires_at <= before AND (q.expires_at, q.id) > (after_time, after_id) AND q.status <> 'in_progress'::bytea
      ORDER BY q.expires_at, q.id LIMIT most
    LOOP
      IF deleted_entries > most_entries THEN RETURN; END IF;
      reached_time := candidate.time; reached_id := candidate.id;
      removed := treadle.remove_with_runs(candidate.run);
      IF removed IS NULL THEN CONTINUE; END IF;
      pruned := pruned + 1;
      deleted_entries := deleted_entries + removed;
    END LOOP;
  END $$;

  -- Appends events to a stream. Returns the last number that was used before; -1 if the lease is lost.
  CREATE FUNCTION treadle.append_events(
    name bytea, first_number bigint, last_number bigint, new_events text, new_sum bigint,
    of_run bytea, of_token bigint, of_nonce uuid
  ) RETURNS bigint LANGUAGE plpgsql AS $$
  DECLARE
    stream_id bigint;
    used bigint;
  BEGIN
    IF of_run IS NOT NULL THEN
      PERFORM 1 FROM treadle.heads WHERE run = of_run AND token = of_token AND nonce = of_nonce FOR SHARE;
      IF NOT FOUND THEN RETURN -1; END IF;
    END IF;
    INSERT INTO treadle.streams AS s (stream, last, updated_at) VALUES (name, last_number, treadle.now_ms())
      ON CONFLICT (stream) DO UPDATE SET last = excluded.last, updated_at = excluded.updated_at WHERE s.last < first_number
      RETURNING s.id INTO stream_id;
    IF NOT FOUND THEN
      SELECT last INTO used FROM treadle.streams WHERE stream = name;
      RETURN used;
    END IF;
    IF new_events IS NOT NULL THEN
      INSERT INTO treadle.stream_events (stream, last, first, events, sum)
        VALUES (stream_id, last_number, first_number, new_events, new_sum);
    END IF;
    RETURN 0;
  END $$;
  `,
  // Rows are deleted in batches. Cleaned up after a share of a large table, they would be too many at once.
  `
  ALTER TABLE treadle.entries SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 1);
  ALTER TABLE treadle.heads SET (autovacuum_vacuum_scale_factor = 0.05);
  ALTER TABLE treadle.text_uses SET (autovacuum_vacuum_scale_factor = 0.02);
  ALTER TABLE treadle.stream_events SET (autovacuum_vacuum_scale_factor = 0.02);
  `,
  // Otherwise the planner expects a thousand child runs of each run, and reads all runs for each one that is deleted.
  `
  ALTER FUNCTION treadle.family_of(bytea) ROWS 4;
  ALTER FUNCTION treadle.family_of(bytea) SET enable_seqscan = off;
  ALTER FUNCTION treadle.prune_runs(float8, float8, bigint, integer, bigint) SET enable_hashjoin = off;
  ALTER FUNCTION treadle.prune_runs(float8, float8, bigint, integer, bigint) SET enable_mergejoin = off;
  `,
  `
  -- A store that is open in a process, and renews all of its leases at once. losses: changes when it may have lost some of them.
  CREATE TABLE treadle.holders (
    id uuid PRIMARY KEY,
    ttl_ms float8 NOT NULL,
    renewed_at float8 NOT NULL DEFAULT treadle.now_ms(),
    losses bigint NOT NULL DEFAULT treadle.now_ms(),
    host text NOT NULL,
    pid integer NOT NULL,
    process_start text,
    place text,
    thread text
  ) WITH (fillfactor = 50);

  -- A lease without a holder is free.
  UPDATE treadle.heads SET token = NULL, nonce = NULL WHERE token IS NOT NULL;
  ALTER TABLE treadle.heads ADD COLUMN holder uuid,
    DROP COLUMN ttl_ms, DROP COLUMN renewed_at, DROP COLUMN host, DROP COLUMN pid, DROP COLUMN process_start, DROP COLUMN place,
    DROP COLUMN thread;
  DO $do$ BEGIN
    EXECUTE replace(pg_get_functiondef('treadle.append_entries'::regproc), ', renewed_at = treadle.now_ms()', '');
  END $do$;

  -- Gives the leases that nobody has. The others are not in the result.
  DROP FUNCTION treadle.acquire_leases;
  CREATE FUNCTION treadle.acquire_leases(names bytea[], nonces uuid[], by_holder uuid)
      RETURNS TABLE (run bytea, token bigint) LANGUAGE sql AS $$
    INSERT INTO treadle.heads AS h (run, token, nonce, since, holder)
      SELECT n.run, nextval('treadle.lease_tokens'), n.nonce, treadle.now_ms(), by_holder
      FROM unnest(names, nonces) AS n (run, nonce) ORDER BY n.run
    ON CONFLICT (run) DO UPDATE SET token = excluded.token, nonce = excluded.nonce, since = excluded.since, holder = excluded.holder
      WHERE h.token IS NULL
    RETURNING h.run, h.token;
  $$;

  -- Ends leases. A head without entries is then nothing. Without a token, the nonce alone names the lease.
  CREATE OR REPLACE FUNCTION treadle.end_leases(tokens bigint[], nonces uuid[], names bytea[]) RETURNS SETOF bytea LANGUAGE plpgsql AS $$
  BEGIN
    DELETE FROM treadle.heads h USING unnest(tokens, nonces, names) AS l (token, nonce, run)
      WHERE h.run = l.run AND h.token = coalesce(l.token, h.token) AND h.nonce = l.nonce AND h.entries = 0;
    RETURN QUERY UPDATE treadle.heads h SET token = NULL, nonce = NULL
      FROM unnest(tokens, nonces, names) AS l (token, nonce, run)
      WHERE h.run = l.run AND h.token = coalesce(l.token, h.token) AND h.nonce = l.nonce RETURNING h.run;
  END $$;

  CREATE OR REPLACE FUNCTION treadle.is_driven(name bytea) RETURNS boolean LANGUAGE sql AS $$
    SELECT EXISTS (SELECT 1 FROM treadle.heads h JOIN treadle.holders o ON o.id = h.holder
      WHERE h.run = name AND h.token IS NOT NULL AND o.renewed_at + o.ttl_ms > treadle.now_ms())
  $$;
  `,
  `
  -- What clients have used of what they may use, as JSON. A row tells nothing after valid_until.
  CREATE TABLE treadle.quotas (
    id bytea PRIMARY KEY,
    state text NOT NULL,
    valid_until float8 NOT NULL
  ) WITH (fillfactor = 50);
  CREATE INDEX quotas_by_end ON treadle.quotas (valid_until);
  `,
  // Those of the version before call the function with the same name and other parameters.
  APPEND_FUNCTION,
  // Those that remove requests and what belongs to them: the same as for runs.
  `
  ALTER FUNCTION treadle.remove_with_runs(bytea) SET enable_hashjoin = off;
  ALTER FUNCTION treadle.remove_with_runs(bytea) SET enable_mergejoin = off;
  ALTER FUNCTION treadle.remove_with_runs(bytea) SET enable_seqscan = off;
  ALTER FUNCTION treadle.prune_requests(float8, float8, bigint, integer, bigint) SET enable_hashjoin = off;
  ALTER FUNCTION treadle.prune_requests(float8, float8, bigint, integer, bigint) SET enable_mergejoin = off;
  ALTER FUNCTION treadle.prune_expired_requests(float8, float8, bigint, integer, bigint) SET enable_hashjoin = off;
  ALTER FUNCTION treadle.prune_expired_requests(float8, float8, bigint, integer, bigint) SET enable_mergejoin = off;
  `,
  ...METRIC_MIGRATIONS,
  NOTING_APPEND_FUNCTION,
  ...MEMORY_MIGRATIONS,
  SCHEDULE_MIGRATION,
];

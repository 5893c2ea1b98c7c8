import type { Migration } from './migrate.ts';

/*
 * The function that appends the entries of many runs, as a part of the migrations, and the statement that calls it.
 *
 * The work grows with the number of runs, and not with its square: the parts of a run find their head by the number of its job
 * (`ids[job]`), and not by a join. Plans are generic, because a call has arrays of any length, and to plan each statement again
 * takes longer than to perform it. Nothing reads a whole table.
 */

/** As it was created first. */
export const APPEND_FUNCTION: Migration = appendFunction({ create: 'CREATE FUNCTION', also: '' });

/** A run that stops again is noted for its metrics: the trigger is for updates of its status. */
export const NOTING_APPEND_FUNCTION: Migration = appendFunction({
  create: 'CREATE OR REPLACE FUNCTION',
  also: " OR j.status <> 'running'",
});

/** `ids`: the head of each job, 0 if the job did not fit it. Returns the numbers of the jobs that did, from 0 on. */
function appendFunction({ create, also }: { readonly create: string; readonly also: string }): string {
  return `
  ${create} treadle.append_entries(
    is_durable boolean,
    job_run bytea[], job_next integer[], job_count integer[], job_token bigint[], job_nonce uuid[], job_updated float8[],
    job_status text[], job_ended float8[], job_wake float8[], job_notice boolean[], job_same boolean[], job_child boolean[],
    starts json,
    entry_job integer[], entry_seq integer[], entry_text text[], entry_sum bigint[], entry_size bigint[],
    text_job integer[], text_digest bytea[], text_content text[], text_message bytea[],
    message_job integer[], message_digest bytea[], message_previous bytea[], message_depth integer[], message_text text[]
  ) RETURNS integer[] LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
  DECLARE
    ids bigint[] := array_fill(0::bigint, ARRAY[cardinality(job_run)]);
    done integer[] := '{}';
    moved record;
  BEGIN
    IF NOT is_durable THEN PERFORM set_config('synchronous_commit', 'off', true); END IF;
    IF starts IS NOT NULL THEN
      INSERT INTO treadle.heads (run)
        SELECT j.run FROM unnest(job_run, job_next, job_token) AS j (run, next, token)
        WHERE j.token IS NULL AND j.next = 0 ORDER BY j.run
      ON CONFLICT DO NOTHING;
    END IF;
    FOR moved IN
      UPDATE treadle.heads h SET entries = h.entries + j.count, updated_at = j.updated
      FROM unnest(job_run, job_next, job_count, job_token, job_nonce, job_updated) WITH ORDINALITY
        AS j (run, next, count, token, nonce, updated, i)
      WHERE h.run = j.run AND h.entries = j.next
        AND h.token IS NOT DISTINCT FROM j.token AND h.nonce IS NOT DISTINCT FROM j.nonce
      RETURNING j.i, h.id
    LOOP
      ids[moved.i] := moved.id;
      done := done || (moved.i - 1)::integer;
    END LOOP;
    IF cardinality(done) = 0 THEN RETURN done; END IF;

    IF cardinality(text_job) > 0 THEN
      PERFORM treadle.store_texts(array_agg(t.digest), array_agg(t.content))
        FROM unnest(text_job, text_digest, text_content) AS t (job, digest, content) WHERE ids[t.job + 1] > 0;
      INSERT INTO treadle.text_uses (kind, user_id, text)
        SELECT DISTINCT 1, ids[t.job + 1], t.digest FROM unnest(text_job, text_digest, text_message) AS t (job, digest, message)
        WHERE ids[t.job + 1] > 0 AND t.message IS NULL ORDER BY t.digest
      ON CONFLICT DO NOTHING;
    END IF;
    IF cardinality(message_job) > 0 THEN
      PERFORM treadle.store_messages(
          array_agg(m.digest), array_agg(m.previous), array_agg(m.depth), array_agg(m.text),
          (SELECT array_agg(t.message) FROM unnest(text_job, text_message) AS t (job, message)
            WHERE t.message IS NOT NULL AND ids[t.job + 1] > 0),
          (SELECT array_agg(t.digest) FROM unnest(text_job, text_digest, text_message) AS t (job, digest, message)
            WHERE t.message IS NOT NULL AND ids[t.job + 1] > 0))
        FROM unnest(message_job, message_digest, message_previous, message_depth, message_text)
          AS m (job, digest, previous, depth, text) WHERE ids[m.job + 1] > 0;
    END IF;

    INSERT INTO treadle.entries (run, seq, entry, sum, size)
      SELECT ids[e.job + 1], e.seq, e.entry, e.sum, e.size
      FROM unnest(entry_job, entry_seq, entry_text, entry_sum, entry_size) AS e (job, seq, entry, sum, size)
      WHERE ids[e.job + 1] > 0;

    -- Before the status changes: a status that the run already had is no news.
    IF true = ANY (job_notice) THEN
      INSERT INTO treadle.notices (run, seq, status, at, due_at)
        SELECT j.run, j.next + j.count - 1, j.status, j.updated, j.updated
        FROM unnest(job_run, job_next, job_count, job_updated, job_status, job_notice, job_same, job_child) WITH ORDINALITY
          AS j (run, next, count, updated, status, notice, same, is_child, i)
        LEFT JOIN treadle.runs r ON r.id = ids[j.i]
        WHERE j.notice AND ids[j.i] > 0 AND NOT coalesce(r.is_child, j.is_child)
          AND NOT (r.status IS NOT NULL AND r.status = j.status AND j.same);
    END IF;

    UPDATE treadle.runs r SET status = j.status, ended_at = j.ended,
        wake_at = CASE WHEN r.is_child THEN NULL ELSE j.wake END
      FROM unnest(job_next, job_status, job_ended, job_wake) WITH ORDINALITY AS j (next, status, ended, wake, i)
      WHERE r.id = ids[j.i] AND j.next > 0 AND (r.status <> j.status OR r.ended_at IS DISTINCT FROM j.ended
        OR r.wake_at IS DISTINCT FROM CASE WHEN r.is_child THEN NULL ELSE j.wake END${also});

    IF starts IS NOT NULL THEN
      INSERT INTO treadle.runs (id, run, status, started_at, ended_at, model, title, folded_title, tenant, parent, is_child, wake_at,
          session, task, labels, label_pairs, input_last, input_at)
        SELECT ids[j.i + 1], job_run[j.i + 1], job_status[j.i + 1], j.started_at, job_ended[j.i + 1], decode(j.model, 'hex'),
          decode(j.title, 'hex'), decode(j.folded_title, 'hex'), decode(j.tenant, 'hex'), decode(j.parent, 'hex'),
          job_child[j.i + 1], j.wake_at, decode(j.session, 'hex'), decode(j.task, 'hex'), j.labels,
          (SELECT array_agg(decode(pair, 'hex')) FROM json_array_elements_text(j.label_pairs) AS pair),
          decode(j.input_last, 'hex'), j.input_at
        FROM json_to_recordset(starts) AS j
          (i integer, started_at float8, model text, title text, folded_title text, tenant text, parent text, wake_at float8,
           session text, task text, labels text, label_pairs json, input_last text, input_at integer)
        WHERE ids[j.i + 1] > 0 ORDER BY j.i;
    END IF;
    RETURN done;
  END $$;
`;
}

/** What a job has in each array, in the order of the parameters after `is_durable`. */
export interface JobRow {
  readonly run: Buffer | null;
  readonly next: number;
  readonly count: number;
  readonly token: number | null;
  readonly nonce: string | null;
  /** Null is refused. */
  readonly updated: number | null;
  readonly status: string;
  readonly ended: number | null;
  readonly wake: number | null;
  readonly notice: boolean;
  readonly same: boolean;
  readonly child: boolean;
}

export const JOB_COLUMNS: readonly (keyof JobRow)[] = [
  'run',
  'next',
  'count',
  'token',
  'nonce',
  'updated',
  'status',
  'ended',
  'wake',
  'notice',
  'same',
  'child',
];

const TYPES = [
  'boolean bytea[] integer[] integer[] bigint[] uuid[] float8[] text[] float8[] float8[] boolean[] boolean[] boolean[] json',
  'integer[] integer[] text[] bigint[] bigint[] integer[] bytea[] text[] bytea[] integer[] bytea[] bytea[] integer[] text[]',
]
  .join(' ')
  .split(' ');

export const APPEND: string = `SELECT treadle.append_entries(${TYPES.map((type, index) => `$${index + 1}::${type}`).join(', ')}) AS done`;

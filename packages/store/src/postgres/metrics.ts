import type { CountedRun, MetricStore } from '../ports/metrics.ts';
import {
  addedSums,
  groupNotes,
  isUnchanged,
  rowSums,
  storedTenant,
  sumOfRows,
  type Note,
  type StoredCounts,
} from '../records/metrics.ts';
import { bytes, text, type Database, type Query } from './connection.ts';
import { addObservations } from './memory.ts';
import type { Migration } from './migrate.ts';

/** The tables of metrics, as in SQLite, and what notes the runs that are there. */
export const METRIC_MIGRATIONS: readonly Migration[] = [
  `
  -- Sums as JSON: those of a tool, or without one those of the loop. The runs of no tenant have an empty one.
  CREATE TABLE treadle.metric_hours (
    tenant bytea NOT NULL,
    hour float8 NOT NULL,
    tool bytea NOT NULL,
    sums text NOT NULL,
    PRIMARY KEY (tenant, hour, tool)
  ) WITH (fillfactor = 70);
  CREATE INDEX metric_hours_by_hour ON treadle.metric_hours (hour);

  -- How many entries of a run the sums contain, and how many they contained before they were made again.
  CREATE TABLE treadle.metric_runs (
    run bytea PRIMARY KEY,
    counted integer NOT NULL,
    target integer NOT NULL
  );

  -- A run that has paused or ended since it was counted. Who has counted a run removes only the notes that it saw. Without a unique
  -- index on the run, nobody waits for another transaction.
  CREATE TABLE treadle.metric_notes (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run bytea NOT NULL
  );

  CREATE FUNCTION treadle.note_stopped_run() RETURNS trigger LANGUAGE plpgsql AS $$
  BEGIN
    INSERT INTO treadle.metric_notes (run) VALUES (NEW.run);
    RETURN NULL;
  END $$;
  CREATE TRIGGER metric_run_added AFTER INSERT ON treadle.runs
    FOR EACH ROW WHEN (NEW.status <> 'running') EXECUTE FUNCTION treadle.note_stopped_run();
  CREATE TRIGGER metric_run_stopped AFTER UPDATE OF status, ended_at ON treadle.runs
    FOR EACH ROW WHEN (NEW.status <> 'running') EXECUTE FUNCTION treadle.note_stopped_run();

  CREATE FUNCTION treadle.forget_counted_run() RETURNS trigger LANGUAGE plpgsql SET enable_seqscan = off AS $$
  BEGIN
    DELETE FROM treadle.metric_runs m WHERE m.run = OLD.run;
    RETURN NULL;
  END $$;
  CREATE TRIGGER metric_run_deleted AFTER DELETE ON treadle.runs
    FOR EACH ROW EXECUTE FUNCTION treadle.forget_counted_run();
  `,
  // After the triggers, in a transaction of its own, which lets others write meanwhile. A run that is noted twice is counted once.
  `INSERT INTO treadle.metric_notes (run) SELECT run FROM treadle.runs WHERE status <> 'running' ORDER BY id`,
];

/** So that of several processes one adds sums, or makes them again. "Trdm". */
const METRIC_LOCK = 0x54_72_64_6d;

export function openMetrics(db: Database): MetricStore {
  async function addRuns(query: Query, runs: readonly CountedRun[]): Promise<readonly string[]> {
    await query('SELECT pg_advisory_xact_lock($1)', [METRIC_LOCK]);
    const names = runs.map(({ runId }) => bytes(runId));
    const known = await query<StoredCounts & { readonly run: Buffer }>(
      'SELECT run, counted, remembered FROM treadle.metric_runs WHERE run = ANY ($1)',
      [names],
    );
    const counts = new Map(known.rows.map(({ run, ...stored }) => [text(run), stored]));
    const added = runs.filter((run) => isUnchanged(run, counts.get(run.runId)));
    const moved = added.filter(
      ({ counted, next, remembered, memory }) => next !== counted || (memory && memory.next !== remembered),
    );
    // The numbers of one that was deleted would be taken for those of a later run with its name.
    const { rows: present } = await query<{ readonly run: Buffer }>(
      `INSERT INTO treadle.metric_runs AS m (run, counted, target, remembered)
         SELECT n.run, n.next, n.next, n.remembered FROM unnest($1::bytea[], $2::integer[], $3::integer[]) AS n (run, next, remembered)
         JOIN (SELECT r.run FROM treadle.runs r WHERE r.run = ANY ($1) ORDER BY r.run FOR KEY SHARE) found ON found.run = n.run
       ON CONFLICT (run) DO UPDATE SET counted = excluded.counted, target = greatest(m.target, excluded.target),
         remembered = excluded.remembered
       RETURNING m.run`,
      [
        moved.map(({ runId }) => bytes(runId)),
        moved.map(({ next }) => next),
        moved.map(({ remembered, memory }) => memory?.next ?? remembered),
      ],
    );
    const stored = new Set(present.map(({ run }) => text(run)));
    await addObservations(
      query,
      moved.flatMap(({ runId, memory }) => (stored.has(runId) ? (memory?.observations ?? []) : [])),
    );
    await query('DELETE FROM treadle.metric_notes WHERE id = ANY ($1::bigint[])', [
      added.flatMap(({ notes }) => notes),
    ]);
    const rows = rowSums(added);
    const [tenants, hours, tools] = [
      rows.map(({ tenant }) => bytes(tenant)),
      rows.map(({ hour }) => hour),
      rows.map(({ tool }) => bytes(tool)),
    ];
    const found = await query<{ readonly sums: string | null }>(
      `SELECT h.sums FROM unnest($1::bytea[], $2::float8[], $3::bytea[]) WITH ORDINALITY AS n (tenant, hour, tool, place)
       LEFT JOIN treadle.metric_hours h ON h.tenant = n.tenant AND h.hour = n.hour AND h.tool = n.tool ORDER BY n.place`,
      [tenants, hours, tools],
    );
    await query(
      `INSERT INTO treadle.metric_hours (tenant, hour, tool, sums)
         SELECT * FROM unnest($1::bytea[], $2::float8[], $3::bytea[], $4::text[])
       ON CONFLICT (tenant, hour, tool) DO UPDATE SET sums = excluded.sums`,
      [tenants, hours, tools, rows.map((row, index) => addedSums(found.rows[index]!.sums ?? undefined, row))],
    );
    return added.map(({ runId }) => runId);
  }

  return {
    noted: (limit) =>
      db.read(async (query) => {
        const { rows } = await query<Omit<Note, 'run'> & { readonly run: Buffer }>(
          `SELECT n.id, n.run, coalesce(r.counted, 0) AS counted, coalesce(r.target, 0) AS target,
             coalesce(r.remembered, 0) AS remembered
           FROM (SELECT id, run FROM treadle.metric_notes ORDER BY id LIMIT $1) n
           LEFT JOIN treadle.metric_runs r ON r.run = n.run ORDER BY n.id`,
          [limit],
        );
        return groupNotes(rows.map((row) => ({ ...row, id: Number(row.id), run: text(row.run) })));
      }),
    waiting: () =>
      db.read(async (query) => {
        const { rows } = await query<{ readonly count: number }>(
          'SELECT coalesce(max(id) - min(id) + 1, 0)::integer AS count FROM treadle.metric_notes',
        );
        return rows[0]!.count;
      }),
    // Repeated, it finds that it has added them.
    add: (runs) => db.write((query) => addRuns(query, runs)),
    read: ({ tenant, since = 0, until = Number.MAX_SAFE_INTEGER }) =>
      db.read(async (query) => {
        const { rows } = await query<{ readonly hour: number; readonly tool: Buffer; readonly sums: string }>(
          `SELECT hour, tool, sums FROM treadle.metric_hours
           WHERE ($1::bytea IS NULL OR tenant = $1) AND hour >= $2 AND hour < $3`,
          [tenant === undefined ? null : bytes(storedTenant(tenant)), since, until],
        );
        return sumOfRows(rows.map((row) => ({ ...row, tool: text(row.tool) })));
      }),
    restart: () =>
      db.write(async (query) => {
        await query('SELECT pg_advisory_xact_lock($1)', [METRIC_LOCK]);
        await query('DELETE FROM treadle.metric_hours');
        await query(
          `INSERT INTO treadle.metric_notes (run) SELECT run FROM treadle.runs
           WHERE status <> 'running' OR run IN (SELECT run FROM treadle.metric_runs) ORDER BY id`,
        );
        await query('UPDATE treadle.metric_runs SET counted = 0');
      }),
  };
}

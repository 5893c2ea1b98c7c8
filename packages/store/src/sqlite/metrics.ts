import type { DatabaseSync } from 'node:sqlite';
import type { Metrics } from '@treadle/core/trace';
import type { CountedRun, MetricFilter, MetricStore, NotedRun } from '../ports/metrics.ts';
import { nameKey } from '../records/json.ts';
import {
  addedSums,
  groupNotes,
  isUnchanged,
  rowSums,
  storedTenant,
  sumOfRows,
  type MetricRow,
  type Note,
  type StoredCounts,
} from '../records/metrics.ts';
import type { GroupCommit } from './group-commit.ts';
import type { Memories } from './memory.ts';

/** Creates the tables of metrics. Runs of earlier versions are noted. */
export function createMetricTables(db: DatabaseSync): void {
  db.exec(`
    -- Sums as JSON: those of a tool, or without one those of the loop. The runs of no tenant have an empty one.
    CREATE TABLE metric_hours (
      tenant TEXT NOT NULL,
      hour INTEGER NOT NULL,
      tool TEXT NOT NULL,
      sums TEXT NOT NULL,
      PRIMARY KEY (tenant, hour, tool)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX metric_hours_by_hour ON metric_hours (hour);

    -- How many entries of a run the sums contain, and how many they contained before they were made again.
    CREATE TABLE metric_runs (
      run TEXT PRIMARY KEY,
      counted INTEGER NOT NULL,
      target INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;

    -- A run that has paused or ended since it was counted. AUTOINCREMENT: who has counted a run removes only the notes that it saw.
    CREATE TABLE metric_notes (
      id INTEGER PRIMARY KEY AUTOINCREMENT,
      run TEXT NOT NULL
    ) STRICT;
    INSERT INTO metric_notes (run) SELECT run FROM runs WHERE status <> 'running' ORDER BY id;

    CREATE TRIGGER metric_run_added AFTER INSERT ON runs WHEN NEW.status <> 'running' BEGIN
      INSERT INTO metric_notes (run) VALUES (NEW.run);
    END;
    CREATE TRIGGER metric_run_stopped AFTER UPDATE OF status ON runs WHEN NEW.status <> 'running' BEGIN
      INSERT INTO metric_notes (run) VALUES (NEW.run);
    END;
    CREATE TRIGGER metric_run_deleted AFTER DELETE ON runs BEGIN
      DELETE FROM metric_runs WHERE run = OLD.run;
    END;
  `);
}

/** The methods of a `MetricStore`. Those that read are synchronous and need a transaction of the caller. */
export interface StoredMetricTables extends Pick<MetricStore, 'add' | 'restart'> {
  readonly noted: (limit: number) => readonly NotedRun[];
  readonly waiting: () => number;
  readonly read: (filter: MetricFilter) => Metrics;
}

interface MetricParts {
  readonly write: GroupCommit['write'];
  readonly memories: Pick<Memories, 'addObservations'>;
}

export function openMetrics(db: DatabaseSync, { write, memories }: MetricParts): StoredMetricTables {
  const findNotes = db.prepare(
    `SELECT n.id, n.run, coalesce(r.counted, 0) AS counted, coalesce(r.target, 0) AS target,
       coalesce(r.remembered, 0) AS remembered
     FROM metric_notes n LEFT JOIN metric_runs r ON r.run = n.run WHERE n.id > 0 ORDER BY n.id LIMIT ?`,
  );
  const findFirst = db.prepare('SELECT id FROM metric_notes WHERE id > 0 ORDER BY id LIMIT 1');
  const findLast = db.prepare('SELECT id FROM metric_notes WHERE id > 0 ORDER BY id DESC LIMIT 1');
  const removeNote = db.prepare('DELETE FROM metric_notes WHERE id = ?');
  const findCounted = db.prepare('SELECT counted, remembered FROM metric_runs WHERE run = ?');
  const setCounted = db.prepare(
    `INSERT INTO metric_runs (run, counted, target, remembered) VALUES (?1, ?2, ?2, ?3)
     ON CONFLICT DO UPDATE SET counted = ?2, target = max(target, ?2), remembered = ?3`,
  );
  const hasRun = db.prepare('SELECT 1 FROM runs WHERE run = ?');
  const findHour = db.prepare('SELECT sums FROM metric_hours WHERE tenant = ? AND hour = ? AND tool = ?');
  const setHour = db.prepare(
    'INSERT INTO metric_hours (tenant, hour, tool, sums) VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO UPDATE SET sums = ?4',
  );
  const findHours = db.prepare('SELECT hour, tool, sums FROM metric_hours WHERE tenant = ? AND hour >= ? AND hour < ?');
  const findAllHours = db.prepare('SELECT hour, tool, sums FROM metric_hours WHERE hour >= ? AND hour < ?');

  function addRuns(runs: readonly CountedRun[]): readonly string[] {
    const added = runs.filter((run) => {
      const { runId, counted, next, remembered, memory } = run;
      const name = nameKey(runId);
      const found = findCounted.get(name);
      if (!isUnchanged(run, found as StoredCounts | undefined)) return false;
      const isMoved = next !== counted || (memory && memory.next !== remembered);
      // The numbers of one that was deleted would be taken for those of a later run with its name.
      if (isMoved && hasRun.get(name)) {
        setCounted.run(name, next, memory?.next ?? remembered);
        if (memory) memories.addObservations(memory.observations);
      }
      return true;
    });
    for (const { notes } of added) for (const id of notes) removeNote.run(id);
    for (const row of rowSums(added)) {
      const { tenant, hour, tool } = row;
      const before = findHour.get(tenant, hour, tool)?.['sums'] as string | undefined;
      setHour.run(tenant, hour, tool, addedSums(before, row));
    }
    return added.map(({ runId }) => runId);
  }

  return {
    noted: (limit) => groupNotes(findNotes.all(limit) as unknown as readonly Note[]),
    waiting() {
      const [first, last] = [findFirst.get(), findLast.get()];
      return first && last ? Number(last['id']) - Number(first['id']) + 1 : 0;
    },
    add: (runs) => write(() => addRuns(runs)),
    read({ tenant, since = 0, until = Number.MAX_SAFE_INTEGER }) {
      const rows =
        tenant === undefined ? findAllHours.all(since, until) : findHours.all(storedTenant(tenant), since, until);
      return sumOfRows(rows as unknown as readonly MetricRow[]);
    },
    async restart() {
      await write(() =>
        db.exec(`
          DELETE FROM metric_hours;
          INSERT INTO metric_notes (run) SELECT run FROM runs
            WHERE status <> 'running' OR run IN (SELECT run FROM metric_runs) ORDER BY id;
          UPDATE metric_runs SET counted = 0;
        `),
      );
    },
  };
}

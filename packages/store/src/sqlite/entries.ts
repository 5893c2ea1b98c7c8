import type { DatabaseSync } from 'node:sqlite';
import { summaryOf, TreadleError, type JournalEntry, type Lease, type RunStatus, type Snapshot } from '@treadle/core';
import { parseChecked, withChecksum } from './database.ts';
import { isCorrupt } from './failure.ts';
import type { GroupCommit } from './group-commit.ts';
import type { Leases } from './leases.ts';

interface RunRow {
  readonly id: number;
  readonly entries: number;
  readonly status: RunStatus;
}

interface EntryRow {
  readonly seq: number;
  readonly entry: string;
  readonly sum: number;
}

interface SnapshotRow {
  readonly seq: number;
  readonly state: string;
  readonly sum: number;
}

/** The entries and snapshots of runs. Appending also updates the summary in `runs`. */
export interface Entries {
  readonly append: (runId: string, added: readonly JournalEntry[], lease?: Lease) => Promise<void>;
  readonly read: (runId: string, from?: number) => readonly JournalEntry[];
  /** A run has one snapshot; an older one does not replace a newer one. Rejects with `unknown-run`. */
  readonly writeSnapshot: (runId: string, snapshot: Snapshot) => Promise<void>;
  /** Undefined if the snapshot is missing or damaged: the entries contain the same state. */
  readonly readSnapshot: (runId: string) => Snapshot | undefined;
}

export function openEntries(db: DatabaseSync, { write }: GroupCommit, { checkWriter }: Leases): Entries {
  const findRun = db.prepare('SELECT id, entries, status FROM runs WHERE run = ?');
  const insertRun = db.prepare(
    'INSERT INTO runs (run, status, started_at, updated_at, entries, model, title, tenant, parent) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)',
  );
  const updateRun = db.prepare('UPDATE runs SET updated_at = ?, entries = ? WHERE id = ?');
  const updateStatus = db.prepare('UPDATE runs SET status = ? WHERE id = ?');
  const insertEntry = db.prepare('INSERT INTO entries (run, seq, entry, sum) VALUES (?, ?, ?, ?)');
  const findEntry = db.prepare('SELECT seq, entry, sum FROM entries WHERE run = ? AND seq = ?');
  const findEntries = db.prepare('SELECT seq, entry, sum FROM entries WHERE run = ? AND seq >= ? ORDER BY seq');
  const deleteEntry = db.prepare('DELETE FROM entries WHERE run = ? AND seq = ?');
  const upsertSnapshot = db.prepare(
    `INSERT INTO snapshots (run, seq, state, sum) VALUES (?, ?, ?, ?)
     ON CONFLICT (run) DO UPDATE SET seq = excluded.seq, state = excluded.state, sum = excluded.sum WHERE excluded.seq >= seq`,
  );
  const findSnapshot = db.prepare(
    'SELECT seq, state, sum FROM snapshots JOIN runs ON runs.id = snapshots.run WHERE runs.run = ?',
  );
  const deleteSnapshot = db.prepare('DELETE FROM snapshots WHERE run = ? AND seq > ?');

  function runOf(runId: string): RunRow | undefined {
    return findRun.get(runId) as unknown as RunRow | undefined;
  }

  async function append(runId: string, added: readonly JournalEntry[], lease?: Lease): Promise<void> {
    if (added.length === 0) return;
    const records = added.map(withChecksum);
    await write(() => {
      checkWriter(runId, lease);
      const run = runOf(runId);
      const next = nextSeq(run, added[0]!.seq);
      const misplaced = added.findIndex(({ seq }, index) => seq !== next + index);
      if (misplaced >= 0) throw entryOutOfOrder(runId, next, added[misplaced]!.seq);
      const id = run ? extendRun(run, added.at(-1)!) : createRun(runId, added);
      for (const [index, { text, sum }] of records.entries()) insertEntry.run(id, next + index, text, sum);
    });
  }

  /** A damaged last entry does not count: the first appended entry replaces it. */
  function nextSeq(run: RunRow | undefined, wanted: number): number {
    if (!run) return 0;
    const { id, entries: count } = run;
    if (wanted !== count - 1 || parseEntry(rowAt(id, wanted))) return count;
    deleteEntry.run(id, wanted);
    deleteSnapshot.run(id, wanted);
    return wanted;
  }

  function createRun(runId: string, added: readonly JournalEntry[]): number {
    const {
      status,
      startedAt,
      updatedAt,
      entries: count,
      model,
      title,
      tenant = null,
      parent = null,
    } = summaryOf(runId, added[0]!, added.at(-1)!);
    return Number(
      insertRun.run(runId, status, startedAt, updatedAt, count, model, title, tenant, parent).lastInsertRowid,
    );
  }

  function extendRun({ id, status: previous }: RunRow, last: JournalEntry): number {
    const status: RunStatus = last.status ?? 'running';
    updateRun.run(last.event.at, last.seq + 1, id);
    // Only if it changed, because three indexes contain the status.
    if (status !== previous) updateStatus.run(status, id);
    return id;
  }

  function read(runId: string, from = 0): JournalEntry[] {
    const run = runOf(runId);
    const read: JournalEntry[] = [];
    if (!run) return read;
    for (const row of rowsFrom(run.id, from)) {
      const entry = parseEntry(row);
      if (!entry || entry.seq !== from + read.length) break;
      read.push(entry);
    }
    const last = run.entries - 1;
    if (from + read.length < last) throw entryDamaged(runId, from + read.length);
    return read;
  }

  /** If a page of the file is damaged, returns the rows before the first that cannot be read. */
  function rowsFrom(id: number, from: number): readonly EntryRow[] {
    try {
      return findEntries.all(id, from) as unknown as EntryRow[];
    } catch (error) {
      if (!isCorrupt(error)) throw error;
    }
    const rows: EntryRow[] = [];
    for (let row = rowAt(id, from); row; row = rowAt(id, from + rows.length)) rows.push(row);
    return rows;
  }

  /** Undefined if the row does not exist or is in a damaged page. */
  function rowAt(id: number, seq: number): EntryRow | undefined {
    try {
      return findEntry.get(id, seq) as unknown as EntryRow | undefined;
    } catch (error) {
      if (isCorrupt(error)) return undefined;
      throw error;
    }
  }

  async function writeSnapshot(runId: string, { seq, state }: Snapshot): Promise<void> {
    const { text, sum } = withChecksum(state);
    await write(() => {
      const run = runOf(runId);
      if (!run) throw unknownRun(runId);
      upsertSnapshot.run(run.id, seq, text, sum);
    });
  }

  function readSnapshot(runId: string): Snapshot | undefined {
    const row = findSnapshot.get(runId) as unknown as SnapshotRow | undefined;
    const state = row && parseChecked(row.state, row.sum);
    return state === undefined ? undefined : { seq: row!.seq, state };
  }

  return { append, read, writeSnapshot, readSnapshot };
}

/** Undefined if the row is missing or damaged. */
function parseEntry(row: EntryRow | undefined): JournalEntry | undefined {
  const entry = row && (parseChecked(row.entry, row.sum) as JournalEntry | undefined);
  return entry?.seq === row?.seq ? entry : undefined;
}

export function unknownRun(runId: string): TreadleError {
  return new TreadleError(
    'unknown-run',
    `Run "${runId}" does not exist, so nothing can be stored for it. Start the run first.`,
  );
}

function entryDamaged(runId: string, seq: number): TreadleError {
  return new TreadleError(
    'journal-damaged',
    `Entry ${seq} of run "${runId}" is damaged, so the run cannot be read from there on. Restore the store from a backup, or delete the run; other runs are not affected.`,
  );
}

function entryOutOfOrder(runId: string, count: number, seq: number): TreadleError {
  return new TreadleError(
    'run-exists',
    `Run "${runId}" has ${count} entries, so entry ${seq} cannot be added. Resume the run from its last entry, or start another run.`,
  );
}

import type { DatabaseSync } from 'node:sqlite';
import { summaryOf, TreadleError, type JournalEntry, type Lease, type RunStatus } from '@treadle/core';
import { isCorrupt } from './failure.ts';
import type { GroupCommit } from './group-commit.ts';
import type { Leases } from './leases.ts';
import { opened, sealed } from './record.ts';

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

/** The entries of runs, and what their summaries say of them. */
export interface Entries {
  readonly append: (runId: string, added: readonly JournalEntry[], lease?: Lease) => Promise<void>;
  readonly read: (runId: string, from?: number) => readonly JournalEntry[];
}

export function entries(db: DatabaseSync, { write }: GroupCommit, { admit }: Leases): Entries {
  const findRun = db.prepare('SELECT id, entries, status FROM runs WHERE run = ?');
  const insertRun = db.prepare(
    'INSERT INTO runs (run, status, started_at, updated_at, entries, model, title, tenant, parent) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)',
  );
  const updateRun = db.prepare('UPDATE runs SET updated_at = ?, entries = ? WHERE id = ?');
  const updateStatus = db.prepare('UPDATE runs SET status = ? WHERE id = ?');
  const insertEntry = db.prepare('INSERT INTO entries (run, seq, entry, sum) VALUES (?, ?, ?, ?)');
  const findEntry = db.prepare('SELECT seq, entry, sum FROM entries WHERE run = ? AND seq = ?');
  const readEntries = db.prepare('SELECT seq, entry, sum FROM entries WHERE run = ? AND seq >= ? ORDER BY seq');
  const dropEntry = db.prepare('DELETE FROM entries WHERE run = ? AND seq = ?');
  const dropSnapshot = db.prepare('DELETE FROM snapshots WHERE run = ? AND seq > ?');

  function runOf(runId: string): RunRow | undefined {
    return findRun.get(runId) as unknown as RunRow | undefined;
  }

  async function append(runId: string, added: readonly JournalEntry[], lease?: Lease): Promise<void> {
    if (added.length === 0) return;
    const records = added.map(sealed);
    await write(() => {
      admit(runId, lease);
      const run = runOf(runId);
      const next = nextSeq(run, added[0]!.seq);
      const stray = added.findIndex(({ seq }, index) => seq !== next + index);
      if (stray >= 0) throw outOfOrder(runId, next, added[stray]!.seq);
      const id = run ? extend(run, added.at(-1)!) : begin(runId, added);
      for (const [index, { text, sum }] of records.entries()) insertEntry.run(id, next + index, text, sum);
    });
  }

  /** A damaged last entry does not count: it gives way to the one that is written in its place. */
  function nextSeq(run: RunRow | undefined, wanted: number): number {
    if (!run) return 0;
    const { id, entries: count } = run;
    if (wanted !== count - 1 || entryOf(rowAt(id, wanted))) return count;
    dropEntry.run(id, wanted);
    dropSnapshot.run(id, wanted);
    return wanted;
  }

  function begin(runId: string, added: readonly JournalEntry[]): number {
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

  function extend({ id, status: was }: RunRow, last: JournalEntry): number {
    const status: RunStatus = last.status ?? 'running';
    updateRun.run(last.event.at, last.seq + 1, id);
    // Apart, and only if it changed: it is in three indexes.
    if (status !== was) updateStatus.run(status, id);
    return id;
  }

  function read(runId: string, from = 0): JournalEntry[] {
    const run = runOf(runId);
    const read: JournalEntry[] = [];
    if (!run) return read;
    for (const row of rowsFrom(run.id, from)) {
      const entry = entryOf(row);
      if (!entry || entry.seq !== from + read.length) break;
      read.push(entry);
    }
    const last = run.entries - 1;
    if (from + read.length < last) throw damaged(runId, from + read.length);
    return read;
  }

  /** If a page of the file is damaged: those before the entry that lies in it. */
  function rowsFrom(id: number, from: number): readonly EntryRow[] {
    try {
      return readEntries.all(id, from) as unknown as EntryRow[];
    } catch (error) {
      if (!isCorrupt(error)) throw error;
    }
    const rows: EntryRow[] = [];
    for (let row = rowAt(id, from); row; row = rowAt(id, from + rows.length)) rows.push(row);
    return rows;
  }

  /** Undefined if there is none, or it lies in a damaged page. */
  function rowAt(id: number, seq: number): EntryRow | undefined {
    try {
      return findEntry.get(id, seq) as unknown as EntryRow | undefined;
    } catch (error) {
      if (isCorrupt(error)) return undefined;
      throw error;
    }
  }

  return { append, read };
}

/** Undefined if there is none, or a damaged one. */
function entryOf(row: EntryRow | undefined): JournalEntry | undefined {
  const entry = row && (opened(row.entry, row.sum) as JournalEntry | undefined);
  return entry?.seq === row?.seq ? entry : undefined;
}

function damaged(runId: string, seq: number): TreadleError {
  return new TreadleError(
    'journal-damaged',
    `Entry ${seq} of run "${runId}" is damaged, so the run cannot be read from there on. Bring it back from a backup, or delete it; other runs are not affected.`,
  );
}

function outOfOrder(runId: string, has: number, seq: number): TreadleError {
  return new TreadleError(
    'run-exists',
    `Run "${runId}" has ${has} entries, so entry ${seq} cannot be added. Go on with the run as it is, or start another.`,
  );
}

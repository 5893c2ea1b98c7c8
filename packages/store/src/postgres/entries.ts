import { crc32 } from 'node:zlib';
import type { JournalEntry, Snapshot } from '@treadle/core';
import { entryDamaged, unknownRun } from '../records/errors.ts';
import { parseJson } from '../records/json.ts';
import { sumBefore } from './appends.ts';
import { bytes, type Database, type Query } from './connection.ts';
import { restoreInput, restoreTexts } from './texts.ts';

/**
 * Reads the entries of runs, and stores their snapshots. An entry has a sum of the name of the run, its number and its JSON, and
 * the head has the number of entries. So a run with a missing, changed, moved or additional entry is never read.
 */
export interface Entries {
  readonly read: (runId: string, from?: number) => Promise<readonly JournalEntry[]>;
  readonly readPage: (runId: string, from: number) => Promise<readonly JournalEntry[]>;
  readonly find: (runId: string, text: string) => Promise<readonly number[]>;
  readonly sizeOf: (runId: string) => Promise<number>;
  readonly pageSize: (runId: string, from: number) => Promise<number>;
  readonly writeSnapshot: (runId: string, snapshot: Snapshot) => Promise<void>;
  readonly readSnapshot: (runId: string) => Promise<Snapshot | undefined>;
}

/** A page has at most this many entries, so that reading a long run does not block the event loop. */
const PAGE_ENTRIES = 500;
/** It ends after the entry that reaches this number of bytes. */
const PAGE_BYTES = 1_000_000;

interface RunRow {
  readonly id: number;
  readonly entries: number;
  readonly input_last: Buffer | null;
  readonly input_at: number | null;
}

interface EntryRow {
  readonly seq: number;
  readonly entry: string;
  readonly sum: number;
}

export function openEntries(db: Database): Entries {
  async function read(runId: string, from = 0): Promise<readonly JournalEntry[]> {
    for (;;) {
      const found = await readOnce(runId, from);
      if (found) return found;
    }
  }

  /** Undefined if the run was deleted meanwhile. */
  async function readOnce(runId: string, from: number): Promise<readonly JournalEntry[] | undefined> {
    const run = await db.read((query) => runOf(query, runId));
    if (!run) return [];
    const all: JournalEntry[] = [];
    for (let at = 0; at < run.entries;) {
      const start = at;
      const { entries, end } = await db.read((query) => readRows(query, { runId, run, from: start, wanted: from }));
      for (const entry of entries) all.push(entry);
      if (end === start) return missing(runId, run, start);
      at = end;
    }
    await requireNoMore(runId, run);
    return all;
  }

  async function missing(runId: string, run: RunRow, seq: number): Promise<undefined> {
    const current = await db.read((query) => runOf(query, runId));
    if (current?.id === run.id) throw entryDamaged(runId, seq, 'is missing');
  }

  /** Entries that are not in the count. */
  async function requireNoMore(runId: string, run: RunRow): Promise<void> {
    const { rows } = await db.read((query) =>
      query<{ readonly seq: number }>(
        `SELECT e.seq FROM treadle.heads h JOIN treadle.entries e ON e.run = h.id AND (e.seq >= h.entries OR e.seq < 0)
         WHERE h.id = $1 ORDER BY e.seq LIMIT 1`,
        [run.id],
      ),
    );
    if (rows[0]) throw entryDamaged(runId, rows[0].seq, 'is not in the count of entries');
  }

  return {
    read,
    readPage: (runId, from) =>
      db.read(async (query) => {
        const run = await runOf(query, runId);
        if (!run || from >= run.entries) return [];
        const { entries } = await readRows(query, { runId, run, from, wanted: from });
        if (entries.length > 0) return entries;
        if ((await runOf(query, runId))?.id === run.id) throw entryDamaged(runId, from, 'is missing');
        return [];
      }),
    find: (runId, text) =>
      db.read(async (query) => {
        const { rows } = await query<{ readonly seq: number }>(
          `SELECT e.seq FROM treadle.runs r JOIN treadle.entries e ON e.run = r.id
           WHERE r.run = $1 AND strpos(e.entry, $2) > 0 ORDER BY e.seq`,
          [bytes(runId), text],
        );
        return rows.map(({ seq }) => seq);
      }),
    sizeOf: (runId) =>
      db.read(async (query) => {
        const { rows } = await query<{ readonly size: string }>(
          `SELECT coalesce(sum(e.size), 0)::bigint AS size FROM treadle.runs r JOIN treadle.entries e ON e.run = r.id WHERE r.run = $1`,
          [bytes(runId)],
        );
        return Number(rows[0]!.size);
      }),
    pageSize: (runId, from) =>
      db.read(async (query) => {
        const run = await runOf(query, runId);
        let size = 0;
        if (run) for (const one of await sizesFrom(query, run.id, from)) if ((size += one) >= PAGE_BYTES) break;
        return size;
      }),
    async writeSnapshot(runId, { seq, state }) {
      const json = JSON.stringify(state);
      await db.write(async (query) => {
        const run = await runOf(query, runId);
        if (!run) throw unknownRun(runId);
        await query(
          `INSERT INTO treadle.snapshots AS s (run, seq, state, sum) VALUES ($1, $2, $3, $4)
           ON CONFLICT (run) DO UPDATE SET seq = excluded.seq, state = excluded.state, sum = excluded.sum WHERE excluded.seq >= s.seq`,
          [run.id, seq, json, crc32(json, sumBefore(runId, seq))],
        );
      }, 'written');
    },
    readSnapshot: (runId) =>
      db.read(async (query) => {
        const { rows } = await query<{ readonly seq: number; readonly state: string; readonly sum: number }>(
          'SELECT s.seq, s.state, s.sum FROM treadle.runs r JOIN treadle.snapshots s ON s.run = r.id WHERE r.run = $1',
          [bytes(runId)],
        );
        const [row] = rows;
        if (!row || crc32(row.state, sumBefore(runId, row.seq)) !== row.sum) return undefined;
        return { seq: row.seq, state: parseJson(row.state) };
      }),
  };
}

async function runOf(query: Query, runId: string): Promise<RunRow | undefined> {
  const { rows } = await query<RunRow>(
    `SELECT h.id, h.entries, r.input_last, r.input_at FROM treadle.heads h JOIN treadle.runs r ON r.id = h.id WHERE h.run = $1`,
    [bytes(runId)],
  );
  return rows[0];
}

/** The rows of a page, and one more if there is one. */
async function pageRows(query: Query, id: number, from: number): Promise<readonly EntryRow[]> {
  const { rows } = await query<EntryRow>(
    `SELECT seq, entry, sum FROM (
       SELECT seq, entry, sum, sum(size) OVER (ORDER BY seq) - size AS before FROM
         (SELECT seq, entry, sum, size FROM treadle.entries WHERE run = $1 AND seq >= $2 ORDER BY seq LIMIT ${PAGE_ENTRIES}) AS page
     ) AS page WHERE before < ${PAGE_BYTES} ORDER BY seq`,
    [id, from],
  );
  return rows;
}

/** The entries of a page, from `wanted` on. Throws if one of them is damaged. */
async function readRows(
  query: Query,
  {
    runId,
    run,
    from,
    wanted,
  }: { readonly runId: string; readonly run: RunRow; readonly from: number; readonly wanted: number },
): Promise<{ readonly entries: readonly JournalEntry[]; readonly end: number }> {
  const rows = (await pageRows(query, run.id, from)).filter(({ seq }) => seq < run.entries);
  const texts = [
    ...(await restoreTexts(
      query,
      rows.map(({ entry }) => entry),
    )),
  ];
  if (rows[0]?.seq === 0) texts[0] = await restoreInput(query, texts[0]!, run);
  const entries: JournalEntry[] = [];
  for (const [index, { seq, sum }] of rows.entries()) {
    if (seq !== from + index) throw entryDamaged(runId, from + index, 'is missing');
    const entry = seq < wanted ? undefined : (parseJson(texts[index]!) as JournalEntry | null | undefined);
    const isIntact = crc32(texts[index]!, sumBefore(runId, seq)) === sum && (seq < wanted || entry?.seq === seq);
    if (!isIntact) throw entryDamaged(runId, seq, 'is damaged');
    if (entry) entries.push(entry);
  }
  return { entries, end: from + rows.length };
}

async function sizesFrom(query: Query, id: number, from: number): Promise<readonly number[]> {
  const { rows } = await query<{ readonly size: number }>(
    `SELECT size FROM treadle.entries WHERE run = $1 AND seq >= $2 ORDER BY seq LIMIT ${PAGE_ENTRIES}`,
    [id, from],
  );
  return rows.map(({ size }) => size);
}

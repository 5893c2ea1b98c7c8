import { setImmediate } from 'node:timers/promises';
import { isDeepStrictEqual } from 'node:util';
import { messageOf, replay, summaryOf, TreadleError, type JournalEntry, type RunSummary } from '@treadle/core';
import { CONVERSATIONS, TABLES, type Row, type StoreRows, type Table } from './migrate/tables.ts';
import type { Store } from './ports/store.ts';
import { parseChecked, parseJson } from './records/json.ts';

/** What `checkStore` found. */
export interface StoreReport {
  /** The numbers of runs, entries, snapshots, long results and responses that were checked. */
  readonly runs: number;
  readonly entries: number;
  readonly snapshots: number;
  readonly blobs: number;
  readonly responses: number;
  /** Empty if everything is intact. */
  readonly problems: readonly StoreProblem[];
}

export interface StoreProblem {
  /**
   * What is damaged. `file`: the database. `entries`: the run cannot be read. `replay`: its entries are intact, but this
   * version of Treadle cannot resume it. `summary`: it is listed with wrong data. `snapshot`: it opens more slowly. `row`: of another
   * table.
   */
  readonly part: 'file' | 'entries' | 'replay' | 'summary' | 'snapshot' | 'blob' | 'response' | 'row';
  readonly runId?: string;
  /** The id of the response. */
  readonly response?: string;
  /** What is wrong, and what to do. */
  readonly message: string;
}

/** How far a long operation is. */
export interface StoreProgress {
  /** `keep` copies the store that `restoreStore` replaces. */
  readonly step: 'copy' | 'check' | 'keep' | 'replace';
  /** For `check` the number of runs and responses, for the other steps the number of bytes. */
  readonly done: number;
  readonly total: number;
}

export interface ProgressOptions {
  readonly onProgress?: (progress: StoreProgress) => void;
  /** Stops the operation, which then changes nothing and rejects with the reason. */
  readonly signal?: AbortSignal;
}

export type Found = { -readonly [Key in keyof StoreReport]: StoreReport[Key] } & { readonly problems: StoreProblem[] };

/** What the ports of a store do not list. */
export interface StoredContent {
  /** Undefined if the database is damaged there, which is reported. */
  readonly readable: <T>(read: () => T | Promise<T>) => Promise<T | undefined>;
  readonly runNames: () => Promise<readonly string[]>;
  readonly requests: () => Promise<readonly { readonly id: string; readonly tenant: string }[]>;
  readonly hasSnapshot: (runId: string) => Promise<boolean>;
  readonly rows: StoreRows['rows'];
  /** Checks what belongs to no run and no request. */
  readonly checkRest: () => Promise<void>;
}

interface GivenCheck extends ProgressOptions {
  readonly store: Store;
  readonly content: StoredContent;
  readonly found: Found;
}

interface Checking extends GivenCheck {
  /** Several runs can have the same one. */
  readonly intactBlobs: Set<string>;
}

/** Reads everything that a store contains, and replays each run. */
export async function checkContent(given: GivenCheck): Promise<void> {
  const checking: Checking = { ...given, intactBlobs: new Set() };
  const { store, content, found, onProgress, signal } = checking;
  const names = await content.runNames();
  const runs = (await content.readable(() => store.list({ limit: Infinity }))) ?? [];
  const requests = await content.requests();
  const total = runs.length + requests.length;
  let done = 0;
  const advance = async (): Promise<void> => {
    onProgress?.({ step: 'check', done: ++done, total });
    // Lets other work of this process continue.
    await setImmediate();
    signal?.throwIfAborted();
  };
  for (const run of runs) {
    await checkRun(checking, run);
    await advance();
  }
  const listed = new Set(runs.map(({ runId }) => runId));
  for (const runId of names) if (!listed.has(runId)) await checkUnlisted(checking, runId);
  for (const { id, tenant } of requests) {
    found.responses++;
    await reported(checking, { part: 'response', response: id }, () => store.requests.get(tenant, id));
    await advance();
  }
  for (const table of [CONVERSATIONS, ...TABLES]) await content.readable(() => checkTable(checking, table));
  await content.checkRest();
}

const ROWS_AT_ONCE = 100;

/** Reads all rows of a table, and what is JSON in them. */
async function checkTable({ content, found, signal }: Checking, table: Table): Promise<void> {
  for (let rows = await content.rows(table, undefined, ROWS_AT_ONCE); rows.length > 0;) {
    for (const row of rows) {
      for (const column of damagedColumns(table, row)) found.problems.push(rowDamaged(table, row, column));
    }
    await setImmediate();
    signal?.throwIfAborted();
    rows = await content.rows(table, rows.at(-1), ROWS_AT_ONCE);
  }
}

function damagedColumns({ columns }: Table, row: Row): readonly string[] {
  const { sum } = row;
  return Object.keys(columns).filter((name) => {
    const value = row[name];
    if (columns[name] !== 'json' || typeof value !== 'string') return false;
    return (typeof sum === 'number' ? parseChecked(value, sum) : parseJson(value)) === undefined;
  });
}

function rowDamaged({ name, key }: Table, row: Row, column: string): StoreProblem {
  const position = Object.fromEntries(key.map((one) => [one, row[one]]));
  const message = `In the table ${name}, the column ${column} of the row ${JSON.stringify(position)} is damaged. Restore a backup.`;
  return { part: 'row', message };
}

export function entriesWithoutRun(number: number): StoreProblem {
  const message = `There are entries of a run that is not in the list of runs (number ${number}). Restore a backup if a run is missing.`;
  return { part: 'file', message };
}

export function textUseLost(id: number | string): StoreProblem {
  const message = `A use of text ${id} is not recorded, so the text can be deleted too early. Restore a backup.`;
  return { part: 'file', message };
}

async function checkRun(checking: Checking, summary: RunSummary): Promise<void> {
  const { store, found } = checking;
  const { runId } = summary;
  const entries = await reported(checking, { part: 'entries', runId }, () => store.read(runId));
  // The run was deleted since it was listed.
  if (entries?.length === 0) return;
  found.runs++;
  if (entries) {
    found.entries += entries.length;
    const problem = replayProblem(runId, entries) ?? summaryProblem(summary, entries);
    if (problem) found.problems.push(problem);
    // The sum of a snapshot depends on the entries.
    await checkSnapshot(checking, runId);
  }
  await checkBlobs(checking, runId);
}

async function checkUnlisted(checking: Checking, runId: string): Promise<void> {
  const entries = await reported(checking, { part: 'entries', runId }, () => checking.store.read(runId));
  // Empty: the run was deleted before the others were listed.
  if (!entries || entries.length === 0) return;
  const message = `Run "${runId}" is not listed, because its status or its time is damaged. Its entries are intact: export it, delete it, and import it again.`;
  checking.found.problems.push({ part: 'summary', runId, message });
}

function replayProblem(runId: string, entries: readonly JournalEntry[]): StoreProblem | undefined {
  const reason = divergenceOf(entries);
  if (reason === undefined) return undefined;
  const message = `Run "${runId}" cannot be resumed with this version of Treadle: ${reason}. Resume it with the version that wrote it, restore a backup, or delete the run.`;
  return { part: 'replay', runId, message };
}

function divergenceOf(entries: readonly JournalEntry[]): string | undefined {
  try {
    const replayed = replay(entries);
    return replayed.type === 'replayed' ? undefined : `at entry ${replayed.seq}, ${replayed.difference}`;
  } catch (error) {
    // An event without the fields of its type. It must not end the check of the other runs, nor a backup.
    return `its events cannot be read (${messageOf(error)})`;
  }
}

function summaryProblem(summary: RunSummary, entries: readonly JournalEntry[]): StoreProblem | undefined {
  const { runId } = summary;
  // An entry was appended since the run was listed.
  if (summary.entries !== entries.length) return undefined;
  const expected = summaryOf(runId, entries[0]!, entries.at(-1)!);
  const { recovered: _, ...derived } = summary;
  const names = Object.keys({ ...expected, ...derived }) as (keyof RunSummary)[];
  const wrong = names.find((name) => !isDeepStrictEqual(summary[name], expected[name]));
  if (!wrong) return undefined;
  const message = `Run "${runId}" is listed with a wrong ${wrong}. Its entries are intact: export it, delete it, and import it again.`;
  return { part: 'summary', runId, message };
}

async function checkSnapshot({ store, content, found }: Checking, runId: string): Promise<void> {
  if (!(await content.hasSnapshot(runId))) return;
  found.snapshots++;
  // Looks again, because the run may have been deleted.
  if ((await store.readSnapshot(runId)) || !(await content.hasSnapshot(runId))) return;
  const message = `The snapshot of run "${runId}" is damaged. Nothing is lost, and nothing has to be done: the run is opened from its entries.`;
  found.problems.push({ part: 'snapshot', runId, message });
}

async function checkBlobs(checking: Checking, runId: string): Promise<void> {
  const { store, found, intactBlobs } = checking;
  const ids = await reported(checking, { part: 'blob', runId }, () => store.blobs.list(runId));
  for (const id of ids ?? []) {
    if (intactBlobs.has(id)) continue;
    found.blobs++;
    const blob = await reported(checking, { part: 'blob', runId }, () => store.blobs.read(runId, id, 0, Infinity));
    if (blob) intactBlobs.add(id);
  }
}

/** Undefined, and a problem, if it is damaged. */
async function reported<T>(
  { found }: Checking,
  problem: Omit<StoreProblem, 'message'>,
  read: () => Promise<T>,
): Promise<T | undefined> {
  try {
    return await read();
  } catch (error) {
    const isDamage =
      error instanceof TreadleError && (error.code === 'journal-damaged' || error.code === 'store-failed');
    if (!isDamage) throw error;
    found.problems.push({ ...problem, message: error.message });
    return undefined;
  }
}

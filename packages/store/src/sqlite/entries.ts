import type { DatabaseSync } from 'node:sqlite';
import { crc32 } from 'node:zlib';
import type { JournalEntry, RunStatus, Snapshot } from '@treadle/core';
import { entryDamaged, unknownRun } from '../records/errors.ts';
import { inputOf, nameKey, parseJson } from '../records/json.ts';
import { isCorrupt } from './failure.ts';
import type { GroupCommit } from './group-commit.ts';
import type { InputPlace, Messages } from './messages.ts';
import { storedSize, type SharedTexts } from './shared-texts.ts';

export interface RunRow extends InputPlace {
  readonly id: number;
  readonly entries: number;
  readonly status: RunStatus;
  readonly parent: string | null;
  readonly wake_at: number | null;
  readonly last_chain: number;
}

interface SnapshotRow {
  readonly id: number;
  readonly seq: number;
  readonly state: string;
  readonly sum: number;
}

/**
 * Reads the entries of runs, and stores their snapshots.
 *
 * 1. The `chain` of an entry is the CRC-32 of the texts of all entries of the run up to this one: of its own text,
 *    continued from the `chain` before it. The row of the run has the number of entries and the last `chain`. The text of
 *    an entry is the one that was appended, although long input is stored as `Messages`, and long strings as `SharedTexts`.
 * 2. Entries are committed together with the row of the run, so any difference between them is damage, also at the end.
 *    A run with a missing, changed, moved or additional entry is never read, not even in parts.
 * 3. The `sum` of a snapshot continues the `chain` of the last entry that it covers, so it fits only there.
 */
export interface Entries {
  /**
   * Returns a function that reads the next page, inside a transaction of its own, and returns all entries when it has read
   * the last one. They are those that the run had at the first page. If the run is deleted in between, reading starts again.
   * Throws `journal-damaged`, also if the damage is before `from`.
   */
  readonly readInPages: (runId: string, from?: number) => () => readonly JournalEntry[] | undefined;
  /**
   * Inside a transaction: the entries from `from` on, up to a page. The cost does not depend on the entries before, so
   * damage there is not found.
   */
  readonly readPageFrom: (runId: string, from: number) => readonly JournalEntry[];
  /**
   * Returns a function that counts the bytes of some entries, inside a transaction, and returns the sum when it has counted
   * the last one. It reads no entry.
   */
  readonly sizeInParts: (runId: string) => () => { readonly size: number } | undefined;
  /**
   * Returns a function that looks through some entries, inside a transaction, and returns the numbers of those with this text in
   * their JSON when it has looked through all. Texts that are stored elsewhere are not looked at.
   */
  readonly findInParts: (runId: string, text: string) => () => readonly number[] | undefined;
  /** Inside a transaction: the bytes of what `readPageFrom` reads. */
  readonly pageSize: (runId: string, from: number) => number;
  /** A run has one snapshot; an older one does not replace a newer one. Rejects with `unknown-run`. */
  readonly writeSnapshot: (runId: string, snapshot: Snapshot) => Promise<void>;
  /** Undefined if the snapshot is missing or damaged: the entries contain the same state. */
  readonly readSnapshot: (runId: string) => Snapshot | undefined;
}

/** A page has at most this many entries, so that reading a long run does not block the event loop. */
const PAGE_ENTRIES = 500;
/** It ends after the entry that reaches this number of characters. */
const PAGE_CHARS = 1_000_000;

/** So many entries are looked through in one transaction. */
const FOUND_ENTRIES = 5_000;

/** The messages of an input with more bytes are read in parts of at least `PAGE_CHARS`. */
const LARGE_INPUT = 2 * PAGE_CHARS;

/** The number of entries that were read, and the `chain` of the last one. */
interface PageEnd {
  readonly count: number;
  readonly sum: number;
}

const START: PageEnd = { count: 0, sum: 0 };

/** The first entry of a run with a large input, which is read in parts. */
interface LargeStart {
  /** Its text without the messages. */
  readonly rest: string;
  readonly ids: readonly number[];
  /** The messages so far, unless the entry is not wanted. */
  readonly input: unknown[];
  /** How many messages were read. */
  count: number;
  /** Their characters. */
  chars: number;
  /** The CRC-32 of the text so far. */
  sum: number;
}

interface PageRequest {
  readonly large: LargeStart | undefined;
  /** As it was at the first page. */
  readonly run: RunRow;
  /** The number of entries that the run has now. */
  readonly appended: number;
  readonly start: PageEnd;
  readonly from: number;
}

interface Page {
  readonly entries: readonly JournalEntry[];
  readonly end: PageEnd;
}

interface EntriesParts {
  readonly write: GroupCommit['write'];
  readonly messages: Messages;
  readonly shared: SharedTexts;
}

export function openEntries(db: DatabaseSync, parts: EntriesParts): Entries {
  const { write, messages } = parts;
  const { runOf, firstOf } = findRuns(db);
  const readPage = pageReader(db, parts);
  const { largeStartOf, readMessages } = largeInputs(parts, firstOf);
  const findChain = db.prepare('SELECT chain FROM entries WHERE run = ? AND seq = ?');
  const findSizes = db.prepare(
    `SELECT ${storedSize('entry')} AS size FROM entries WHERE run = ? AND seq >= ? ORDER BY seq LIMIT ${PAGE_ENTRIES}`,
  );
  const findEntries = db.prepare(
    'SELECT seq FROM entries WHERE run = ? AND seq >= ? AND seq < ? AND instr(entry, ?) > 0 ORDER BY seq',
  );
  const upsertSnapshot = db.prepare(
    `INSERT INTO snapshots (run, seq, state, sum) VALUES (?, ?, ?, ?)
     ON CONFLICT (run) DO UPDATE SET seq = excluded.seq, state = excluded.state, sum = excluded.sum WHERE excluded.seq >= seq`,
  );
  const findSnapshot = db.prepare(
    'SELECT runs.id, seq, state, sum FROM snapshots JOIN runs ON runs.id = snapshots.run WHERE runs.run = ?',
  );

  function readInPages(runId: string, from = 0): () => readonly JournalEntry[] | undefined {
    let run: RunRow | undefined;
    let read: JournalEntry[] = [];
    let end: PageEnd = START;
    let large: LargeStart | undefined;
    return () => {
      const current = runOf(runId);
      if (run && !(current && isSameRun(current, run, end))) {
        run = undefined;
        read = [];
        end = START;
        large = undefined;
      }
      if (!current) return read;
      if (!run) large = unlessCorrupt(() => largeStartOf(current));
      run ??= current;
      if (large && large.count < large.ids.length) {
        large = unlessCorrupt(() => readMessages(large!, from === 0));
        return undefined;
      }
      const page = readPage(runId, { large, run, appended: current.entries, start: end, from });
      large = undefined;
      for (const entry of page.entries) read.push(entry);
      ({ end } = page);
      return end.count >= run.entries ? read : undefined;
    };
  }

  /** False if the run was deleted since the last page was read. Another one may have its id. */
  function isSameRun(current: RunRow, { id, entries }: RunRow, { count, sum }: PageEnd): boolean {
    return current.id === id && current.entries >= entries && chainBefore(id, count) === sum;
  }

  function readPageFrom(runId: string, from: number): readonly JournalEntry[] {
    const run = runOf(runId);
    if (!run || from >= run.entries) return [];
    const start = from === 0 ? START : { count: from, sum: chainBefore(run.id, from) };
    return readPage(runId, { large: undefined, run, appended: run.entries, start, from }).entries;
  }

  /** The sizes of entries from `from` on, up to a page. */
  function* sizesFrom(run: RunRow, from: number): Generator<number> {
    let input = from === 0 ? messages.size(run.input_last) : 0;
    for (const { size } of findSizes.iterate(run.id, from)) {
      yield (size as number) + input;
      input = 0;
    }
  }

  function sizeInParts(runId: string): () => { readonly size: number } | undefined {
    let size = 0;
    let count = 0;
    return () => {
      const run = runOf(runId);
      if (!run) return { size };
      const before = count;
      for (const one of sizesFrom(run, before)) {
        size += one;
        count++;
      }
      return count < before + PAGE_ENTRIES ? { size } : undefined;
    };
  }

  function findInParts(runId: string, text: string): () => readonly number[] | undefined {
    const found: number[] = [];
    let from = 0;
    return () => {
      const run = runOf(runId);
      if (!run) return [];
      for (const { seq } of findEntries.iterate(run.id, from, from + FOUND_ENTRIES, text)) found.push(seq as number);
      from += FOUND_ENTRIES;
      return from >= run.entries ? found : undefined;
    };
  }

  function pageSize(runId: string, from: number): number {
    const run = runOf(runId);
    let size = 0;
    if (run) for (const one of sizesFrom(run, from)) if ((size += one) >= PAGE_CHARS) break;
    return size;
  }

  async function writeSnapshot(runId: string, { seq, state }: Snapshot): Promise<void> {
    const text = JSON.stringify(state);
    await write(() => {
      const run = runOf(runId);
      if (!run) throw unknownRun(runId);
      const covered = seq === run.entries ? run.last_chain : chainBefore(run.id, seq);
      upsertSnapshot.run(run.id, seq, text, crc32(text, covered));
    }, 'hidden');
  }

  function readSnapshot(runId: string): Snapshot | undefined {
    const row = findSnapshot.get(nameKey(runId)) as unknown as SnapshotRow | undefined;
    if (!row || crc32(row.state, chainBefore(row.id, row.seq)) !== row.sum) return undefined;
    return { seq: row.seq, state: parseJson(row.state) };
  }

  /** The `chain` of the first `seq` entries; 0 if the run has fewer. */
  function chainBefore(id: number, seq: number): number {
    const row = findChain.get(id, seq - 1) as { readonly chain: number } | undefined;
    return row?.chain ?? 0;
  }

  return {
    readInPages,
    readPageFrom,
    findInParts,
    sizeInParts,
    pageSize,
    writeSnapshot,
    readSnapshot,
  };
}

interface LargeInputs {
  /** Undefined if the input is not large, or part of the entry. */
  readonly largeStartOf: (run: RunRow) => LargeStart | undefined;
  readonly readMessages: (large: LargeStart, isWanted: boolean) => LargeStart;
}

function largeInputs({ messages, shared }: EntriesParts, firstOf: (id: number) => string): LargeInputs {
  function largeStartOf({ id, input_last: last, input_at: at }: RunRow): LargeStart | undefined {
    if (last === null || at === null || messages.size(last) < LARGE_INPUT) return undefined;
    const rest = shared.restore(firstOf(id));
    const first = parseJson(rest) as JournalEntry | undefined;
    // Otherwise the messages were taken out of an equal list, elsewhere in the entry.
    if (!first || inputOf(first).length > 0) return undefined;
    return { rest, ids: messages.path(last), input: [], count: 0, chars: 0, sum: crc32(rest.slice(0, at)) };
  }

  function readMessages(large: LargeStart, isWanted: boolean): LargeStart {
    const end = large.chars + PAGE_CHARS;
    for (; large.count < large.ids.length && large.chars < end; large.count++) {
      const text = messages.text(large.ids[large.count]!);
      if (large.count > 0) large.sum = crc32(',', large.sum);
      large.sum = crc32(text, large.sum);
      large.chars += text.length;
      if (isWanted) large.input.push(parseJson(text));
    }
    return large;
  }

  return { largeStartOf, readMessages };
}

/** The first entry, whose messages were read. */
function joinedStart({ rest, input }: LargeStart): JournalEntry | undefined {
  const first = parseJson(rest) as JournalEntry | undefined;
  // Copied in a loop: there may be more than a call takes arguments.
  if (first) for (const message of input) (inputOf(first) as unknown[]).push(message);
  return first;
}

/** Returns a function that reads a page, and throws if an entry of it is damaged. */
function pageReader(
  db: DatabaseSync,
  { messages, shared }: EntriesParts,
): (runId: string, request: PageRequest) => Page {
  // A function that is called for each row is three times as fast as an object for each row.
  let visit: ((seq: number, entry: string, chain: number) => void) | undefined;
  db.aggregate('visit_entry', {
    start: null,
    directOnly: true,
    step(_, seq, entry, chain) {
      visit!(seq as number, entry as string, chain as number);
      return null;
    },
  });
  const visitEntries = db.prepare(
    `SELECT visit_entry(seq, entry, chain) FROM
       (SELECT seq, entry, chain FROM entries WHERE run = ? AND seq >= ? ORDER BY seq LIMIT ?)`,
  );

  function readPage(runId: string, { large, run, appended, start, from }: PageRequest): Page {
    let { count, sum } = start;
    const entries: JournalEntry[] = [];
    // One more, to find an additional entry after the last one.
    const limit = Math.min(PAGE_ENTRIES, run.entries - count) + 1;
    let rows = 0;
    let chars = 0;
    let problem: string | undefined;
    visit = (seq, stored, chain) => {
      rows++;
      if (problem !== undefined) return;
      if (count >= run.entries) {
        if (seq >= appended) problem = 'is not in the count of entries';
        return;
      }
      if (chars >= PAGE_CHARS) return;
      let entry: JournalEntry | null | undefined;
      if (seq === 0 && large) {
        chars += large.chars;
        sum = crc32(large.rest.slice(run.input_at!), large.sum);
        entry = seq < from ? undefined : joinedStart(large);
      } else {
        const complete = shared.restore(stored);
        const text = seq === 0 ? messages.restore(complete, run) : complete;
        chars += text.length;
        sum = crc32(text, sum);
        entry = seq < from ? undefined : (parseJson(text) as JournalEntry | null | undefined);
      }
      if (seq !== count) problem = 'is missing';
      else if (sum !== chain || (seq >= from && entry?.seq !== seq)) problem = 'is damaged';
      else {
        count++;
        if (entry) entries.push(entry);
      }
    };
    try {
      visitEntries.get(run.id, count === 0 ? Number.MIN_SAFE_INTEGER : count, limit);
    } catch (error) {
      if (!isCorrupt(error)) throw error;
      // If the page was full, it is a later entry that cannot be read.
      if (problem === undefined && chars >= PAGE_CHARS) count = start.count + rows;
      problem ??= 'is damaged';
    } finally {
      visit = undefined;
    }
    if (count < run.entries && rows < limit && chars < PAGE_CHARS) problem ??= 'is missing';
    if (problem !== undefined) throw entryDamaged(runId, count, problem);
    if (count >= run.entries && sum !== run.last_chain) {
      throw entryDamaged(runId, count - 1, 'does not match the sum of the run');
    }
    return { entries, end: { count, sum } };
  }

  return readPage;
}

/** Functions that find the row of a run, and the text of its first entry as it is stored; empty if there is none. */
export function findRuns(db: DatabaseSync): {
  readonly runOf: (runId: string) => RunRow | undefined;
  readonly firstOf: (id: number) => string;
} {
  const findRun = db.prepare(
    'SELECT id, entries, status, parent, wake_at, last_chain, input_last, input_at FROM runs WHERE run = ?',
  );
  const findFirst = db.prepare('SELECT entry FROM entries WHERE run = ? AND seq = 0');
  return {
    runOf: (runId) => findRun.get(nameKey(runId)) as unknown as RunRow | undefined,
    firstOf: (id) => (findFirst.get(id)?.['entry'] ?? '') as string,
  };
}

/** Undefined if a page of the file is damaged. `readPage` finds which entry that is. */
function unlessCorrupt<T>(read: () => T): T | undefined {
  try {
    return read();
  } catch (error) {
    if (!isCorrupt(error)) throw error;
    return undefined;
  }
}

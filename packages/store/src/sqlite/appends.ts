import type { DatabaseSync } from 'node:sqlite';
import { crc32 } from 'node:zlib';
import {
  callerOf,
  checkRunNames,
  entryOutOfOrder,
  summaryOf,
  type Journal,
  type JournalEntry,
  type Lease,
  type RunStatus,
  type Stored,
  type TreadleError,
} from '@treadle/core';
import { ALL_RUNS, type Changes } from './changes.ts';
import { factColumns, inputOf, parseJson } from '../records/json.ts';
import { entryDamaged } from '../records/errors.ts';
import { findRuns, type RunRow } from './entries.ts';
import { isConstraint } from './failure.ts';
import { ACCEPT_MS, type GroupCommit } from './group-commit.ts';
import type { Leases } from './leases.ts';
import { encodeWithInput, type JsonWithInput } from '../records/input.ts';
import type { Messages } from './messages.ts';
import type { Notices } from './notices.ts';
import { RUN, type SharedTexts } from './shared-texts.ts';

/**
 * Appends entries, as `Entries` reads them, and updates the rows of their runs.
 *
 * For `ACCEPT_MS` after its lease was acquired, or an append of it has waited, the entries of a run are accepted, if that
 * suffices: nothing is returned, and they are written together within `ACCEPT_MS`. If that fails, the lease does too.
 */
export interface Appends {
  readonly acquire: (runId: string) => Promise<Lease>;
  readonly append: Journal['append'];
}

interface AppendsParts {
  readonly commit: GroupCommit;
  readonly leases: Leases;
  readonly messages: Messages;
  readonly shared: SharedTexts;
  readonly changes: Changes;
  readonly notices: Notices;
  /** A clock for short times, in milliseconds. */
  readonly monotonic: () => number;
}

/** Entries that are written together. */
interface Batch {
  readonly entries: JournalEntry[];
  readonly texts: string[];
  /** The first entry of a run, whose text is not needed if its input is stored elsewhere. */
  readonly first?: JsonWithInput | undefined;
  /** A number that grows with each call of `append`. */
  readonly order: number;
}

interface Writer {
  /**
   * When the driver last waited for a write, by the monotonic clock. That of accepted entries does not count: so a reply that
   * took longer than `ACCEPT_MS` is written before anything follows from it.
   */
  readonly waitedAt: number;
  /** Accepted entries that are not written yet, which others can join. */
  accepted?: { readonly add: (more: Batch) => void } | undefined;
}

export function openAppends(db: DatabaseSync, parts: AppendsParts): Appends {
  const { commit, leases, monotonic } = parts;
  const { write, sync } = commit;
  const { batchOf, writeBatch } = openBatches(db, parts);
  /** Leases that were acquired here, or that an append has waited with. */
  const writers = new WeakMap<Lease, Writer>();
  function append(runId: string, added: readonly JournalEntry[], lease?: Lease, until?: Stored): void | Promise<void> {
    const writer = lease && writers.get(lease);
    if (until === 'accepted' && writer && added.length > 0 && canAccept(lease, writer)) {
      return accept(runId, added, lease, writer);
    }
    // What is accepted later is written later.
    if (writer) writer.accepted = undefined;
    return appendAndWait(runId, added, lease, until);
  }

  /** If the entries could not be written, only the lease could tell. */
  function canAccept(lease: Lease, { waitedAt }: Writer): boolean {
    return monotonic() - waitedAt < ACCEPT_MS && commit.canAccept() && leases.isHeld(lease);
  }

  function accept(runId: string, added: readonly JournalEntry[], lease: Lease, writer: Writer): void {
    const batch = batchOf(runId, added);
    if (writer.accepted) return writer.accepted.add(batch);
    const grow = commit.accept(
      () => {
        writer.accepted = undefined;
        writeBatch(runId, batch, lease);
      },
      (error) => leases.fail(lease, error),
      lengthOf(batch),
    );
    writer.accepted = {
      add(more) {
        batch.entries.push(...more.entries);
        batch.texts.push(...more.texts);
        grow(lengthOf(more));
      },
    };
  }

  async function appendAndWait(
    runId: string,
    added: readonly JournalEntry[],
    lease?: Lease,
    until?: Stored,
  ): Promise<void> {
    if (added.length === 0) return sync();
    const batch = batchOf(runId, added);
    const work = (): void => {
      writeBatch(runId, batch, lease);
      if (lease) writers.set(lease, { waitedAt: monotonic() });
    };
    await write(work, until, lengthOf(batch));
  }

  async function acquire(runId: string): Promise<Lease> {
    const lease = await leases.acquire(runId);
    writers.set(lease, { waitedAt: monotonic() });
    return lease;
  }

  return { acquire, append };
}

interface Batches {
  readonly batchOf: (runId: string, added: readonly JournalEntry[]) => Batch;
  /** Inside a transaction. */
  readonly writeBatch: (runId: string, batch: Batch, lease?: Lease) => void;
}

/** What is written of entries. */
function openBatches(db: DatabaseSync, parts: AppendsParts): Batches {
  const { leases, messages, shared, changes, notices } = parts;
  const { checkWriter } = leases;
  const { runOf, firstOf } = findRuns(db);
  const insertRun = db.prepare(
    `INSERT INTO runs (run, status, started_at, updated_at, entries, model, title, tenant, parent, wake_at, last_chain,
       session, task, labels)
     VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
  );
  const updateRun = db.prepare('UPDATE runs SET updated_at = ?, entries = ?, last_chain = ? WHERE id = ?');
  const updateMessages = db.prepare('UPDATE runs SET input_last = ?, input_at = ? WHERE id = ?');
  const updateStatus = db.prepare('UPDATE runs SET status = ? WHERE id = ?');
  const updateWake = db.prepare('UPDATE runs SET wake_at = ? WHERE id = ?');
  const insertEntry = db.prepare('INSERT INTO entries (run, seq, entry, chain) VALUES (?, ?, ?, ?)');
  /** Entries of these drivers were not the next ones. Others that they appended before they were told may be by chance. */
  const misled = new WeakMap<Lease, { readonly error: TreadleError; readonly upTo: number }>();
  let appended = 0;

  /** Copies, because the caller may change the array before the entries are written. */
  function batchOf(runId: string, added: readonly JournalEntry[]): Batch {
    checkRunNames(runId, added[0]);
    const entries = [...added];
    const first = entries[0]!.seq === 0 ? encodeWithInput(entries[0], inputOf(entries[0])) : undefined;
    const texts = entries.map((entry, index) => (first && index === 0 ? '' : JSON.stringify(entry)));
    return { entries, texts, first, order: ++appended };
  }

  function writeBatch(runId: string, { entries, texts, first, order }: Batch, lease?: Lease): void {
    checkWriter(runId, lease);
    const problem = lease && misled.get(lease);
    if (problem && order <= problem.upTo) throw problem.error;
    const run = runOf(runId);
    const next = run?.entries ?? 0;
    const misplaced = entries.findIndex(({ seq }, index) => seq !== next + index);
    if (misplaced >= 0) {
      const error = entryOutOfOrder(runId, next, entries[misplaced]!.seq);
      if (lease) misled.set(lease, { error, upTo: appended });
      throw error;
    }
    const chains: number[] = [];
    for (const [index, text] of texts.entries()) {
      const before = chains.at(-1) ?? run?.last_chain ?? 0;
      chains.push(first && index === 0 ? first.crc(before) : crc32(text, before));
    }
    const id = run ? extendRun(run, entries.at(-1)!, chains.at(-1)!) : createRun(runId, entries, chains.at(-1)!);
    const split = first?.split;
    const last = split && messages.store(split);
    if (last !== undefined) updateMessages.run(last, split!.at, id);
    if (first) texts[0] = last === undefined ? first.whole() : split!.rest;
    const used: number[] = [];
    for (const [index, text] of texts.entries()) {
      const stored = shared.share(text, used);
      try {
        insertEntry.run(id, next + index, stored, chains[index]!);
      } catch (error) {
        // The row of the run has a lower count than there are entries.
        throw isConstraint(error) ? entryDamaged(runId, next + index, 'is not in the count of entries') : error;
      }
    }
    shared.use([RUN, id], used);
    addNotice(runId, run, entries);
    changes.changed(runId);
    changes.changed(ALL_RUNS);
  }

  /** Adds a notice if the run got another status, or the same one again after it was running. */
  function addNotice(runId: string, run: RunRow | undefined, added: readonly JournalEntry[]): void {
    const last = added.at(-1)!;
    const status = last.status ?? 'running';
    if (!notices.wanted.has(status)) return;
    if (run?.status === status && added.every((entry) => entry.status === status)) return;
    const isChild = run ? isChildRun(run) : callerOf(added[0]) !== undefined;
    if (!isChild) notices.add(runId, last);
  }

  function createRun(runId: string, added: readonly JournalEntry[], chain: number): number {
    const {
      status,
      startedAt,
      updatedAt,
      entries: count,
      model,
      title,
      tenant = null,
      parent = null,
      wakeAt = null,
      ...facts
    } = summaryOf(runId, added[0]!, added.at(-1)!);
    const values = [runId, status, startedAt, updatedAt, count, model, title, tenant, parent, wakeAt, chain];
    return Number(insertRun.run(...values, ...factColumns(facts)).lastInsertRowid);
  }

  function isChildRun({ id, parent }: RunRow): boolean {
    if (parent === null) return false;
    return callerOf(parseJson(shared.restore(firstOf(id))) as JournalEntry | undefined) !== undefined;
  }

  /** When to wake the run. Child runs are resumed with their parents. */
  function wakeTimeOf(run: RunRow, { wakeAt }: JournalEntry): number | null {
    return wakeAt === undefined || isChildRun(run) ? null : wakeAt;
  }

  function extendRun(run: RunRow, last: JournalEntry, chain: number): number {
    const { id, status: previous } = run;
    const status: RunStatus = last.status ?? 'running';
    updateRun.run(last.event.at, last.seq + 1, chain, id);
    // Three indexes contain the status. A run that stops again is noted for its metrics when it is set.
    if (status !== previous || status !== 'running') updateStatus.run(status, id);
    const wakeAt = wakeTimeOf(run, last);
    if (wakeAt !== run.wake_at) updateWake.run(wakeAt, id);
    return id;
  }

  return { batchOf, writeBatch };
}

function lengthOf({ texts, first }: Batch): number {
  return texts.reduce((sum, text) => sum + text.length, first?.length ?? 0);
}

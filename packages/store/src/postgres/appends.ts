import { crc32 } from 'node:zlib';
import {
  checkRunNames,
  type Journal,
  type JournalEntry,
  type Lease,
  type Stored,
  type TreadleError,
} from '@treadle/core';
import type { CommitListener } from '../ports/store.ts';
import { encodeWithInput } from '../records/input.ts';
import { inputOf } from '../records/json.ts';
import {
  areInOrder,
  batchOf,
  batchWriter,
  MAKE_DURABLE,
  type AppendJob,
  type AppendState,
  type BatchesParts,
  type EncodedEntry,
  type Writer,
} from './append-batches.ts';
import type { Database } from './connection.ts';
import { ACCEPT_MS, type Job, type Jobs, type Kind } from './run-queue.ts';
import { encodeJson, encodeJsonWithInput } from './texts.ts';

/**
 * Appends entries. Those of many runs are one statement (`append_entries`), and one commit.
 *
 * 1. The statement changes a head only if it has the token, the nonce and the number of entries that the caller expects. Others
 *    of the group are not affected by one that does not fit, or that the database refuses.
 * 2. If the connection is lost, the group is sent again. A head that is past the entries then has them: their sums tell.
 * 3. Entries that were `written` are lost if the database crashes while this process lives on. The head then has fewer entries
 *    than the driver has written with this lease. It gets `lease-lost`, and the run can be resumed.
 * 4. For `ACCEPT_MS` after its lease was acquired, or an append of it has waited, the entries of a run are accepted, if that
 *    suffices: nothing is returned, and they are written within `ACCEPT_MS`. If that fails, the lease does too.
 */
export interface Appends {
  readonly acquire: (runId: string) => Promise<Lease>;
  readonly append: Journal['append'];
  readonly kind: Kind;
  readonly onCommit: (listener: CommitListener) => void;
}

const MOST_ACCEPTED_CHARS = 100_000;

export function openAppends(db: Database, parts: BatchesParts): Appends {
  const { queue, leases } = parts;
  const state: AppendState = { writers: new WeakMap(), acceptedChars: 0, isDelayed: false, listener: undefined };
  const { writers } = state;
  const write = batchWriter(db, state, parts);

  function perform(groups: readonly Jobs[]): Promise<void> {
    const batches = groups.map(batchOf);
    for (const { jobs } of batches) for (const job of jobs) if (job.isAccepted) state.acceptedChars -= job.chars;
    return write(batches);
  }

  function append(
    runId: string,
    added: readonly JournalEntry[],
    lease?: Lease,
    until: Stored = 'durable',
  ): void | Promise<void> {
    const writer = lease && writers.get(lease);
    const isAccepted = until === 'accepted' && writer !== undefined && added.length > 0 && canAccept(lease!, writer);
    if (!isAccepted) return appendAndWait(runId, added, lease, until);
    const job = jobOf({ runId, added, lease, until, isAccepted }, (error) => leases.fail(lease!, error));
    state.acceptedChars += job.chars;
    queue().add(job);
  }

  /** If the entries could not be written, only the lease could tell. */
  function canAccept(lease: Lease, { waitedAt }: Writer): boolean {
    const isRecent = performance.now() - waitedAt < ACCEPT_MS;
    return isRecent && !state.isDelayed && state.acceptedChars < MOST_ACCEPTED_CHARS && leases.isHeld(lease);
  }

  async function appendAndWait(
    runId: string,
    added: readonly JournalEntry[],
    lease: Lease | undefined,
    until: Stored,
  ): Promise<void> {
    if (added.length === 0) {
      await queue().settled(runId);
      return void (await db.read((query) => query(MAKE_DURABLE, [])));
    }
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const job: AppendJob = { ...jobOf({ runId, added, lease, until, isAccepted: false }, reject), resolve };
    queue().add(job);
    await promise;
    const writer = lease && writers.get(lease);
    if (writer) writer.waitedAt = performance.now();
    else if (lease) writers.set(lease, { waitedAt: performance.now(), written: added.at(-1)!.seq + 1 });
  }

  interface Given {
    readonly runId: string;
    readonly added: readonly JournalEntry[];
    readonly lease: Lease | undefined;
    readonly until: Stored;
    readonly isAccepted: boolean;
  }

  /** Encodes at once, because the caller may change the array before the entries are written. */
  function jobOf({ runId, added, lease, until, isAccepted }: Given, reject: (error: TreadleError) => void): AppendJob {
    checkRunNames(runId, added[0]);
    const entries = [...added];
    const encoded = entries.map((entry) => encodeEntry(runId, entry));
    const chars = encoded.reduce((sum, { size }) => sum + size, 0);
    const job = { kind: 'append', runId, isAccepted, chars, entries, encoded, lease, until, since: performance.now() };
    return { ...job, resolve() {}, reject };
  }

  return {
    append,
    async acquire(runId) {
      const lease = await leases.acquire(runId);
      writers.set(lease, { waitedAt: performance.now(), written: 0 });
      return lease;
    },
    kind: { isJoined, perform },
    onCommit(told) {
      state.listener = told;
    },
  };
}

/** Entries of the same driver that follow each other are appended together. */
function isJoined(before: Job, job: Job): boolean {
  const [a, b] = [before as AppendJob, job as AppendJob];
  return a.lease === b.lease && b.entries[0]!.seq === a.entries.at(-1)!.seq + 1 && areInOrder(a) && areInOrder(b);
}

function encodeEntry(runId: string, entry: JournalEntry): EncodedEntry {
  const { seq } = entry;
  const before = sumBefore(runId, seq);
  if (seq !== 0) {
    const json = JSON.stringify(entry);
    return { ...encodeJson(json), seq, sum: crc32(json, before) };
  }
  const json = encodeWithInput(entry, inputOf(entry));
  return { ...encodeJsonWithInput(json), seq, sum: json.crc(before) };
}

/** Continued by the sum of an entry, so that it fits only there. */
export function sumBefore(runId: string, seq: number): number {
  return crc32(`${runId} ${seq}`);
}

import {
  callerOf,
  entryOutOfOrder,
  summaryOf,
  TreadleError,
  type JournalEntry,
  type Lease,
  type RunStatus,
  type Stored,
} from '@treadle/core';
import type { CommitListener } from '../ports/store.ts';
import { factColumns } from '../records/json.ts';
import { APPEND, JOB_COLUMNS, type JobRow } from './append-function.ts';
import { ALL_RUNS, type Changes } from './changes.ts';
import { bytes, bytesOrNull, type Database } from './connection.ts';
import { isAboutContent, isConflict, isDisconnected, storeError } from './failure.ts';
import { findHead } from './lease-rows.ts';
import type { Leases } from './leases.ts';
import { NOTICES } from './notices.ts';
import type { Job, RunQueue } from './run-queue.ts';
import { findKnownMessages, messagesOf, type EncodedJson } from './texts.ts';

export interface AppendJob extends Job, Omit<PromiseWithResolvers<void>, 'promise'> {
  readonly entries: readonly JournalEntry[];
  readonly encoded: readonly EncodedEntry[];
  readonly lease: Lease | undefined;
  readonly until: Stored;
  readonly since: number;
}

export interface EncodedEntry extends EncodedJson {
  readonly seq: number;
  readonly sum: number;
}

/** The jobs of one run, as one. */
export interface Batch {
  readonly runId: string;
  readonly jobs: readonly AppendJob[];
  readonly lease: Lease | undefined;
  readonly entries: readonly JournalEntry[];
  readonly encoded: readonly EncodedEntry[];
}

export interface Writer {
  waitedAt: number;
  /** How many entries the run has, as far as was written with this lease. */
  written: number;
}

/** What appends know beyond a batch. */
export interface AppendState {
  readonly writers: WeakMap<Lease, Writer>;
  /** How much was accepted and is not written. */
  acceptedChars: number;
  /** The database does not answer, so nothing is accepted. */
  isDelayed: boolean;
  listener: CommitListener | undefined;
}

export interface BatchesParts {
  readonly queue: () => RunQueue;
  readonly leases: Leases;
  readonly changes: Changes;
  /** A notice is added for these statuses. */
  readonly noticed: ReadonlySet<RunStatus>;
  readonly retryMs: number;
}

const MOST_CONFLICTS = 20;

/** Waits until all that can be seen is durable. */
export const MAKE_DURABLE = 'SELECT treadle.make_durable()';

/** Returns a function that appends batches of different runs and settles their jobs: rules 1 to 3 of `Appends`. */
export function batchWriter(
  db: Database,
  state: AppendState,
  { queue, leases, changes, noticed, retryMs }: BatchesParts,
): (batches: readonly Batch[]) => Promise<void> {
  const { writers } = state;
  const rowOf = (batch: Batch): JobRow => jobRow(batch, { leases, noticed });

  async function perform(batches: readonly Batch[]): Promise<void> {
    try {
      await performBatches(batches);
    } catch (error) {
      // A defect must not leave anybody waiting.
      for (const batch of batches) reject(batch, storeError(error, db.location));
    }
  }

  async function performBatches(batches: readonly Batch[]): Promise<void> {
    // Entries with a gap between them fit no head.
    const [ordered, others] = [batches.filter(areInOrder), batches.filter((batch) => !areInOrder(batch))];
    await Promise.all(others.map((batch) => settle(batch, false)));
    if (ordered.length > 0) await performOrdered(ordered, false);
  }

  /** `wasRepeated`: some of them may have been written, because the connection was lost. */
  async function performOrdered(batches: readonly Batch[], wasRepeated: boolean): Promise<void> {
    let open = batches;
    let isRepeated = wasRepeated;
    let sendsAll = false;
    let conflicts = 0;
    const until = performance.now() + retryMs;
    for (let pause = 10; ; pause = Math.min(2 * pause, 500)) {
      try {
        const done = await send(db, open, { sendsAll, rowOf });
        state.isDelayed = false;
        const written = open.filter((_, index) => done.has(index));
        for (const batch of written) resolve(batch);
        if (written.length > 0) report(written);
        const isAgain = isRepeated;
        open = (
          await Promise.all(open.filter((_, index) => !done.has(index)).map((batch) => settle(batch, isAgain)))
        ).flat();
        if (open.length === 0) return;
      } catch (error) {
        const again = isDisconnected(error)
          ? performance.now() + pause < until
          : isConflict(error) && ++conflicts < MOST_CONFLICTS;
        if (!again && isAboutContent(error)) return performParts(open, isRepeated, error);
        if (!again) return open.forEach((batch) => reject(batch, storeError(error, db.location)));
        state.isDelayed = isDisconnected(error);
        isRepeated ||= state.isDelayed;
        // A message that was known is gone.
        sendsAll ||= isConflict(error);
        await new Promise((resolve) => setTimeout(resolve, pause * Math.random()));
      }
    }
  }

  /** The database refuses something of these batches: performs halves of them, and so on, until it refuses a single job. */
  async function performParts(batches: readonly Batch[], isRepeated: boolean, error: unknown): Promise<void> {
    const [first] = batches as readonly [Batch];
    if (batches.length > 1) {
      const middle = Math.ceil(batches.length / 2);
      const halves = [batches.slice(0, middle), batches.slice(middle)];
      await Promise.all(halves.map((half) => performOrdered(half, isRepeated)));
    } else if (first.jobs.length > 1) {
      for (const job of first.jobs) await performOrdered([batchOf([job])], isRepeated);
    } else reject(first, storeError(error, db.location));
  }

  function report(batches: readonly Batch[]): void {
    const jobs = batches.flatMap((batch) => batch.jobs);
    state.listener?.(performance.now() - Math.min(...jobs.map(({ since }) => since)), jobs.length);
    const hasNotices = batches.some(({ entries }) => noticed.has(entries.at(-1)!.status ?? 'running'));
    changes.changed(...batches.map(({ runId }) => runId), ALL_RUNS, ...(hasNotices ? [NOTICES] : []));
  }

  /** Settles a batch that did not fit the head of its run. Resolves to those that have to be sent again. */
  async function settle(batch: Batch, isRepeated: boolean): Promise<readonly Batch[]> {
    const { runId, jobs, lease, entries, encoded } = batch;
    try {
      const next = entries[0]!.seq;
      const { row, sums } = await db.read(async (query) => {
        const row = await findHead(query, runId);
        const found = await query<{ readonly sum: number }>(
          'SELECT sum FROM treadle.entries WHERE run = $1 AND seq >= $2 AND seq < $3 ORDER BY seq',
          [row?.id ?? -1, next, next + entries.length],
        );
        return { row, sums: found.rows.map(({ sum }) => sum) };
      });
      // It was written before the connection was lost.
      if (isRepeated && sums.length === entries.length && encoded.every(({ sum }, index) => sum === sums[index])) {
        // The commit was ended while it waited for a standby, and can be seen nevertheless.
        if (jobs.some(({ until }) => until === 'durable')) await db.read((query) => query(MAKE_DURABLE, []));
        resolve(batch);
        report([batch]);
        return [];
      }
      const problem = await leases.problem(runId, row, lease);
      if (problem) return reject(batch, problem);
      const stored = row?.entries ?? 0;
      const misplaced = entries.findIndex(({ seq }, index) => seq !== stored + index);
      // A lease without a driver was ended, or another driver has released its own. A head is created again.
      if (misplaced < 0) return [batch];
      const writer = lease && writers.get(lease);
      if (writer && stored < writer.written && next >= writer.written)
        return reject(batch, entriesLost(runId, stored, next));
      if (!lease && jobs.length > 1) return jobs.map((job) => batchOf([job]));
      return reject(batch, entryOutOfOrder(runId, stored, entries[misplaced]!.seq));
    } catch (error) {
      return reject(batch, storeError(error, db.location));
    }
  }

  function resolve({ jobs, lease, entries }: Batch): void {
    const writer = lease && writers.get(lease);
    if (writer) writer.written = entries.at(-1)!.seq + 1;
    for (const job of jobs) job.resolve();
  }

  /** Jobs of the same driver that were added before it was told fail as well: they may fit by chance. */
  function reject({ runId, jobs, lease }: Batch, error: TreadleError): readonly Batch[] {
    for (const job of jobs) job.reject(error);
    if (!lease) return [];
    const later = queue().take(
      runId,
      (job) => job.kind === 'append' && (job as AppendJob).lease === lease,
    ) as AppendJob[];
    for (const job of later) {
      if (job.isAccepted) state.acceptedChars -= job.chars;
      job.reject(error);
    }
    return [];
  }

  return perform;
}

/** Resolves to the indexes of the batches that were appended. */
async function send(
  db: Database,
  batches: readonly Batch[],
  { sendsAll, rowOf }: { readonly sendsAll: boolean; readonly rowOf: (batch: Batch) => JobRow },
): Promise<ReadonlySet<number>> {
  const inputs = sendsAll ? [] : batches.flatMap(({ encoded }) => encoded[0]?.input ?? []);
  const isKnown = inputs.length === 0 ? () => false : await db.read((query) => findKnownMessages(query, inputs));
  const columns = columnsOf(batches, isKnown);
  const isDurable = batches.some(({ jobs }) => jobs.some(({ until }) => until === 'durable'));
  const jobs = batches.map(rowOf);
  const starts = batches.flatMap((batch, i) => (batch.entries[0]!.seq === 0 ? startOf(batch, i) : []));
  const { rows } = await db.once<{ readonly done: readonly number[] }>(APPEND, [
    isDurable,
    ...JOB_COLUMNS.map((name) => jobs.map((job) => job[name])),
    starts.length > 0 ? JSON.stringify(starts) : null,
    ...columns,
  ]);
  return new Set(rows[0]!.done);
}

function jobRow(
  { runId, lease, entries }: Batch,
  { leases, noticed }: Pick<BatchesParts, 'leases' | 'noticed'>,
): JobRow {
  const [first, last] = [entries[0]!, entries.at(-1)!];
  const key = leases.keyOf(lease);
  const status: RunStatus = last.status ?? 'running';
  const isOpen = status === 'running' || status === 'paused';
  return {
    run: bytes(runId),
    next: first.seq,
    count: entries.length,
    token: key?.token ?? null,
    nonce: key?.nonce ?? null,
    // `NaN` and `Infinity` do not survive JSON. Null is refused.
    updated: entries.every(({ event }) => Number.isFinite(event.at)) ? last.event.at : null,
    status,
    ended: isOpen ? null : last.event.at,
    wake: last.wakeAt ?? null,
    notice: noticed.has(status),
    same: entries.every((entry) => entry.status === last.status),
    child: callerOf(first) !== undefined,
  };
}

export function areInOrder({ entries }: Pick<Batch, 'entries'>): boolean {
  return entries.every(({ seq }, index) => seq === entries[0]!.seq + index);
}

export function batchOf(given: readonly Job[]): Batch {
  const jobs = given as readonly AppendJob[];
  const { runId, lease } = jobs[0]!;
  return {
    runId,
    jobs,
    lease,
    entries: jobs.flatMap(({ entries }) => entries),
    encoded: jobs.flatMap(({ encoded }) => encoded),
  };
}

function columnsOf(batches: readonly Batch[], isKnown: (digest: Buffer) => boolean): readonly unknown[] {
  const entries: unknown[][] = [[], [], [], [], []];
  const texts: unknown[][] = [[], [], [], []];
  const messages: unknown[][] = [[], [], [], [], []];
  for (const [job, { encoded }] of batches.entries()) {
    for (const one of encoded) {
      addRow(entries, [job, one.seq, one.stored, one.sum, one.size]);
      const input = one.input && messagesOf(one.input, isKnown);
      for (const message of input?.messages ?? []) {
        addRow(messages, [job, message.digest, message.previous, message.depth, message.text]);
      }
      for (const { digest, content, message } of [...one.texts, ...(input?.texts ?? [])]) {
        addRow(texts, [job, digest, content, message]);
      }
    }
  }
  return [...entries, ...texts, ...messages];
}

function addRow(columns: readonly unknown[][], row: readonly unknown[]): void {
  for (const [index, value] of row.entries()) columns[index]!.push(value);
}

/** What the list of runs has of a run that starts. */
function startOf({ runId, entries, encoded }: Batch, i: number): object {
  const summary = summaryOf(runId, entries[0]!, entries.at(-1)!);
  const [session, task, labels] = factColumns(summary);
  const { input } = encoded[0]!;
  return {
    i,
    started_at: summary.startedAt,
    model: hex(summary.model.toWellFormed()),
    title: hex(summary.title.toWellFormed()),
    folded_title: hex(foldCase(summary.title.toWellFormed())),
    tenant: hex(summary.tenant),
    parent: hex(summary.parent),
    wake_at: summary.wakeAt ?? null,
    session: hex(session),
    task: hex(task),
    labels,
    label_pairs: labelPairs(summary.labels ?? {}).map((pair) => pair.toString('hex')),
    input_last: input?.last.toString('hex') ?? null,
    input_at: input?.at ?? null,
  };
}

function hex(name: string | null | undefined): string | null {
  return bytesOrNull(name)?.toString('hex') ?? null;
}

/** Upper and lower case of ASCII letters are the same in a search. */
export function foldCase(title: string): string {
  return title.replace(/[A-Z]+/g, (letters) => letters.toLowerCase());
}

/** UTF-8 does not contain the byte between name and value. */
export function labelPairs(labels: Readonly<Record<string, string>>): readonly Buffer[] {
  return Object.entries(labels).map(([name, value]) =>
    Buffer.concat([Buffer.from(name), Buffer.of(0xff), Buffer.from(value)]),
  );
}

function entriesLost(runId: string, stored: number, next: number): TreadleError {
  return new TreadleError(
    'lease-lost',
    `The database has lost the entries ${stored} to ${next - 1} of run "${runId}", because it crashed before they were durable. Nothing was written. Resume the run: it goes on after entry ${stored - 1}.`,
  );
}

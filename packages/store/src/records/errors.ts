import { TreadleError } from '@treadle/core';

export function unknownRun(runId: string): TreadleError {
  return new TreadleError(
    'unknown-run',
    `Run "${runId}" does not exist, so nothing can be stored for it. Start the run first.`,
  );
}

export function entryDamaged(runId: string, seq: number, problem: string): TreadleError {
  return new TreadleError(
    'journal-damaged',
    `Entry ${seq} of run "${runId}" ${problem}, so the run cannot be read. Restore the store from a backup, or delete the run; other runs are not affected.`,
  );
}

/** The process, or the thread of it, that has the lease of a run. */
export interface Driver {
  readonly host: string;
  readonly pid: number;
  /** Null: its main thread, or it is not known. */
  readonly thread: string | null;
  readonly since: number;
}

/** `msUntilFree`: Infinity if its process lives. */
export function runDriven(runId: string, row: Driver, msUntilFree: number): TreadleError {
  const remedy =
    msUntilFree === Infinity
      ? `Wait until it is done, or end that ${row.thread === null ? 'process' : 'thread or its process'}, and retry.`
      : `Wait until it is done. If it has died, this process can take over in ${Math.ceil(msUntilFree / 1000)} s: retry then.`;
  return new TreadleError(
    'run-driven',
    `Run "${runId}" is driven by ${driverText(row)} since ${new Date(row.since).toISOString()}. ${remedy}`,
  );
}

function driverText({ host, pid, thread }: Driver): string {
  return `process ${pid}${thread === null ? '' : ` (thread ${thread.split(' ')[0]})`} on host ${host}`;
}

export function leaseLost(runId: string, row: Driver | undefined): TreadleError {
  const reason = row ? `The run is now driven by ${driverText(row)}.` : 'It was released, or the run was deleted.';
  return new TreadleError('lease-lost', `The lease of run "${runId}" is lost, so nothing was written. ${reason}`);
}

export function storeClosed(runId: string): TreadleError {
  return new TreadleError(
    'lease-lost',
    `The store was closed while run "${runId}" was driven. Wait until the run is done, or detach it, before closing.`,
  );
}

/** A store that `migrateStore` has not completed. */
export function storeIncomplete(location: string): TreadleError {
  return new TreadleError(
    'store-locked',
    `The store ${location} is not complete: "treadle store migrate" is filling it, or was stopped. Run it again with the same stores.`,
  );
}

import type { RunSummary } from '@treadle/core';
import { ApiError } from '../../api-error.ts';
import type { ServerStore } from '../../engine/engine.ts';
import type { EventSource } from '../../requests/event-log.ts';

/*
 * The runs of a tenant as they change, for clients that show a list of them.
 *
 * 1. The store tells that some run has changed, also one of another process, but not which. So the runs of a tenant that can
 *    change are looked at: once for all clients of the tenant, and only while there are some.
 * 2. Only the last change of each run is kept. A client that reads slowly gets fewer changes, and no list of old ones grows.
 * 3. Changes are not stored. A client that opens the stream again reads its list again.
 */

export type RunChange =
  /** What happens after the client has received this is reported. */
  | { readonly type: 'ready'; readonly seq: number }
  | { readonly type: 'changed'; readonly seq: number; readonly run: RunSummary }
  | { readonly type: 'deleted'; readonly seq: number; readonly runId: string };

/** The changes of a tenant's runs from now on. A reader begins after -1. */
export type RunChanges = (tenant: string) => EventSource<RunChange>;

/** The most runs that are looked at: the newest, and of those that have not ended. An older run that has ended does not change. */
const NEWEST = 100;
const MOST_OPEN = 500;
/** How many changed runs are kept for clients that have not read them. */
const MOST_KEPT = 1_000;
/** The least time between two looks. The first change after a pause is reported at once. */
const LOOK_MS = 200;

export function runChanges(store: Pick<ServerStore, 'list' | 'watchRuns'>): RunChanges {
  const tenants = new Map<string, EventSource<RunChange>>();

  function changesOf(tenant: string): EventSource<RunChange> {
    const listeners = new Set<() => void>();
    const changes = new Map<string, RunChange>();
    let known: ReadonlyMap<string, RunSummary> | undefined;
    let last = 0;
    /** The last change that is not kept any more. */
    let lost = 0;
    let isStale = true;
    let looking: Promise<void> | undefined;
    let timer: NodeJS.Timeout | undefined;
    let lookedAt = -Infinity;
    let stopWatching = (): void => {};

    function add(runId: string, run: RunSummary | undefined): void {
      last += 1;
      changes.delete(runId);
      changes.set(runId, run ? { type: 'changed', seq: last, run } : { type: 'deleted', seq: last, runId });
      const [oldest] = changes;
      if (changes.size <= MOST_KEPT) return;
      changes.delete(oldest![0]);
      lost = oldest![1].seq;
    }

    async function look(): Promise<void> {
      lookedAt = performance.now();
      isStale = false;
      try {
        await compare();
      } catch (error) {
        isStale = true;
        throw error;
      }
    }

    async function compare(): Promise<void> {
      const newest = await store.list({ tenant, limit: NEWEST });
      const open = await store.list({ tenant, status: ['running', 'paused'], limit: MOST_OPEN });
      const found = new Map([...open, ...newest].map((run) => [run.runId, run]));
      const oldest = newest.length < NEWEST ? -Infinity : newest.at(-1)!.startedAt;
      // The first look is what later ones are compared with.
      const before = known ?? found;
      for (const [runId, run] of found) if (!isEqual(before.get(runId), run)) add(runId, run);
      for (const [runId, { status, startedAt }] of before) {
        const isExpected = status === 'running' || status === 'paused' || startedAt > oldest;
        if (found.has(runId) || !isExpected) continue;
        const [run] = await store.list({ runId, tenant, limit: 1 });
        add(runId, run);
      }
      known = found;
    }

    async function read(after: number): Promise<readonly RunChange[]> {
      while (isStale || looking) await (looking ??= look().finally(() => (looking = undefined)));
      if (after < 0) return [{ type: 'ready', seq: last }];
      if (after < lost) throw TOO_SLOW;
      return [...changes.values()].filter(({ seq }) => seq > after);
    }

    function onChange(): void {
      timer ??= setTimeout(
        () => {
          timer = undefined;
          isStale = true;
          for (const listener of listeners) listener();
        },
        Math.max(0, lookedAt + LOOK_MS - performance.now()),
      ).unref();
    }

    function watch(listener: () => void): () => void {
      if (listeners.size === 0) stopWatching = store.watchRuns(onChange);
      listeners.add(listener);
      return () => {
        listeners.delete(listener);
        if (listeners.size > 0) return;
        stopWatching();
        clearTimeout(timer);
        if (tenants.get(tenant) === source) tenants.delete(tenant);
      };
    }

    const source = { read, isLive: () => true, watch };
    return source;
  }

  return (tenant) => {
    const source = tenants.get(tenant) ?? changesOf(tenant);
    tenants.set(tenant, source);
    return source;
  };
}

/** A run changes with its entries. */
function isEqual(one: RunSummary | undefined, other: RunSummary): boolean {
  return (
    one?.entries === other.entries && one.status === other.status && one.recovered?.times === other.recovered?.times
  );
}

const TOO_SLOW = new ApiError(503, 'server_error', 'Changes were not read in time. Open the stream again.', {
  code: 'changes_lost',
});

import { messageOf, type HeldProcess, type KeptResource, type KeptResources } from '@treadle/core';
import type { KeptProcessStore } from './ports/kept-processes.ts';
import { killProcess } from './processes.ts';

/*
 * Keeps resources of tools, such as shells and jobs, between the runs of a conversation.
 *
 * 1. What a run has left is given to the first run that continues it, in this process. It is found by the run that has left it,
 *    so a run that continues an earlier point of the conversation does not get what a later run has. What a run has left that
 *    has only paused is given back to it when it is resumed, and to no other run.
 * 2. What nobody takes is closed after `idleMs`, or as soon as it is not busy any more, but no later than `busyMs`. If there is
 *    too much, the oldest is closed first.
 * 3. The store has the processes before the run that has left them ends for its client, until they are closed or the run that has
 *    taken them has ended: until then its own journal has them too. If this process dies, the next one with the store kills them
 *    when it starts, or before it continues the run.
 */
export interface ResourceKeeper {
  /** What a run that continues `previous` gets, and leaves. Undefined: it continues none. */
  after(previous: string | undefined): KeptResources;
  /** Kills what processes have left that have died. `runId`: only what this run has left. Resolves to the number of runs. */
  killAbandoned(runId?: string): Promise<number>;
  /** Closes what a run has left: it was deleted. */
  drop(runId: string): Promise<void>;
  /** Closes everything, also what runs leave from now on. */
  close(): Promise<void>;
}

export interface KeeperOptions {
  /** Absent: the processes are not recorded. */
  readonly store?: KeptProcessStore | undefined;
  /** Default 5 minutes. */
  readonly idleMs?: number;
  /** How long a resource that is busy is kept at most; default one hour. */
  readonly busyMs?: number;
  /** How many runs may leave something; default 100. */
  readonly most?: number;
  /** Something could not be closed, killed or recorded. */
  readonly onProblem?: (runId: string, problem: string) => void;
}

const MINUTE = 60_000;
/** The time in which a resource has to be closed. */
const CLOSE_MS = 10_000;

interface Left {
  /** The run has paused, and gets them back when it is resumed. */
  readonly isPaused: boolean;
  readonly resources: Set<KeptResource>;
  /** When it was left, by `performance.now()`. */
  readonly at: number;
  timer: NodeJS.Timeout | undefined;
}

export function resourceKeeper(options: KeeperOptions = {}): ResourceKeeper {
  const { store, idleMs = 5 * MINUTE, busyMs = 60 * MINUTE, most = 100, onProblem } = options;
  /** By the run that has left them, oldest first. */
  const kept = new Map<string, Left>();
  const closing = new Set<Promise<void>>();
  let isClosed = false;

  async function attempt(runId: string, act: () => unknown): Promise<void> {
    try {
      await act();
    } catch (error) {
      onProblem?.(runId, messageOf(error));
    }
  }

  async function closeOne(runId: string, { name, value, close }: KeptResource): Promise<void> {
    const limit = Promise.withResolvers<void>();
    const timer = setTimeout(() => limit.reject(new Error(`"${name}" was not closed within ${CLOSE_MS} ms`)), CLOSE_MS);
    await attempt(runId, () => Promise.race([close(value), limit.promise]));
    clearTimeout(timer);
  }

  /** Closes some, and records those that stay. */
  function closeSome(runId: string, left: Left, some: readonly KeptResource[]): Promise<void> {
    for (const one of some) left.resources.delete(one);
    if (left.resources.size === 0) forget(runId, left);
    const work = (async () => {
      await Promise.all(some.map((one) => closeOne(runId, one)));
      if (some.some(({ process }) => process)) await attempt(runId, () => store?.keep(runId, processesOf(left), runId));
    })().finally(() => closing.delete(work));
    closing.add(work);
    return work;
  }

  function forget(runId: string, left: Left): void {
    clearTimeout(left.timer);
    kept.delete(runId);
  }

  function closeIdleLater(runId: string, left: Left): void {
    left.timer = setTimeout(() => {
      const isOver = performance.now() - left.at >= busyMs;
      const idle = [...left.resources].filter(({ isBusy, value }) => isOver || !isBusy?.(value));
      if (idle.length > 0) void closeSome(runId, left, idle);
      if (left.resources.size > 0) closeIdleLater(runId, left);
    }, idleMs).unref();
  }

  async function keep(
    runId: string,
    resources: readonly KeptResource[],
    { taken, isPaused }: { readonly taken: string | undefined; readonly isPaused: boolean },
  ): Promise<void> {
    const left: Left = { isPaused, resources: new Set(resources), at: performance.now(), timer: undefined };
    // The run had ended before, and was resumed.
    await drop(runId);
    // The conversation goes on without it if that fails: the process would survive a crash of this one.
    await attempt(runId, () => store?.keep(runId, processesOf(left), taken));
    if (resources.length === 0) return;
    if (isClosed) return closeSome(runId, left, resources);
    kept.set(runId, left);
    closeIdleLater(runId, left);
    const [oldest] = kept;
    if (kept.size > most && oldest) void closeSome(oldest[0], oldest[1], [...oldest[1].resources]);
  }

  async function drop(runId: string): Promise<void> {
    const left = kept.get(runId);
    if (left) await closeSome(runId, left, [...left.resources]);
  }

  return {
    drop,
    after(previous) {
      let taken: string | undefined;
      return {
        take() {
          const left = previous === undefined ? undefined : kept.get(previous);
          if (!left || left.isPaused) return [];
          taken = previous;
          forget(previous!, left);
          return [...left.resources];
        },
        keep: (runId, resources, isPaused = false) => keep(runId, resources, { taken, isPaused }),
        takeBack(runId, isOpen) {
          const left = kept.get(runId);
          if (!left?.isPaused) return [];
          const gone = Array.from(left.resources).filter((one) => !isOpen(one));
          if (gone.length > 0) void closeSome(runId, left, gone);
          if (left.resources.size === 0) return [];
          taken = runId;
          forget(runId, left);
          return [...left.resources];
        },
      };
    },
    async killAbandoned(given) {
      const found = (await store?.abandoned(given)) ?? [];
      for (const { runId, processes } of found) {
        await attempt(runId, async () => {
          const results = await Promise.all(processes.map(killProcess));
          if (results.includes(false))
            onProblem?.(runId, 'it is not known whether all processes that it left have ended');
          await store?.remove(runId);
        });
      }
      return found.length;
    },
    async close() {
      isClosed = true;
      for (const [runId, left] of kept) void closeSome(runId, left, [...left.resources]);
      await Promise.all(closing);
    },
  };
}

function processesOf({ resources }: Left): readonly HeldProcess[] {
  return Array.from(resources).flatMap(({ process }) => process ?? []);
}

import type { DatabaseSync } from 'node:sqlite';
import { nameKey } from '../records/json.ts';
import { othersCommits } from './database.ts';

/** Tells readers of a run or a stream that something may have been appended to it. */
export interface Changes {
  /** Inside a transaction: calls the listeners of a run or stream when the transaction has ended. */
  readonly changed: (name: string) => void;
  readonly watch: (name: string, listener: () => void) => () => void;
  readonly close: () => void;
}

/** The name for listeners of all runs. No run or stream has it. */
export const ALL_RUNS = '\0runs';

/** How often to look for commits of other processes while somebody listens. */
const POLL_MS = 100;

/** So many listeners are called in one turn of the event loop: each of them reads the store. */
const LISTENERS_PER_TURN = 50;

interface Watched {
  readonly listeners: Set<() => void>;
  /** Its last number when the commits of others were looked at. Undefined: unknown, or it does not exist. */
  last?: unknown;
}

/**
 * SQLite does not tell one process about the commits of another. It has a counter of them, which does not say what was written.
 * So when it has changed, the last number of everything that is watched is read.
 */
export function openChanges(db: DatabaseSync): Changes {
  const watched = new Map<string, Watched>();
  const readVersion = othersCommits(db);
  const findLast = db.prepare(
    'SELECT entries AS last FROM runs WHERE run = ?1 UNION ALL SELECT last FROM streams WHERE stream = ?1',
  );
  let version: unknown;
  let timer: NodeJS.Timeout | undefined;

  function readLast(name: string): unknown {
    try {
      return findLast.get(nameKey(name))?.['last'];
    } catch {
      return undefined;
    }
  }

  function poll(): void {
    const current = readVersion();
    // If it is not known, a listener that is called without cause finds nothing.
    if (current === version && current !== undefined) return;
    version = current;
    for (const [name, one] of watched) {
      const last = readLast(name);
      if (last !== undefined && last === one.last) continue;
      one.last = last;
      notify(one.listeners);
    }
  }

  function stop(): void {
    clearInterval(timer);
    timer = undefined;
  }

  return {
    changed(name) {
      const one = watched.get(name);
      // The transaction is synchronous, so it has ended then.
      if (one) queueMicrotask(() => notify(one.listeners));
    },
    watch(name, given) {
      // A function of its own, so that the same listener can be added twice.
      const listener = (): void => given();
      const one = watched.get(name) ?? { listeners: new Set() };
      watched.set(name, one);
      one.listeners.add(listener);
      if (!timer) {
        version = readVersion();
        timer = setInterval(poll, POLL_MS).unref();
      }
      return () => {
        one.listeners.delete(listener);
        if (one.listeners.size === 0 && watched.get(name) === one) watched.delete(name);
        if (watched.size === 0) stop();
      };
    },
    close() {
      stop();
      for (const { listeners } of watched.values()) listeners.clear();
      watched.clear();
    },
  };
}

/** Calls those that still listen: the first at once, and others in later turns, so that many do not block the event loop. */
function notify(listeners: Set<() => void>, called: readonly (() => void)[] = [...listeners]): void {
  for (const listener of called.slice(0, LISTENERS_PER_TURN)) if (listeners.has(listener)) listener();
  if (called.length > LISTENERS_PER_TURN) setImmediate(notify, listeners, called.slice(LISTENERS_PER_TURN));
}

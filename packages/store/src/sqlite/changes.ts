import type { DatabaseSync } from 'node:sqlite';

/** Tells readers of a run or a stream that something may have been appended to it. */
export interface Changes {
  /** Inside a transaction: calls the listeners of a run or stream when the transaction has ended. */
  readonly changed: (name: string) => void;
  readonly watch: (name: string, listener: () => void) => () => void;
  readonly close: () => void;
}

/** How often to look for commits of other processes while somebody listens. */
const POLL_MS = 100;

/**
 * SQLite does not tell one process about the commits of another. It has a counter of them, and reading it takes a few
 * microseconds. When it has changed, all listeners are called, because it does not say what was written.
 */
export function openChanges(db: DatabaseSync): Changes {
  const listeners = new Map<string, Set<() => void>>();
  const findVersion = db.prepare('PRAGMA data_version');
  let version: unknown;
  let timer: NodeJS.Timeout | undefined;

  function readVersion(): unknown {
    try {
      return findVersion.get()!['data_version'];
    } catch {
      // Locked for a moment. A listener that is called without cause finds nothing.
      return undefined;
    }
  }

  function poll(): void {
    const current = readVersion();
    if (current === version && current !== undefined) return;
    version = current;
    for (const some of listeners.values()) for (const listener of some) listener();
  }

  function stop(): void {
    clearInterval(timer);
    timer = undefined;
  }

  return {
    changed(name) {
      const some = listeners.get(name);
      if (!some) return;
      // The transaction is synchronous, so it has ended then.
      queueMicrotask(() => {
        for (const listener of some) listener();
      });
    },
    watch(name, given) {
      // A function of its own, so that the same listener can be added twice.
      const listener = (): void => given();
      const some = listeners.get(name) ?? new Set();
      listeners.set(name, some.add(listener));
      if (!timer) {
        version = readVersion();
        timer = setInterval(poll, POLL_MS).unref();
      }
      return () => {
        some.delete(listener);
        if (some.size === 0 && listeners.get(name) === some) listeners.delete(name);
        if (listeners.size === 0) stop();
      };
    },
    close() {
      stop();
      listeners.clear();
    },
  };
}

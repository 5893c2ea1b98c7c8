import type { WireRun } from '@treadle/server/wire';
import { followEvents } from '../api/client.ts';
import { openChanges } from './api.ts';

/*
 * What the page shows of runs is read again when a run has changed. All parts of the page share one stream of changes, because a
 * browser allows only a few connections to a server. It is closed while nobody sees the page.
 */

/** Undefined: any run may have changed. */
type Listener = (run: WireRun | undefined) => void;

const listeners = new Set<Listener>();
let connection: AbortController | undefined;

function tell(run: WireRun | undefined): void {
  for (const listener of listeners) listener(run);
}

function connect(): void {
  const isWanted = listeners.size > 0 && document.visibilityState === 'visible';
  if (isWanted === (connection !== undefined)) return;
  connection?.abort();
  connection = isWanted ? new AbortController() : undefined;
  if (!connection) return;
  const { signal } = connection;
  followEvents({
    open: () => openChanges(signal),
    signal,
    onEvent({ event, data }) {
      if (event === 'run.changed') tell(JSON.parse(data) as WireRun);
      else if (event === 'ready' || event === 'run.deleted') tell(undefined);
      return false;
    },
    // What is read is refused in the same way, and shows why.
  }).catch(() => {});
}

document.addEventListener('visibilitychange', connect);

function onRunsChanged(listener: Listener): () => void {
  listeners.add(listener);
  connect();
  return () => {
    listeners.delete(listener);
    // Another view may follow.
    setTimeout(connect);
  };
}

export interface LookOptions {
  /** The least time between the beginnings of two looks. The first one after a pause is at once. */
  readonly gapMs: number;
  /** Whether to look because this run has changed; default always. */
  readonly concerns?: (run: WireRun) => boolean;
}

export interface Looking {
  /** Looks again, soon. */
  again(): void;
  stop(): void;
}

/** How long to wait after a look that failed. */
const RETRY_MS = 2_000;

/** Calls `look` now, and whenever runs have changed; never twice at the same time. */
export function keepLooking(
  look: (aborted: AbortSignal) => Promise<void>,
  { gapMs, concerns = () => true }: LookOptions,
): Looking {
  const stopping = new AbortController();
  const { signal } = stopping;
  let timer: ReturnType<typeof setTimeout> | undefined;
  let isStale = false;
  let earliest = -Infinity;

  async function lookNow(): Promise<void> {
    isStale = false;
    const startedAt = performance.now();
    earliest = startedAt + gapMs;
    try {
      await look(signal);
    } catch {
      earliest = startedAt + RETRY_MS;
      isStale = true;
    }
    timer = undefined;
    if (isStale) again();
  }

  function again(): void {
    isStale = true;
    if (signal.aborted) return;
    timer ??= setTimeout(() => void lookNow(), Math.max(0, earliest - performance.now()));
  }

  const stopListening = onRunsChanged((run) => void ((!run || concerns(run)) && again()));
  again();
  return {
    again,
    stop() {
      stopping.abort();
      clearTimeout(timer);
      stopListening();
    },
  };
}

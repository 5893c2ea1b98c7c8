import type { RunLimit } from '../http/run-limit.ts';

/** A run that is being driven here. */
export interface Live {
  /** Stops driving it where it is; one that is not kept is cancelled. */
  leave(): void;
  readonly finished: Promise<unknown>;
}

/** The runs of all faces that are under way in this process, and how many more there may be. */
export interface UnderWay {
  /** Takes a place for a run. Throws a 429 if there is none. What it gives gives the place back. */
  readonly enter: RunLimit['enter'];
  /** It is under way until it has finished. */
  add(live: Live): void;
  /** Leaves everything; resolves when nothing is driven any more. */
  leaveAll(): Promise<void>;
}

export function underWay({ enter }: RunLimit): UnderWay {
  const lives = new Set<Live>();
  return {
    enter,
    add(live) {
      lives.add(live);
      const over = (): void => void lives.delete(live);
      live.finished.then(over, over);
    },
    async leaveAll() {
      const all = [...lives];
      for (const live of all) live.leave();
      await Promise.allSettled(all.map(({ finished }) => finished));
    },
  };
}

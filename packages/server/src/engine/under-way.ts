import type { RunLimit } from '../http/run-limit.ts';

/** A run that is being driven here. */
export interface Live {
  cancel(): void;
  /** Stops driving it where it is; one that is not kept is cancelled. */
  leave(): void;
  readonly finished: Promise<unknown>;
}

/** The runs of all faces that are under way in this process, and how many more there may be. */
export interface UnderWay<L extends Live = Live> {
  /** Takes a place for a run. Throws a 429 if there is none. What it gives gives the place back. */
  readonly enter: RunLimit['enter'];
  /** It is under way until it has finished. */
  add(id: string, live: L): void;
  get(id: string): L | undefined;
  /** Leaves everything; resolves when nothing is driven any more. */
  leaveAll(): Promise<void>;
}

export function underWay<L extends Live>({ enter }: RunLimit): UnderWay<L> {
  const lives = new Map<string, L>();
  return {
    enter,
    add(id, live) {
      lives.set(id, live);
      const over = (): void => void lives.delete(id);
      live.finished.then(over, over);
    },
    get: (id) => lives.get(id),
    async leaveAll() {
      const all = [...lives.values()];
      for (const live of all) live.leave();
      await Promise.allSettled(all.map(({ finished }) => finished));
    },
  };
}

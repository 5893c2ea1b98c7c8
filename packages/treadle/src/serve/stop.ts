import { EXIT } from '../exit-code.ts';
import type { Io } from '../io.ts';

/** Waits to be told to stop, by SIGINT or SIGTERM. */
export interface Stop {
  /** Resolves at the first one. */
  readonly asked: Promise<void>;
  /** Signals mean again what they did before. */
  release(): void;
}

/** npm hands on what the terminal has sent already, so one Ctrl-C may come twice at once. */
const SAME_MS = 300;

/** The first signal asks to stop; a later one ends the process at once. */
export function stoppable(io: Io, now: () => number = () => performance.now()): Stop {
  const { promise: asked, resolve } = Promise.withResolvers<void>();
  let first: number | undefined;
  const heed = (): void => {
    if (first === undefined) {
      first = now();
      resolve();
    } else if (now() - first >= SAME_MS) io.quit(EXIT.failed);
  };
  const releases = [io.onInterrupt(heed), io.onTerminate(heed)];
  return {
    asked,
    release() {
      for (const release of releases) release();
    },
  };
}

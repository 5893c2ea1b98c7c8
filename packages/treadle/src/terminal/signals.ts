import { EXIT } from '../command-line/command.ts';
import type { Io } from './io.ts';

/** Ctrl-C while something runs. */
export interface Interrupt {
  readonly signal: AbortSignal;
  /** As if Ctrl-C was pressed: the first time cancels, the second ends the process. */
  press(): void;
  /** Ctrl-C means again what it did before. */
  release(): void;
}

export function interruptible(io: Io): Interrupt {
  const controller = new AbortController();
  const press = (): void => {
    if (controller.signal.aborted) io.quit(EXIT.cancelled);
    else controller.abort();
  };
  return { signal: controller.signal, press, release: io.onInterrupt(press) };
}

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

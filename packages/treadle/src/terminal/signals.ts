import { EXIT } from '../command-line/command.ts';
import type { Io } from './io.ts';

/** Ctrl-C, or a request to end, while something runs. */
export interface Interrupt {
  /** Aborts at the first Ctrl-C, and when the process is asked to end or its terminal is closed. */
  readonly signal: AbortSignal;
  /** The process was asked to end, or its terminal was closed: there is nobody to continue with. */
  readonly isTerminated: boolean;
  /** Does what Ctrl-C does: the first time it aborts the signal, the second time it ends the process. */
  press(): void;
  /** Restores the default behaviour of Ctrl-C. */
  release(): void;
}

export function catchInterrupt(io: Io): Interrupt {
  const controller = new AbortController();
  let isTerminated = false;
  const press = (): void => {
    if (controller.signal.aborted) io.quit(EXIT.cancelled);
    else controller.abort();
  };
  // A closed terminal sends several signals, so a second one does not end the process.
  const terminate = (): void => {
    isTerminated = true;
    io.outliveReaders();
    controller.abort();
  };
  const releases = [io.onInterrupt(press), io.onTerminate(terminate)];
  return {
    signal: controller.signal,
    get isTerminated() {
      return isTerminated;
    },
    press,
    release() {
      for (const release of releases) release();
    },
  };
}

/** SIGINT or SIGTERM for a server, and SIGHUP if it runs on a terminal. */
export interface StopSignal {
  /** Resolves at the first signal. */
  readonly received: Promise<void>;
  /** Restores the default behaviour of the signals. */
  release(): void;
}

/** npm forwards a SIGINT that the terminal has already sent, so one Ctrl-C can arrive twice within this time. */
const DUPLICATE_MS = 300;

/** The first signal asks the server to stop; a later one ends the process immediately. */
export function catchStopSignal(io: Io, now: () => number = () => performance.now()): StopSignal {
  const { promise: received, resolve } = Promise.withResolvers<void>();
  let firstAt: number | undefined;
  const onSignal = (): void => {
    if (firstAt === undefined) {
      firstAt = now();
      resolve();
    } else if (now() - firstAt >= DUPLICATE_MS) io.quit(EXIT.failed);
  };
  const releases = [io.onInterrupt(onSignal), io.onTerminate(onSignal)];
  return {
    received,
    release() {
      for (const release of releases) release();
    },
  };
}

import { EXIT } from './exit-code.ts';
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

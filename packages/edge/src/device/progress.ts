import type { Clock } from '@treadle/core';

/** Parts that are sent at most every so often, and at most so large. */
const PAUSE_MS = 50;
const MAX_CHARS = 32 * 1024;

/** Collects the progress of a call, so that a tool that prints much does not send a message for each line. */
export function progressSender(
  send: (seq: number, part: unknown) => void,
  clock: Pick<Clock, 'timer'>,
): { add(progress: unknown): void; end(): void } {
  let text = '';
  let seq = 0;
  let cancelTimer: (() => void) | undefined;
  const flush = (): void => {
    cancelTimer?.();
    cancelTimer = undefined;
    if (text === '') return;
    send(seq++, text);
    text = '';
  };
  return {
    add(progress) {
      if (typeof progress !== 'string') {
        flush();
        send(seq++, progress);
        return;
      }
      // The first part is sent at once.
      const isFirst = seq === 0 && text === '';
      text += progress;
      if (isFirst || text.length >= MAX_CHARS) return flush();
      cancelTimer ??= clock.timer(PAUSE_MS, flush);
    },
    end: flush,
  };
}

import type { LoopResult } from '@treadle/core';

export const EXIT = {
  completed: 0,
  failed: 1,
  usage: 2,
  exhausted: 3,
  paused: 4,
  /** 128 + SIGINT, as shells have it. */
  cancelled: 130,
} as const;

/** For --help. */
export const EXIT_CODES: readonly (readonly [code: number, meaning: string])[] = [
  [EXIT.completed, 'completed: the answer is on standard output'],
  [EXIT.failed, 'failed: the model could not be reached or refused'],
  [EXIT.usage, 'the command or its configuration is not right; nothing was run'],
  [EXIT.exhausted, 'exhausted: a limit was met before the task was done'],
  [EXIT.paused, 'paused: it needs an approval and there is no terminal to ask on, or a result from outside'],
  [EXIT.cancelled, 'stopped with Ctrl-C'],
];

export function exitCodeOf({ outcome, detached }: LoopResult): number {
  if (outcome) return EXIT[outcome.type];
  return detached ? EXIT.cancelled : EXIT.paused;
}

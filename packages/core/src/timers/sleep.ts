import { systemClock, type Clock } from '../platform.ts';
import { Parked } from '../tools/result.ts';
import { checkOptions, type OptionNames } from '../known-options.ts';
import { tool, type Tool } from '../tools/tool.ts';

export interface SleepOptions {
  /** Default `sleep`. */
  readonly name?: string;
  /** The longest time that a call may sleep; default 30 days. */
  readonly maxMs?: number;
  readonly clock?: Clock;
}

const NAMES: OptionNames<SleepOptions> = { name: 'name', maxMs: 'number', clock: '.now' };

const INPUT = {
  type: 'object',
  properties: {
    seconds: { type: 'number', minimum: 0, description: 'How long to sleep' },
  },
  required: ['seconds'],
} as const;

/**
 * A tool with which a model waits for a time. The call is parked, so the run pauses, and whatever resumes due runs
 * (`resumeDue`, `treadle serve`) continues it. If the process dies while the call starts, it sleeps from then on.
 */
export function sleepTool(options: SleepOptions = {}): Tool {
  checkOptions('sleepTool', options, { names: NAMES });
  const { name = 'sleep', maxMs = 30 * 86_400_000, clock = systemClock } = options;
  return tool({
    name,
    description:
      'Waits for a number of seconds. Use it when something is not ready yet. ' +
      `The longest time is ${Math.floor(maxMs / 1000)} seconds.`,
    input: INPUT,
    effect: 'pure',
    polling: true,
    touches: () => [],
    execute: (input, { parked }) => {
      const ms = (input as { seconds: number }).seconds * 1000;
      if (ms > maxMs) throw new Error(`The longest time is ${Math.floor(maxMs / 1000)} seconds. Sleep less.`);
      const now = clock.now();
      const until = parked?.wakeAt ?? now + ms;
      return now >= until ? 'The time has passed.' : new Parked('a time', [], { wakeAt: until });
    },
  });
}

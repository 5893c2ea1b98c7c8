import { existsSync, readFileSync } from 'node:fs';
import type { ServerJob, ServerMessage } from './process.ts';

/** The options of this server process. */
export function jobOf(): ServerJob {
  return JSON.parse(process.argv[2]!) as ServerJob;
}

/** Often enough to see each long turn, and rarely enough not to make turns longer. */
const SAMPLE_MS = 5;

/** Measures turns without the time in which other processes had the core, so that it means something on a busy machine. */
function watchTurns(): { readonly longest: () => number } {
  let longest = 0;
  let before = ownTime();
  setInterval(() => {
    const now = ownTime();
    longest = Math.max(longest, now - before);
    before = now;
  }, SAMPLE_MS).unref();
  return {
    longest() {
      const value = longest;
      longest = 0;
      return value;
    },
  };
}

const SCHEDULER = '/proc/self/schedstat';
const hasScheduler = existsSync(SCHEDULER);

/** The time without that in which this thread waited for a core, in milliseconds. Without Linux it is all the time. */
function ownTime(): number {
  const waited = hasScheduler ? Number(readFileSync(SCHEDULER, 'utf8').split(' ')[1]) / 1e6 : 0;
  return performance.now() - waited;
}

/** Reports the address to the parent, answers requests for usage, and exits when the channel is closed. */
export function attach(baseURL: string): void {
  process.on('disconnect', () => process.exit());
  let turns: ReturnType<typeof watchTurns> | undefined;
  process.on('message', () => {
    const longestTurn = turns?.longest() ?? 0;
    if (jobOf().attacked) turns ??= watchTurns();
    const peakRss = process.resourceUsage().maxRSS * 1_024;
    const { user, system } = process.cpuUsage();
    globalThis.gc?.();
    const { rss, heapUsed, external } = process.memoryUsage();
    send({ cpu: user + system, rss, heap: heapUsed + external, peakRss, longestTurn });
  });
  send({ baseURL });
}

function send(message: ServerMessage): void {
  process.send!(message);
}

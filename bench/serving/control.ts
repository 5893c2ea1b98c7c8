import type { Said, ServerJob } from './process.ts';

/** In the process of a server: what it is to do. */
export function jobOf(): ServerJob {
  return JSON.parse(process.argv[2]!) as ServerJob;
}

/** Tells the parent where the server listens, answers how much was used, and ends with the channel. */
export function attach(baseURL: string): void {
  process.on('disconnect', () => process.exit());
  process.on('message', () => {
    const { user, system } = process.cpuUsage();
    globalThis.gc?.();
    const { rss, heapUsed, external } = process.memoryUsage();
    say({ cpu: user + system, rss, heap: heapUsed + external });
  });
  say({ baseURL });
}

function say(said: Said): void {
  process.send!(said);
}

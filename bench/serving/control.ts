import type { ServerJob, ServerMessage } from './process.ts';

/** The options of this server process. */
export function jobOf(): ServerJob {
  return JSON.parse(process.argv[2]!) as ServerJob;
}

/** Reports the address to the parent, answers requests for usage, and exits when the channel is closed. */
export function attach(baseURL: string): void {
  process.on('disconnect', () => process.exit());
  process.on('message', () => {
    const { user, system } = process.cpuUsage();
    globalThis.gc?.();
    const { rss, heapUsed, external } = process.memoryUsage();
    send({ cpu: user + system, rss, heap: heapUsed + external });
  });
  send({ baseURL });
}

function send(message: ServerMessage): void {
  process.send!(message);
}

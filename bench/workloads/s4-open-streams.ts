import { ask } from '../serving/client.ts';
import { SERVERS } from './served.ts';
import type { Workload } from './workload.ts';

const STREAMS = 500;
/** Long enough to be open still when the last one is. */
const SCRIPT = 'text:120:0:500';
const WARM = 'text:20';

/** What a stream holds while it is open. All have begun, and a delta comes now and then. */
export const S4: Workload = {
  id: 'S4',
  title: `${STREAMS} open streams`,
  metrics: [
    { id: 'rss', title: 'memory per stream', unit: 'kB', digits: 0 },
    { id: 'heap', title: 'of it held by JavaScript', unit: 'kB', digits: 1 },
  ],
  mode: 'stream',
  where: 'served',
  only: SERVERS,
  check: [],
  served: {
    check: ['stream'],
    scripts: [SCRIPT, WARM],
    async measure({ front }) {
      // Code gets warm, but the connections and the memory of many streams are not there yet.
      for (let n = 0; n < 10; n++) {
        await Promise.all(Array.from({ length: 30 }, () => ask(front, { model: WARM, stream: true }).answer));
      }
      const before = await front.usage();
      const streams = Array.from({ length: STREAMS }, () => ask(front, { model: SCRIPT, stream: true }));
      try {
        await Promise.all(streams.map(({ begun }) => begun));
        const after = await front.usage();
        return {
          rss: (after.rss - before.rss) / STREAMS / 1_000,
          heap: (after.heap - before.heap) / STREAMS / 1_000,
        };
      } finally {
        for (const { leave } of streams) leave();
      }
    },
  },
};

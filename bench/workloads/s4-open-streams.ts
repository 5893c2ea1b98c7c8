import { ask } from '../serving/client.ts';
import { SERVERS } from './served.ts';
import type { Workload } from './workload.ts';

const STREAMS = 500;
/** Long enough that all streams are open at the same time. */
const SCRIPT = 'text:120:0:500';
const WARM = 'text:20';

/** Measures the memory of open streams. All have started, and each receives an occasional delta. */
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
      // Warms up the code, but does not yet create the connections and the memory of many streams.
      for (let n = 0; n < 10; n++) {
        await Promise.all(Array.from({ length: 30 }, () => ask(front, { model: WARM, stream: true }).answer));
      }
      const before = await front.usage();
      const streams = Array.from({ length: STREAMS }, () => ask(front, { model: SCRIPT, stream: true }));
      try {
        await Promise.all(streams.map(({ started }) => started));
        const after = await front.usage();
        return {
          rss: (after.rss - before.rss) / STREAMS / 1_000,
          heap: (after.heap - before.heap) / STREAMS / 1_000,
        };
      } finally {
        for (const { abort } of streams) abort();
      }
    },
  },
};

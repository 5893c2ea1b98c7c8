import type { Workload } from './workload.ts';

const SOCKETS = 1_000;
const WARM = 50;

/** Measures the memory of sockets that are open and silent. */
export const S6: Workload = {
  id: 'S6',
  title: `${SOCKETS} idle WebSockets`,
  metrics: [
    { id: 'rss', title: 'memory per socket', unit: 'kB', digits: 1 },
    { id: 'heap', title: 'of it held by JavaScript', unit: 'kB', digits: 1 },
  ],
  mode: 'stream',
  where: 'served',
  only: ['treadle-server'],
  check: [],
  served: {
    check: ['stream'],
    scripts: [],
    async measure({ front }) {
      // Warms up the code. These sockets stay open, so that their memory is not used again.
      const warm = await Promise.all(Array.from({ length: WARM }, () => openSocket(front.baseURL)));
      const before = await front.usage();
      const sockets = await Promise.all(Array.from({ length: SOCKETS }, () => openSocket(front.baseURL)));
      try {
        const after = await front.usage();
        return {
          rss: (after.rss - before.rss) / SOCKETS / 1_000,
          heap: (after.heap - before.heap) / SOCKETS / 1_000,
        };
      } finally {
        for (const socket of [...warm, ...sockets]) socket.close();
      }
    },
  },
};

function openSocket(baseURL: string): Promise<WebSocket> {
  const socket = new WebSocket(`${baseURL.replace(/^http/, 'ws')}/responses`);
  return new Promise((resolve, reject) => {
    socket.addEventListener('open', () => resolve(socket));
    socket.addEventListener('error', () => reject(new Error('A socket was not opened.')));
  });
}

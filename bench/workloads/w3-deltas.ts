import { cpuOf, cpuSince, task, type Workload } from './workload.ts';

const BURST = 20_000;
const STREAMS = 50;
const PACED = 100;
const PACE_MS = 20;

const burst: Workload = {
  id: 'W3a',
  title: `${BURST.toLocaleString('en-US')} deltas in a burst`,
  metrics: [{ id: 'cpu', title: 'CPU per delta', unit: 'us', digits: 2 }],
  mode: 'stream',
  where: 'http',
  check: ['deltas'],
  async measure(stage) {
    return {
      cpu: (await cpuOf(stage.contender.prepare(task(stage, `text:${BURST}`)), stage, { deltas: BURST })) / BURST,
    };
  },
};

/** Each delta arrives in a packet of its own, with time in between: the usual load of a server with many users. */
const paced: Workload = {
  id: 'W3c',
  title: `${STREAMS} streams at once, a delta each ${PACE_MS} ms, one write per delta`,
  metrics: [{ id: 'cpu', title: 'CPU per delta', unit: 'us', digits: 1 }],
  mode: 'stream',
  where: 'http',
  check: ['deltas'],
  async measure(stage) {
    let received = 0;
    const onDelta = (): void => void received++;
    const streams = async (deltas: number): Promise<void> => {
      const run = stage.contender.prepare(task(stage, `text:${deltas}:0:${PACE_MS}`, { onDelta }));
      await Promise.all(Array.from({ length: STREAMS }, run));
    };
    await streams(PACED / 2);
    received = 0;
    const before = process.cpuUsage();
    await streams(PACED);
    if (received !== STREAMS * PACED) throw new Error(`${received} of ${STREAMS * PACED} deltas delivered`);
    return { cpu: cpuSince(before) / received };
  },
};

export const W3: readonly Workload[] = [burst, paced];

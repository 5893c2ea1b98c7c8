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

/** Each delta comes in a packet of its own, and there is time between them: what a server with many users does all day. */
const paced: Workload = {
  id: 'W3c',
  title: `${STREAMS} streams at once, a delta each ${PACE_MS} ms, one write per delta`,
  metrics: [{ id: 'cpu', title: 'CPU per delta', unit: 'us', digits: 1 }],
  mode: 'stream',
  where: 'http',
  check: ['deltas'],
  async measure(stage) {
    let heard = 0;
    const onDelta = (): void => void heard++;
    const streams = async (deltas: number): Promise<void> => {
      const run = stage.contender.prepare(task(stage, `text:${deltas}:0:${PACE_MS}`, { onDelta }));
      await Promise.all(Array.from({ length: STREAMS }, run));
    };
    await streams(PACED / 2);
    heard = 0;
    const before = process.cpuUsage();
    await streams(PACED);
    if (heard !== STREAMS * PACED) throw new Error(`${heard} of ${STREAMS * PACED} deltas delivered`);
    return { cpu: cpuSince(before) / heard };
  },
};

export const W3: readonly Workload[] = [burst, paced];

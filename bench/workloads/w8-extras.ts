import { monitorEventLoopDelay } from 'node:perf_hooks';
import { cpuSince, repeat, task, type Workload } from './workload.ts';

const TURNS = 20;

/** The cost of a journal on disk, of a policy and of tracing, compared with none of them, for the chain of W1. */
function extras(atOnce: number): Workload {
  return {
    id: `W8-${atOnce}`,
    title: `with journal, policy and tracing, ${atOnce === 1 ? 'one run' : `${atOnce} runs at once`}, streaming`,
    metrics: [
      { id: 'cpu', title: 'CPU per turn', unit: 'us', digits: 0 },
      { id: 'wall', title: 'wall per turn', unit: 'us', digits: 0 },
    ],
    mode: 'stream',
    where: 'http',
    only: [
      'treadle',
      'treadle-sqlite',
      'treadle-sqlite-once',
      'treadle-policy',
      'treadle-tracing',
      'treadle-otlp',
      'treadle-otlp-hangs',
    ],
    check: ['chain', 'parallel'],
    async measure(stage) {
      const run = stage.contender.prepare(task(stage, `chain:${TURNS}`));
      const round = (): Promise<unknown> => Promise.all(Array.from({ length: atOnce }, run));
      await repeat(round, stage.warmUpMs);
      const [cpu, began] = [process.cpuUsage(), performance.now()];
      const turns = (await repeat(round, stage.measureMs)) * atOnce * (TURNS + 1);
      return { cpu: cpuSince(cpu) / turns, wall: ((performance.now() - began) * 1_000) / turns };
    },
  };
}

/** Few, so that the delay is not that of the loop itself. */
const SLOW_AT_ONCE = 5;

/** The event loop while the disk is slow: nothing in it may wait for a sync. */
const slowDisk: Workload = {
  id: 'W8-slow',
  title: `with a journal on a slow disk, where each sync takes 4 ms longer, ${SLOW_AT_ONCE} runs at once, streaming`,
  metrics: [
    { id: 'delay', title: 'event-loop delay, 99th percentile', unit: 'ms', digits: 1 },
    { id: 'wall', title: 'wall per turn', unit: 'us', digits: 0 },
  ],
  mode: 'stream',
  where: 'http',
  slowDisk: true,
  only: ['treadle', 'treadle-sqlite', 'treadle-sqlite-once'],
  check: ['chain'],
  async measure(stage) {
    const run = stage.contender.prepare(task(stage, `chain:${TURNS}`));
    const round = (): Promise<unknown> => Promise.all(Array.from({ length: SLOW_AT_ONCE }, run));
    await repeat(round, stage.warmUpMs);
    const histogram = monitorEventLoopDelay({ resolution: 1 });
    histogram.enable();
    const began = performance.now();
    const turns = (await repeat(round, stage.measureMs)) * SLOW_AT_ONCE * (TURNS + 1);
    const wall = ((performance.now() - began) * 1_000) / turns;
    histogram.disable();
    return { delay: histogram.percentile(99) / 1e6, wall };
  },
};

export const W8: readonly Workload[] = [extras(1), extras(100), slowDisk];

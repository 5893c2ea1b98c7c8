import { cpuSince, repeat, task, type Workload } from './workload.ts';

const TURNS = 20;

/**
 * The cost of a journal on disk and of a policy, compared with neither, for the chain of W1. Tracing gets a row here when
 * it exists.
 */
function extras(atOnce: number): Workload {
  return {
    id: `W8-${atOnce}`,
    title: `with journal and policy, ${atOnce === 1 ? 'one run' : `${atOnce} runs at once`}, streaming`,
    metrics: [
      { id: 'cpu', title: 'CPU per turn', unit: 'us', digits: 0 },
      { id: 'wall', title: 'wall per turn', unit: 'us', digits: 0 },
    ],
    mode: 'stream',
    where: 'http',
    only: ['treadle', 'treadle-sqlite', 'treadle-policy'],
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

export const W8: readonly Workload[] = [extras(1), extras(100)];

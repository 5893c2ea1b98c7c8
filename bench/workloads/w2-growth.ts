import { cpuSince, repeat, task, type Workload } from './workload.ts';

const TURNS = 300;
const EDGE = 50;

/** Whether the cost of a turn grows with the history. */
export const W2: Workload = {
  id: 'W2',
  title: `growth over ${TURNS} turns, streaming`,
  metrics: [
    { id: 'total', title: 'CPU of the run', unit: 'ms', digits: 0 },
    { id: 'growth', title: `last ${EDGE} turns over first ${EDGE}`, unit: 'x', digits: 2 },
  ],
  mode: 'stream',
  where: 'http',
  check: ['chain'],
  async measure(stage) {
    let began = process.cpuUsage();
    let at: number[] = [];
    let [total, first, last] = [0, 0, 0];
    const step = ({ index }: { index: number }): string => {
      at.push(cpuSince(began));
      return `step ${index} done, and all is well so far`;
    };
    const run = stage.contender.prepare(task(stage, `chain:${TURNS}`, { step }));
    const round = async (): Promise<void> => {
      began = process.cpuUsage();
      at = [0];
      await run();
      total += cpuSince(began);
      first += at[EDGE]!;
      last += at[TURNS]! - at[TURNS - EDGE]!;
    };
    await repeat(round, stage.warmUpMs);
    [total, first, last] = [0, 0, 0];
    const runs = await repeat(round, stage.measureMs * 2);
    return { total: total / runs / 1_000, growth: last / first };
  },
};

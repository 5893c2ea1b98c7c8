import { setTimeout as sleep } from 'node:timers/promises';
import { repeat, task, type Workload } from './workload.ts';

const CALLS = 8;
const TOOL_MS = 50;

export const W5: Workload = {
  id: 'W5',
  title: `${CALLS} parallel tools of ${TOOL_MS} ms, streaming`,
  metrics: [{ id: 'wall', title: 'wall over ideal', unit: 'x', digits: 3 }],
  mode: 'stream',
  where: 'http',
  check: ['parallel'],
  async measure(stage) {
    const step = async ({ index }: { index: number }): Promise<string> => {
      await sleep(TOOL_MS);
      return `step ${index} done`;
    };
    const run = stage.contender.prepare(task(stage, `parallel:${CALLS}`, { step }));
    await repeat(run, stage.warmUpMs);
    const began = performance.now();
    const runs = await repeat(run, stage.measureMs);
    return { wall: (performance.now() - began) / runs / TOOL_MS };
  },
};

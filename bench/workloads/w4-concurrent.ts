import { cpuSince, task, type Workload } from './workload.ts';

const RUNS = 1_000;
const TURNS = 5;
const MODEL_MS = 50;
const IDEAL_MS = MODEL_MS * (TURNS + 1);

export const W4: Workload = {
  id: 'W4',
  title: `${RUNS.toLocaleString('en-US')} runs of ${TURNS} turns at once on a ${MODEL_MS} ms model, streaming`,
  metrics: [
    { id: 'cpu', title: 'CPU per run', unit: 'us', digits: 0 },
    { id: 'wall', title: 'wall over ideal', unit: 'x', digits: 2 },
    { id: 'memory', title: 'memory per run', unit: 'kB', digits: 0 },
  ],
  mode: 'stream',
  where: 'http',
  check: ['chain'],
  async measure(stage) {
    const run = stage.contender.prepare(task(stage, `chain:${TURNS}:${MODEL_MS}`));
    // Warms up the code, but does not yet create the connections and the memory of a thousand runs.
    for (let n = 0; n < 3; n++) await Promise.all(Array.from({ length: 30 }, run));
    globalThis.gc?.();
    const rss = process.memoryUsage.rss();
    let most = rss;
    const sampleMemory = (): void => {
      most = Math.max(most, process.memoryUsage.rss());
    };
    const timer = setInterval(sampleMemory, 20);
    const [cpu, began] = [process.cpuUsage(), performance.now()];
    await Promise.all(Array.from({ length: RUNS }, run));
    const wall = performance.now() - began;
    const used = cpuSince(cpu);
    sampleMemory();
    clearInterval(timer);
    return { cpu: used / RUNS, wall: wall / IDEAL_MS, memory: (most - rss) / RUNS / 1_000 };
  },
};

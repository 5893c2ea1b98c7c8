import { cpuOf, task, type Workload } from './workload.ts';

const TURNS = 20;

/** The cost of a turn: a request, an answer with a call, the call, the next request. */
function loop(mode: 'stream' | 'whole'): Workload {
  return {
    id: `W1-${mode}`,
    title: `loop overhead, ${mode === 'stream' ? 'streaming' : 'not streaming'}`,
    metrics: [{ id: 'cpu', title: 'CPU per turn', unit: 'us', digits: 0 }],
    mode,
    where: 'http',
    check: mode === 'stream' ? ['chain', 'parallel', 'deltas'] : ['chain', 'parallel'],
    measure: async (stage) => ({
      cpu: (await cpuOf(stage.contender.prepare(task(stage, `chain:${TURNS}`)), stage, { steps: TURNS })) / (TURNS + 1),
    }),
  };
}

export const W1: readonly Workload[] = [loop('whole'), loop('stream')];

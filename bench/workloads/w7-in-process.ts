import { cpuOf, counting, type Workload } from './workload.ts';

const TURNS = 20;
const DELTAS = 10;

/** The loop alone, with the in-process model of each contender. */
function inProcess(mode: 'stream' | 'whole'): Workload {
  return {
    id: `W7-${mode}`,
    title: `model in the process, ${mode === 'stream' ? `${DELTAS} deltas a turn` : 'not streaming'}`,
    metrics: [{ id: 'cpu', title: 'CPU per turn', unit: 'us', digits: 1 }],
    mode,
    where: 'in-process',
    check: ['in-process'],
    async measure({ contender, ...stage }) {
      const task = { ...counting(), stream: mode === 'stream', turns: TURNS, deltas: DELTAS };
      return { cpu: (await cpuOf(contender.prepareInProcess!(task), stage, { steps: TURNS })) / (TURNS + 1) };
    },
  };
}

export const W7: readonly Workload[] = [inProcess('whole'), inProcess('stream')];

import type { Workload } from './workload.ts';

/** The cost before the first turn, measured by the parent: see `measure/start.ts` and `measure/install.ts`. */
export const W6: readonly Workload[] = [
  {
    id: 'W6-import',
    title: 'import',
    metrics: [{ id: 'ms', title: 'over bare node', unit: 'ms', digits: 0 }],
    mode: 'whole',
    where: 'start',
    check: [],
  },
  {
    id: 'W6-delta',
    title: 'start',
    metrics: [{ id: 'ms', title: 'process start to first delta', unit: 'ms', digits: 0 }],
    mode: 'stream',
    where: 'start',
    check: [],
  },
  {
    id: 'W6-install',
    title: 'install',
    metrics: [
      { id: 'megabytes', title: 'size', unit: 'MB', digits: 1 },
      { id: 'packages', title: 'packages', unit: '', digits: 0 },
    ],
    mode: 'whole',
    where: 'start',
    check: [],
  },
];

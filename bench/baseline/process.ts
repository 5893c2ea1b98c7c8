/** Measures one workload with several trees, which alternate, and prints the samples. */
import { pathToFileURL } from 'node:url';
import type * as Core from '@treadle/core';
import { ADD, chainModel } from '../loop/workload.ts';
import type { Samples, Workload } from './baseline.ts';

interface Job {
  readonly workload: Workload;
  readonly trees: readonly string[];
  /** The order of the trees alternates with it. */
  readonly index: number;
}

const TURNS = 20;
const RUNS = 100;
const WARM_UP = 30;
const ROUNDS = 60;

const { workload, trees, index } = JSON.parse(process.argv[2]!) as Job;
const { deltas, hasJournal } = workload;

type Chain = () => Promise<void>;

async function chainOf(tree: string): Promise<Chain> {
  const { memoryJournal, runLoop, tool } = (await import(
    pathToFileURL(`${tree}/packages/core/src/index.ts`).href
  )) as typeof Core;
  const add = tool(ADD);
  return async () => {
    const result = await runLoop({
      model: chainModel(TURNS, deltas),
      tools: [add],
      input: 'go',
      maxTurns: TURNS + 1,
      ...(hasJournal && { journal: memoryJournal() }),
      ...(deltas > 0 && { onItem: () => {} }),
    });
    if (result.text !== 'done' || result.calls !== TURNS) throw new Error(`${tree}: the chain was not run`);
  };
}

/** CPU microseconds per turn. */
async function timeOf(chain: Chain): Promise<number> {
  const before = process.cpuUsage();
  for (let run = 0; run < RUNS; run++) await chain();
  const { user, system } = process.cpuUsage(before);
  return (user + system) / RUNS / (TURNS + 1);
}

const chains = await Promise.all(trees.map(chainOf));
const samples = trees.map((): number[] => []);
for (let round = -WARM_UP; round < ROUNDS; round++) {
  const order = (round + index) % 2 === 0 ? chains : chains.toReversed();
  for (const chain of order) {
    const time = await timeOf(chain);
    if (round >= 0) samples[chains.indexOf(chain)]!.push(time);
  }
}
console.log(JSON.stringify(samples satisfies Samples));

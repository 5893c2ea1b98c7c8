/**
 * Measures what a step of a workflow from a file costs: CPU microseconds per step of a chain, and of steps beside each other, compared
 * with a program of the same calls, with functions that are called one after the other, and with workflows of other libraries, if
 * those of `bench/package.json` are installed. All alternate in one process.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { memoryJournal, runLoop, tool, type Journal } from '@treadle/core';
import { call, programModel, type Steps } from '@treadle/core/program';
import { agentHost, agentRun, type AgentRegistry, type NamedAgent } from '@treadle/core/named-agents';
import { sqliteStore } from '@treadle/store';
import { checkWorkflow, workflowHost } from '@treadle/tools/workflows';
import { add } from '../loop/workload.ts';

const STEPS = 50;
const RUNS = 20;
const ROUNDS = 9;

const ids = Array.from({ length: STEPS }, (_, index) => `s${index}`);

function workflow(name: string, needsOf: (index: number) => readonly string[]): NamedAgent {
  const steps = ids.map((id, index) => ({
    id,
    action: 'run_tool',
    tool: 'add',
    inputs: { a: index, b: 1 },
    depends_on: needsOf(index),
  }));
  const checked = checkWorkflow({ name, description: 'A chain', inputs: {}, steps });
  if (checked.type === 'agent') return checked.agent;
  throw new Error(JSON.stringify(checked.problems));
}

const chain = workflow('chain', (index) => ids.slice(Math.max(0, index - 1), index));
const branches = workflow('branches', () => []);
const registry: AgentRegistry = { list: () => [], get: () => undefined, onChange: () => () => {} };
const host = agentHost({
  registry,
  tools: [add],
  workflows: workflowHost(),
  model: () => {
    throw new Error('no step has a model');
  },
});

async function run(agent: NamedAgent, journal: Journal): Promise<void> {
  const { outcome } = await runLoop({ ...agentRun(agent, { inputs: {} }, host), journal });
  if (outcome?.type !== 'completed') throw new Error(`the workflow ended with ${JSON.stringify(outcome)}`);
}

function* calls(): Steps<string> {
  for (let turn = 0; turn < STEPS; turn++) yield* call('add', { a: turn, b: 1 });
  return 'done';
}

async function program(): Promise<void> {
  const model = programModel({ name: 'chain', version: 1, run: calls });
  const { outcome } = await runLoop({ model, tools: [add], input: '{}', journal: memoryJournal() });
  if (outcome?.type !== 'completed') throw new Error('the program was not run');
}

const plain = tool({ ...add, input: add.parameters, execute: ({ a, b }) => String((a as number) + (b as number)) });

async function bare(): Promise<void> {
  for (let turn = 0; turn < STEPS; turn++) await plain.execute!({ a: turn, b: 1 }, undefined as never);
}

const folder = mkdtempSync(path.join(tmpdir(), 'treadle-bench-'));
const store = await sqliteStore(path.join(folder, 'bench.db'));

interface Peers {
  readonly chains: Readonly<Record<string, (steps: number) => () => Promise<void>>>;
}

async function peers(): Promise<Readonly<Record<string, () => Promise<void>>>> {
  try {
    const { chains } = (await import(new URL('../peers/workflows.ts', import.meta.url).href)) as Peers;
    return Object.fromEntries(Object.entries(chains).map(([name, chainOf]) => [name, chainOf(STEPS)]));
  } catch (error) {
    console.log(
      `Without other libraries: ${(error as Error).message.split('\n')[0]!} "npm ci" in bench installs them.`,
    );
    return {};
  }
}

const measured: Readonly<Record<string, () => Promise<void>>> = {
  'functions, one after the other': bare,
  'treadle, program, memory journal': program,
  'treadle, workflow, memory journal': () => run(chain, memoryJournal()),
  'treadle, workflow, SQLite': () => run(chain, store),
  'treadle, branches, memory journal': () => run(branches, memoryJournal()),
  'treadle, branches, SQLite': () => run(branches, store),
  ...(await peers()),
};

function median(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)]!;
}

const series = Object.fromEntries(Object.keys(measured).map((name): readonly [string, number[]] => [name, []]));
for (let round = -1; round < ROUNDS; round++) {
  for (const [name, once] of Object.entries(measured)) {
    const before = process.cpuUsage();
    for (let i = 0; i < RUNS; i++) await once();
    const { user, system } = process.cpuUsage(before);
    if (round >= 0) series[name]!.push((user + system) / RUNS / STEPS);
  }
}
await store.close();
rmSync(folder, { recursive: true });
console.log(`CPU microseconds per step, median of ${ROUNDS} rounds of ${RUNS} runs of ${STEPS} steps`);
for (const [name, values] of Object.entries(series)) {
  const [low, mid, high] = [Math.min(...values), median(values), Math.max(...values)].map((value) => value.toFixed(1));
  console.log(`${name.padEnd(38)}${mid!.padStart(9)}   (${low} to ${high})`);
}

/**
 * Measures the loop itself: CPU microseconds per turn with a model in the same process, compared with a minimal loop. Both
 * alternate in one process, so that noise affects both. The ratio is the result.
 */
import { memoryJournal, runLoop, tool, type Policy } from '@treadle/core';
import { policy } from '@treadle/core/policy';
import { minimalLoop } from './minimal.ts';
import { add, chainModel } from './workload.ts';

const TURNS = 20;
const RUNS = 500;
const ROUNDS = 15;

let received = 0;
const listen = (): void => void received++;

async function ours(deltas: number): Promise<void> {
  const model = chainModel(TURNS, deltas);
  const streaming = deltas > 0 ? { onItem: listen } : {};
  const result = await runLoop({
    model,
    tools: [add],
    input: 'go',
    maxTurns: TURNS + 1,
    journal: memoryJournal(),
    ...streaming,
  });
  if (result.text !== 'done' || result.calls !== TURNS) throw new Error('ours: the chain was not run');
}

/** One call a turn that touches a file, a command and a host. */
const touching = tool({
  ...add,
  input: add.parameters,
  touches: () => [
    { type: 'write', path: 'src/a/b.ts' },
    { type: 'command', command: 'npm run test --watch' },
    { type: 'url', url: 'https://api.example.com/v1/x' },
  ],
  execute: ({ a, b }) => String((a as number) + (b as number)),
});

const allowAll: Policy = { judge: (calls) => calls.map(() => ({ type: 'allow' })) };

const allRules = policy(
  {
    autonomy: 2,
    permissions: { git: false },
    tools: { 'git:push': 'deny', other: 'ask' },
    commands: { allow: ['git status', 'git diff', 'npm run *', 'ls', 'cat'], ask: ['git push'], deny: ['curl', 'rm'] },
    paths: { write: ['src/**', 'docs/**'], deny: ['secret/**'] },
    domains: { allow: ['*.example.com', 'github.com'], deny: ['evil.example.com'] },
    rate: { minute: 60, second: 10 },
  },
  // Time passes, so that no rate is exceeded.
  { folder: '/project', clock: { now: () => (passed += 6_000) } },
);
let passed = 0;

async function judged(by: Policy): Promise<void> {
  const principal = { subject: 'ann', tenant: 'acme', scopes: ['tools:execute'] };
  const model = chainModel(TURNS, 0);
  const journal = memoryJournal();
  const options = { model, tools: [touching], input: 'go', maxTurns: TURNS + 1, journal, principal };
  const result = await runLoop({ ...options, policy: by });
  if (result.text !== 'done' || result.calls !== TURNS) throw new Error('judged: the chain was not run');
}

async function minimal(deltas: number): Promise<void> {
  const handlers = { add: ({ a, b }: { a: number; b: number }) => a + b };
  const messages = await minimalLoop(chainModel(TURNS, deltas), handlers, 'go', listen);
  if (messages.length !== 2 * TURNS + 2) throw new Error('minimal: the chain was not run');
}

/** CPU microseconds per turn of `RUNS` chains. */
async function measure(run: () => Promise<void>): Promise<number> {
  const before = process.cpuUsage();
  for (let i = 0; i < RUNS; i++) await run();
  const { user, system } = process.cpuUsage(before);
  return (user + system) / RUNS / (TURNS + 1);
}

/** Median wall microseconds between the model requests of one long run, early and late in the run. */
async function growth(): Promise<{ early: number; late: number }> {
  const turns = 2_000;
  const model = chainModel(turns, 10);
  const at: number[] = [];
  const timed = {
    ...model,
    reply: (...args: Parameters<typeof model.reply>) => (at.push(performance.now()), model.reply(...args)),
  };
  await runLoop({
    model: timed,
    tools: [add],
    input: 'go',
    maxTurns: turns + 1,
    journal: memoryJournal(),
    onItem: listen,
  });
  const span = (from: number, to: number): number =>
    median(at.slice(from, to).map((time, i) => (at[from + i + 1]! - time) * 1_000));
  return { early: span(20, 120), late: span(turns - 100, turns) };
}

function median(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)]!;
}

function row(name: string, values: readonly number[]): string {
  const [low, mid, high] = [Math.min(...values), median(values), Math.max(...values)].map((value) => value.toFixed(2));
  return `${name.padEnd(34)}${mid!.padStart(8)}   (${low} to ${high})`;
}

for (const [title, deltas] of [
  ['not streamed', 0],
  ['streamed, 10 deltas a turn', 10],
] as const) {
  const series: Record<'ours' | 'minimal', number[]> = { ours: [], minimal: [] };
  for (let round = -2; round < ROUNDS; round++) {
    const sample = { minimal: await measure(() => minimal(deltas)), ours: await measure(() => ours(deltas)) };
    if (round < 0) continue; // warming up
    series.ours.push(sample.ours);
    series.minimal.push(sample.minimal);
  }
  console.log(`${title}: CPU microseconds per turn, median of ${ROUNDS} rounds of ${RUNS} chains of ${TURNS} calls`);
  console.log(row('  treadle, memory journal', series.ours));
  console.log(row('  minimal loop without features', series.minimal));
  console.log(
    row(
      '  ratio',
      series.ours.map((value, round) => value / series.minimal[round]!),
    ),
  );
}

const judging: Record<'code' | 'rules', number[]> = { code: [], rules: [] };
for (let round = -2; round < ROUNDS; round++) {
  const sample = { code: await measure(() => judged(allowAll)), rules: await measure(() => judged(allRules)) };
  if (round < 0) continue; // warming up
  judging.code.push(sample.code);
  judging.rules.push(sample.rules);
}
console.log('policies: CPU microseconds per turn, one call a turn that touches a file, a command and a host');
console.log(row('  a policy that allows all', judging.code));
console.log(row('  all rules', judging.rules));
console.log(
  row(
    '  difference',
    judging.rules.map((value, round) => value - judging.code[round]!),
  ),
);

const runs = [];
for (let i = 0; i < ROUNDS; i++) runs.push(await growth());
const [early, late] = [runs.map((run) => run.early), runs.map((run) => run.late)];
console.log('growth: microseconds per turn in one run of 2,000 turns');
console.log(row('  turns 20 to 120', early));
console.log(row('  turns 1,900 to 2,000', late));
console.log(
  row(
    '  ratio',
    runs.map((run) => run.late / run.early),
  ),
);

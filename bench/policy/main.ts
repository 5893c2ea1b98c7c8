/**
 * Measures how long it takes to judge a command: the ordinary commands of test/policy, at level 2 with a list that allows
 * them.
 */
import { readFileSync } from 'node:fs';
import { policy, type JudgedCall } from '@treadle/core/policy';
import { commandAnalyser, commandFacts } from '@treadle/tools/commands';

const ROUNDS = 15;

const commands = readFileSync(new URL('../../test/policy/ordinary-commands.txt', import.meta.url), 'utf8')
  .split('\n')
  .filter((line) => line !== '' && !/^[#?]/.test(line))
  .map((line) => line.replaceAll('␤', '\n'))
  // What lists folders is done by a worker, which is not measured.
  .filter((line) => !/(^|\s)[^'"\s]*\*|^(grep -r|rg|cp -r|mv|ln|tar c|rsync)/.test(line));

/** A folder without files. */
const folder = '/project';
const names = new Set(
  commands.flatMap((command) =>
    commandFacts(command, { folder }).programs.map(({ name, args, unknown }) =>
      unknown ? `${name} ${args[0]}` : name,
    ),
  ),
);
const analyse = commandAnalyser({ folder });
const { judge } = policy(
  { autonomy: 2, commands: { allow: [...names] }, paths: { write: ['**'] } },
  {
    folder,
    analysers: { command: analyse },
    // Time passes, so that no rate is exceeded.
    clock: { now: () => (passed += 6_000) },
  },
);
let passed = 0;
const context = { runId: 'r', turn: 1, context: undefined, signal: new AbortController().signal };

const callOf = (command: string): JudgedCall => ({
  id: '1',
  name: 'shell',
  input: {},
  effect: 'once',
  client: false,
  touches: [{ type: 'command', command }],
  permissions: [],
  operation: undefined,
});

/** CPU microseconds per command. */
async function measure(run: (command: string) => unknown, texts: readonly string[]): Promise<number> {
  const before = process.cpuUsage();
  for (const text of texts) await run(text);
  const { user, system } = process.cpuUsage(before);
  return (user + system) / texts.length;
}

const repeated = (): string[] => Array.from({ length: 5 }, () => commands).flat();

const judged = (command: string): unknown => judge([callOf(command)], context);
const series: Record<string, number[]> = {};
for (let count = -3; count < ROUNDS; count++) {
  const sample = {
    facts: await measure(analyse, repeated()),
    verdict: await measure(judged, repeated()),
  };
  if (count < 0) continue; // warming up
  for (const [name, value] of Object.entries(sample)) (series[name] ??= []).push(value);
}
console.log(`CPU microseconds per command, median of ${ROUNDS} rounds of ${commands.length} commands, 5 times each`);
for (const [name, values] of Object.entries(series)) {
  const sorted = values.toSorted((a, b) => a - b);
  const [low, mid, high] = [sorted[0], sorted[Math.floor(sorted.length / 2)], sorted.at(-1)];
  console.log(`  ${name.padEnd(24)}${mid?.toFixed(2).padStart(8)}   (${low?.toFixed(2)} to ${high?.toFixed(2)})`);
}

/**
 * Measures the cost of a journal on disk: per turn for one run and for a hundred concurrent runs, for replay, for opening
 * a long run with and without a snapshot, for how long that blocks the event loop, and in bytes. Alternates with the journal in memory in the same process.
 */
import { mkdtempSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setImmediate } from 'node:timers/promises';
import { memoryJournal, replay, runLoop, type Journal, type RunStore } from '@treadle/core';
import { sqliteStore } from '@treadle/store';
import { add, chainModel } from '../loop/workload.ts';

const TURNS = 20;
const ROUNDS = 9;

const folder = mkdtempSync(join(tmpdir(), 'treadle-bench-'));
let runs = 0;

async function chains(journal: RunStore, count: number, turns = TURNS): Promise<string[]> {
  const ids = Array.from({ length: count }, () => `run-${runs++}`);
  const one = { model: chainModel(turns, 0), tools: [add], input: 'go', maxTurns: turns + 1, journal };
  await Promise.all(ids.map((runId) => runLoop({ ...one, runId })));
  return ids;
}

interface Cost {
  readonly wall: number;
  readonly cpu: number;
}

/** Microseconds per turn of `count` concurrent chains. */
async function measure(journal: RunStore, count: number): Promise<Cost> {
  const [cpu, wall] = [process.cpuUsage(), performance.now()];
  await chains(journal, count);
  const { user, system } = process.cpuUsage(cpu);
  const turns = count * (TURNS + 1);
  return { wall: ((performance.now() - wall) * 1_000) / turns, cpu: (user + system) / turns };
}

function median(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)]!;
}

function row(name: string, values: readonly number[], digits = 1): void {
  const [low, mid, high] = [Math.min(...values), median(values), Math.max(...values)].map((v) => v.toFixed(digits));
  console.log(`  ${name.padEnd(44)}${mid!.padStart(10)}   (${low} to ${high})`);
}

async function timed(act: () => Promise<unknown>): Promise<number> {
  const start = performance.now();
  await act();
  return performance.now() - start;
}

/** The longest time in milliseconds between two turns of the event loop while `act` runs, and the longest by CPU time. */
async function longestBlock(act: () => Promise<unknown>): Promise<Cost> {
  const longest = { wall: 0, cpu: 0 };
  let done = false;
  const watching = (async () => {
    while (!done) {
      const [cpu, wall] = [process.threadCpuUsage(), performance.now()];
      await setImmediate();
      const { user, system } = process.threadCpuUsage(cpu);
      longest.wall = Math.max(longest.wall, performance.now() - wall);
      longest.cpu = Math.max(longest.cpu, (user + system) / 1_000);
    }
  })();
  await act();
  done = true;
  await watching;
  return longest;
}

const store = sqliteStore(join(folder, 'bench.db'));
const memory = memoryJournal();
try {
  for (const count of [1, 100]) {
    const series = { memory: [] as Cost[], sqlite: [] as Cost[] };
    for (let round = -1; round < ROUNDS; round++) {
      const sample = { memory: await measure(memory, count), sqlite: await measure(store, count) };
      if (round < 0) continue; // warming up
      series.memory.push(sample.memory);
      series.sqlite.push(sample.sqlite);
    }
    console.log(`${count} run${count === 1 ? '' : 's'} at once, ${TURNS} calls each: microseconds per turn`);
    row(
      'memory, CPU',
      series.memory.map(({ cpu }) => cpu),
    );
    row(
      'SQLite, CPU',
      series.sqlite.map(({ cpu }) => cpu),
    );
    row(
      'SQLite, wall (a full sync per commit)',
      series.sqlite.map(({ wall }) => wall),
    );
    row(
      'ratio of CPU',
      series.sqlite.map(({ cpu }, round) => cpu / series.memory[round]!.cpu),
    );
  }

  const [long] = await chains(store, 1, 5_000);
  const entries = await store.read(long!);
  const replays = [];
  for (let round = 0; round < ROUNDS; round++)
    replays.push((await timed(async () => replay(entries))) / (entries.length / 1_000));
  console.log(`a run of ${entries.length.toLocaleString('en-US')} entries: milliseconds`);
  row('replay, per 1,000 entries', replays, 2);
  const open = (journal: Journal): Promise<number> =>
    timed(() => runLoop({ model: chainModel(5_000, 0), tools: [add], journal, runId: long! }));
  const { readSnapshot: _, ...withoutSnapshot } = store;
  const opened = { with: [] as number[], without: [] as number[] };
  for (let round = 0; round < ROUNDS; round++) {
    opened.with.push(await open(store));
    opened.without.push(await open(withoutSnapshot));
  }
  row('open, with its snapshot', opened.with);
  row('open, without', opened.without);

  const LONG_TURNS = 50_000;
  const [longest] = await chains(memory, 1, LONG_TURNS);
  const longEntries = await memory.read(longest!);
  await store.append(longest!, longEntries);
  await memory.delete(longest!);
  const blocks: Cost[] = [];
  for (let round = -1; round < ROUNDS; round++) {
    const model = chainModel(LONG_TURNS, 0);
    const block = await longestBlock(() => runLoop({ model, tools: [add], journal: withoutSnapshot, runId: longest! }));
    if (round >= 0) blocks.push(block);
  }
  console.log(`open a run of ${longEntries.length.toLocaleString('en-US')} entries without a snapshot: milliseconds`);
  row(
    'longest block of the event loop',
    blocks.map(({ wall }) => wall),
  );
  row(
    'longest block, CPU of the thread',
    blocks.map(({ cpu }) => cpu),
  );

  const before = statSync(join(folder, 'bench.db')).size;
  await chains(store, 100);
  await store.close();
  const grown = statSync(join(folder, 'bench.db')).size - before;
  console.log(
    `on disk: ${Math.round(grown / 100 / (TURNS + 1))} bytes per turn (with what was still in the write-ahead log)`,
  );
} finally {
  rmSync(folder, { recursive: true });
}

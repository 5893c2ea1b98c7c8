/**
 * Compares the stores on SQLite and PostgreSQL in one run: appends a second with 1, 100 and 1,000 runs, and of several processes at
 * once, the latency of a stored response, and how long until another server has sent on an event. The PostgreSQL server is that of the
 * tests, on this machine, with `fsync`. `--prune ENTRIES`: instead, how long it takes to delete runs from a store with so many entries.
 * `--memory COUNT`: instead, how long it takes to find among so many observations, also with pgvector if a PostgreSQL here has it.
 */
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout } from 'node:timers/promises';
import type { Model } from '@treadle/core';
import { openStore } from '@treadle/store';
import { startInProcess } from '../../test/server/support/in-process.ts';
import { pgvectorFolder, startPostgres } from '../../test/store/postgres-server.ts';
import { appends } from './appends.ts';
import { memory, nearest } from './memory.ts';
import { prune } from './prune.ts';

const ROUNDS = 3;
const RESPONSES = 200;
const DELTAS = 100;

const quantile = (values: readonly number[], share: number): number =>
  values.toSorted((a, b) => a - b)[Math.floor(values.length * share)] ?? Number.NaN;

const whole = (rate: number): string => Math.round(rate).toLocaleString('en');

/** Appends a second of so many processes together, each with as many runs. */
async function ofProcesses(url: string, processes: number, runs: number): Promise<number> {
  const writers = Array.from({ length: processes }, () =>
    fork(join(import.meta.dirname, 'writer-main.ts'), [url, String(runs)], { execArgv: process.execArgv }),
  );
  await Promise.all(writers.map((writer) => once(writer, 'message')));
  const rates = writers.map(async (writer) => {
    writer.send('begin');
    const [rate] = (await once(writer, 'message')) as [number];
    await once(writer, 'exit');
    return rate;
  });
  return (await Promise.all(rates)).reduce((sum, rate) => sum + rate, 0);
}

/** A model that answers with so many numbers, and tells when it has emitted each. */
function countingModel(deltas: number, pauseMs: () => number, emitted: (n: number) => void): Model {
  return {
    id: 'counting',
    async reply(_, emit) {
      for (let n = 0; n < deltas; n++) {
        if (pauseMs() > 0) await setTimeout(pauseMs());
        emitted(n);
        await emit({ type: 'text-delta', text: `<${n}>` });
      }
      const text = Array.from({ length: deltas }, (_, n) => `<${n}>`).join('');
      const usage = { inputTokens: 1, outputTokens: 1 };
      return { type: 'reply', content: [{ type: 'text', text }], finish: 'stop', usage, model: 'counting' };
    },
  };
}

/** Of a server: stored responses of one turn, one after the other. */
async function responses(url: string): Promise<readonly number[]> {
  await using store = await disposableStore(url);
  await using server = await startInProcess(
    countingModel(
      1,
      () => 0,
      () => {},
    ),
    { store: store.store },
  );
  const times: number[] = [];
  for (let n = 0; n < RESPONSES; n++) {
    const from = performance.now();
    const { status } = await server.post({ input: 'Hi' });
    if (status !== 200) throw new Error(`A response has the status ${status}.`);
    times.push(performance.now() - from);
  }
  return times.slice(RESPONSES / 4);
}

/** From the model of one server to a client that follows at another one. */
async function following(url: string): Promise<readonly number[]> {
  await using one = await disposableStore(url);
  await using other = await disposableStore(url);
  const emittedAt: number[] = [];
  const model = countingModel(
    DELTAS,
    () => 20 + 60 * Math.random(),
    (n) => void (emittedAt[n] = performance.now()),
  );
  await using driving = await startInProcess(model, { store: one.store });
  await using asked = await startInProcess(model, { store: other.store });
  const { body } = await driving.send('POST', '/v1/responses', { input: 'Hi', background: true });
  const answer = await fetch(`${asked.url}/v1/responses/${body.id}?stream=true`);
  const times: number[] = [];
  const seen = new Set<number>();
  for await (const piece of answer.body!.pipeThrough(new TextDecoderStream())) {
    for (const [, n] of piece.matchAll(/"delta":"<(\d+)>"/g)) {
      if (!seen.has(Number(n))) times.push(performance.now() - emittedAt[Number(n)]!);
      seen.add(Number(n));
    }
  }
  if (seen.size !== DELTAS) throw new Error(`The client got ${seen.size} of ${DELTAS} events.`);
  // Those that came before it followed waited for it.
  return times.slice(10);
}

async function disposableStore(
  url: string,
): Promise<{ readonly store: Awaited<ReturnType<typeof openStore>> } & AsyncDisposable> {
  const store = await openStore(url);
  return { store, [Symbol.asyncDispose]: () => store.close() };
}

async function compare(urls: Readonly<Record<string, string>>): Promise<void> {
  const all = Object.values(urls);
  const line = (what: string, values: readonly string[]): void => console.log(`| ${what} | ${values.join(' | ')} |`);
  line('', Object.keys(urls));
  line(
    '---',
    all.map(() => '---:'),
  );
  /** The best of several rounds, in turns, because other work disturbs one more than the other. */
  async function best(what: string, measure: (url: string) => Promise<number>): Promise<void> {
    const found = all.map(() => 0);
    for (let round = 0; round < ROUNDS; round++) {
      for (const [index, url] of all.entries()) found[index] = Math.max(found[index]!, await measure(url));
    }
    line(what, found.map(whole));
  }
  async function latency(what: string, measure: (url: string) => Promise<readonly number[]>): Promise<void> {
    const cells: string[] = [];
    for (const url of all) {
      const times = await measure(url);
      cells.push(`${quantile(times, 0.5).toFixed(1)} (${quantile(times, 0.95).toFixed(1)})`);
    }
    line(what, cells);
  }
  for (const runs of [1, 100, 1_000]) {
    for (const until of ['durable', 'written'] as const) {
      await best(`appends a second, ${runs} runs, ${until}`, async (url) => {
        await using one = await disposableStore(url);
        return await appends(one.store, runs, until);
      });
    }
  }
  for (const processes of [1, 2, 4]) {
    await best(`${processes} processes with 250 runs each, durable`, (url) => ofProcesses(url, processes, 250));
  }
  await latency('a stored response, ms (p95)', responses);
  await latency('an event at another server, ms (p95)', following);
}

const settings = ['shared_buffers=256MB', 'max_wal_size=4GB'];

async function nearestWithPgvector(count: number): Promise<void> {
  const programs = pgvectorFolder();
  if (programs === undefined) return console.log('\nNo PostgreSQL here has pgvector.');
  await using server = await startPostgres({ settings, folder: programs });
  await nearest(server.url(), count);
}

const folder = mkdtempSync(join(tmpdir(), 'treadle-bench-'));
try {
  await using server = await startPostgres({ settings });
  const [what, count] = process.argv.slice(2);
  const urls = { SQLite: `sqlite:${join(folder, 'bench.db')}`, PostgreSQL: server.url() };
  if (what === '--prune') await prune(server.url(), Number(count ?? 10_000_000));
  else if (what === '--memory') {
    await memory(urls, Number(count ?? 100_000));
    await nearestWithPgvector(Number(count ?? 100_000));
  } else await compare(urls);
} finally {
  rmSync(folder, { recursive: true });
}

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { openStore } from '@treadle/store';
import { expect } from 'vitest';
import type { Logged } from '../logged-store.ts';
import { startedCalls, endsOf, withInterruptedResults, interruptedCalls, type End } from '../log-queries.ts';
import { randomFrom } from '../../random.ts';
import { newStore, type StoreKind } from '../../store/kinds.ts';
import { ledger, type Line } from './ledger.ts';
import { runProcess, type Kill, type Program } from './process.ts';

interface Kills {
  readonly store: StoreKind;
  /** The first seed. */
  readonly first: number;
  readonly wanted: number;
  /** Runs at the same time. */
  readonly atOnce: number;
}

/** Kills processes, a few for each seed. With `TREADLE_SEED` in the environment, only those of that seed. */
export async function killMany(program: Program, kills: Kills): Promise<readonly Outcome[]> {
  const reference = await runUndisturbed(program, kills.store);
  const only = process.env['TREADLE_SEED'];
  return only === undefined ? await killRuns(reference, kills) : [await killRun(Number(only), reference)];
}

async function killRuns(reference: Reference, { first, wanted, atOnce }: Kills): Promise<readonly Outcome[]> {
  const outcomes: Outcome[] = [];
  const failures: unknown[] = [];
  let seed = first;
  const work = async (): Promise<void> => {
    while (failures.length === 0 && countKills(outcomes) < wanted) {
      await killRun(seed++, reference).then(
        (outcome) => outcomes.push(outcome),
        (error: unknown) => failures.push(error),
      );
    }
  };
  // Wait for all of them, so that no process remains.
  await Promise.all(Array.from({ length: atOnce }, work));
  if (failures.length > 0) throw failures[0];
  return outcomes;
}

export function countKills(outcomes: readonly Outcome[]): number {
  return outcomes.reduce((sum, { kills }) => sum + kills.length, 0);
}

/** A summary of the kills and their consequences. */
export function summaryOf(outcomes: readonly Outcome[]): string {
  const interrupted = outcomes.filter((outcome) => outcome.interrupted.length > 0);
  const where = interrupted.map((outcome) => `seed ${outcome.seed}: ${outcome.interrupted.join(', ')}`).join('; ');
  return `${countKills(outcomes)} kills of ${outcomes.length} runs. Interrupted, effect unknown: ${where || 'none'}`;
}

/** The end of an undisturbed run. */
interface Reference {
  readonly program: Program;
  readonly store: StoreKind;
  readonly ends: Readonly<Record<string, End>>;
  readonly ledger: readonly Line[];
  /** The number of lines that all its processes print. */
  readonly lines: number;
}

async function runUndisturbed(program: Program, kind: StoreKind): Promise<Reference> {
  await using place = await newPlace(kind);
  const { folder, store } = place;
  let lines = 0;
  for (let end; end !== 'ended';) {
    const finished = await runProcess({ program, folder, store });
    lines += finished.lines.length;
    ({ end } = finished);
  }
  return { program, store: kind, ends: endsOf(await logOf(store)), ledger: ledger(folder).read(), lines };
}

/** The outcome of a run whose processes were killed. */
interface Outcome {
  readonly seed: number;
  /** The lines after which processes were killed. */
  readonly kills: readonly string[];
  /** Calls that were answered "interrupted, effect unknown", with their entries. */
  readonly interrupted: readonly string[];
}

/** Kills processes of a run at moments that the seed determines, starts others until it has ended, and checks it. */
async function killRun(seed: number, reference: Reference): Promise<Outcome> {
  const { program } = reference;
  await using place = await newPlace(reference.store);
  const { folder, store } = place;
  const kills: string[] = [];
  try {
    const unknown = new Set<string>();
    const plan = planOf(seed, reference.lines);
    let printed = 0;
    for (let end; end !== 'ended';) {
      const kill = plan[0] && { ...plan[0], after: Math.max(1, plan[0].after - printed) };
      const finished = await runProcess({ program, folder, store, kill });
      ({ end } = finished);
      printed += finished.lines.length;
      if (end !== 'killed') continue;
      plan.shift();
      kills.push(`${finished.lines.length}: ${finished.lines.at(-1)}`);
      for (const key of await unknowableCalls(place)) unknown.add(key);
    }
    const log = await logOf(store);
    expect(interruptedCalls(log)).toEqual(unknown);
    expect(endsOf(log)).toEqual(
      Object.fromEntries(
        Object.entries(reference.ends).map(([runId, end]) => [runId, withInterruptedResults(runId, end, unknown)]),
      ),
    );
    checkLedger(ledger(folder).read(), reference.ledger, unknown);
    return { seed, kills, interrupted: positionsOf(log, unknown) };
  } catch (error) {
    const how = `TREADLE_SEED=${seed} npx vitest run test/crash/kill.test.ts`;
    const message = `Seed ${seed} failed: ${(error as Error).message}\nKilled after ${kills.join(' | ')}\nRepeat it with ${how}`;
    throw new Error(message, { cause: error });
  }
}

/** Two to five kills, about half of them exactly at a line. */
function planOf(seed: number, lines: number): Kill[] {
  const next = randomFrom(seed);
  const count = 2 + Math.floor(next() * 4);
  const kills = Array.from({ length: count }, (): Kill => ({
    after: 1 + Math.floor(next() * lines),
    by: next() < 0.5 ? 'self' : 'other',
    ms: next() * 3,
  }));
  return kills.sort((a, b) => a.after - b.after);
}

/** Calls whose effect can never be known after a kill. */
async function unknowableCalls({ folder, store }: Place): Promise<readonly string[]> {
  const lines = ledger(folder).read();
  const has = (key: string, type: Line['type']): boolean =>
    lines.some((line) => line.key === key && line.type === type);
  const started = [...startedCalls(await logOf(store))].filter(([, { effect }]) => effect === 'once');
  const lost = started.filter(([key, { verifiable }]) => !verifiable || (has(key, 'begin') && !has(key, 'end')));
  return lost.map(([key]) => key);
}

/** No action is missing, none with the effect `once` started twice, and repeated ones have the same key. */
function checkLedger(lines: readonly Line[], expected: readonly Line[], unknown: ReadonlySet<string>): void {
  const keys = new Set(expected.map(({ key }) => key));
  expect(lines.filter(({ key }) => !keys.has(key))).toEqual([]);
  for (const key of keys) {
    const { effect } = expected.find((line) => line.key === key)!;
    const [started, ended] = (['begin', 'end'] as const).map(
      (type) => lines.filter((line) => line.key === key && line.type === type).length,
    );
    if (effect === 'once') expect(started, `${key} started`).toBeLessThan(2);
    // An action that does not start before it is done is one write.
    const isAtomic = !expected.some((line) => line.key === key && line.type === 'begin');
    if (isAtomic) expect(ended, `${key} was done`).toBe(1);
    if (!unknown.has(key)) expect(ended, `${key} was done`).toBeGreaterThan(0);
  }
}

/** The entries that answered these calls, as `key@seq`. */
function positionsOf(log: readonly Logged[], unknown: ReadonlySet<string>): readonly string[] {
  return [...unknown].map((key) => {
    const [runId, effect] = key.split('/') as [string, string];
    const about = [effect, effect.replace('.tool.', '.verify.')];
    const item = log.findLast(
      (one) =>
        one.type === 'entry' &&
        one.runId === runId &&
        'effect' in one.entry.event &&
        about.includes(one.entry.event.effect!),
    );
    return `${key}@${item?.type === 'entry' ? item.entry.seq : '?'}`;
  });
}

async function logOf(url: string): Promise<readonly Logged[]> {
  const store = await openStore(url);
  try {
    const log: Logged[] = [];
    for (const { runId } of await store.list()) {
      for (const entry of await store.read(runId)) log.push({ type: 'entry', runId, entry, batch: entry.seq });
    }
    return log;
  } finally {
    await store.close();
  }
}

/** A folder for the ledger, and a store. */
interface Place extends AsyncDisposable {
  readonly folder: string;
  readonly store: string;
}

async function newPlace(kind: StoreKind): Promise<Place> {
  const store = await newStore(kind);
  const folder = mkdtempSync(path.join(tmpdir(), 'treadle-kill-'));
  return {
    folder,
    store: store.url,
    async [Symbol.asyncDispose]() {
      rmSync(folder, { recursive: true, force: true });
      await store[Symbol.asyncDispose]();
    },
  };
}

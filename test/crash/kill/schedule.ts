import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { sqliteStore } from '@treadle/store';
import { expect } from 'vitest';
import type { Logged } from '../logged-store.ts';
import { begunIn, endsOf, interrupted, interruptedIn, type End } from '../standing.ts';
import { ledger, type Line } from './ledger.ts';
import { live, type Kill, type Program } from './process.ts';
import { random } from './random.ts';

/** What an undisturbed run comes to. */
export interface Reference {
  readonly program: Program;
  readonly ends: Readonly<Record<string, End>>;
  readonly ledger: readonly Line[];
  /** That all its processes print. */
  readonly lines: number;
}

export async function undisturbed(program: Program): Promise<Reference> {
  const { folder, remove } = place();
  try {
    let lines = 0;
    for (let end; end !== 'ended';) {
      const lived = await live(program, folder);
      lines += lived.lines.length;
      ({ end } = lived);
    }
    return { program, ends: endsOf(await logOf(folder)), ledger: ledger(folder).read(), lines };
  } finally {
    remove();
  }
}

/** How a run went whose processes were killed. */
export interface Outcome {
  readonly seed: number;
  /** After which lines it was killed. */
  readonly kills: readonly string[];
  /** Calls that were answered "interrupted, effect unknown", and by which entry. */
  readonly interrupted: readonly string[];
}

/** Kills the processes of a run at moments that follow from the seed, starts others until it has ended, and checks it. */
export async function killed(seed: number, reference: Reference): Promise<Outcome> {
  const { folder, remove } = place();
  const kills: string[] = [];
  try {
    const unknown = new Set<string>();
    const plan = planOf(seed, reference.lines);
    let printed = 0;
    for (let end; end !== 'ended';) {
      const next = plan[0] && { ...plan[0], after: Math.max(1, plan[0].after - printed) };
      const lived = await live(reference.program, folder, next);
      ({ end } = lived);
      printed += lived.lines.length;
      if (end !== 'killed') continue;
      plan.shift();
      kills.push(`${lived.lines.length}: ${lived.lines.at(-1)}`);
      for (const key of await unknowable(folder)) unknown.add(key);
    }
    const log = await logOf(folder);
    expect(interruptedIn(log)).toEqual(unknown);
    expect(endsOf(log)).toEqual(
      Object.fromEntries(
        Object.entries(reference.ends).map(([runId, end]) => [runId, interrupted(runId, end, unknown)]),
      ),
    );
    checkLedger(ledger(folder).read(), reference.ledger, unknown);
    return { seed, kills, interrupted: positionsOf(log, unknown) };
  } catch (error) {
    const how = `TREADLE_SEED=${seed} npx vitest run test/crash/kill.test.ts`;
    const message = `Seed ${seed} failed: ${(error as Error).message}\nKilled after ${kills.join(' | ')}\nRepeat it with ${how}`;
    throw new Error(message, { cause: error });
  } finally {
    remove();
  }
}

/** Two to five kills; about half of them to the very line. */
function planOf(seed: number, lines: number): Kill[] {
  const next = random(seed);
  const count = 2 + Math.floor(next() * 4);
  const kills = Array.from({ length: count }, (): Kill => ({
    after: 1 + Math.floor(next() * lines),
    by: next() < 0.5 ? 'self' : 'other',
    ms: next() * 3,
  }));
  return kills.sort((a, b) => a.after - b.after);
}

/** Calls of which nobody will ever know whether they took effect, after a process was killed. */
async function unknowable(folder: string): Promise<readonly string[]> {
  const lines = ledger(folder).read();
  const has = (key: string, type: Line['type']): boolean =>
    lines.some((line) => line.key === key && line.type === type);
  const begun = [...begunIn(await logOf(folder))].filter(([, { effect }]) => effect === 'once');
  const lost = begun.filter(([key, { verifiable }]) => !verifiable || (has(key, 'begin') && !has(key, 'end')));
  return lost.map(([key]) => key);
}

/** Nothing is lost, nothing that acts once began twice, and what ran again did so under the same key. */
function checkLedger(lines: readonly Line[], expected: readonly Line[], unknown: ReadonlySet<string>): void {
  const keys = new Set(expected.map(({ key }) => key));
  expect(lines.filter(({ key }) => !keys.has(key))).toEqual([]);
  for (const key of keys) {
    const { effect } = expected.find((line) => line.key === key)!;
    const [begun, ended] = (['begin', 'end'] as const).map(
      (type) => lines.filter((line) => line.key === key && line.type === type).length,
    );
    if (effect === 'once') expect(begun, `${key} began`).toBeLessThan(2);
    if (!unknown.has(key)) expect(ended, `${key} was done`).toBeGreaterThan(0);
  }
}

/** `key@seq`: by which entry of its run a call was answered so. */
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

async function logOf(folder: string): Promise<readonly Logged[]> {
  const store = sqliteStore(path.join(folder, 'runs.db'));
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

function place(): { readonly folder: string; readonly remove: () => void } {
  const folder = mkdtempSync(path.join(tmpdir(), 'treadle-kill-'));
  return { folder, remove: () => rmSync(folder, { recursive: true, force: true }) };
}

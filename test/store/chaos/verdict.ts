import type { JournalEntry } from '@treadle/core';
import { checkPostgresStore, postgresStore, type PostgresStore } from '@treadle/store';
import { interruptedCalls, settledCalls } from '../../crash/log-queries.ts';
import type { Logged } from '../../crash/logged-store.ts';
import { lostFacts } from '../../crash/power/told.ts';
import type { ChaosRun, Seen } from './clients.ts';
import { lastText } from './model.ts';
import { readLedger, type LedgerLine } from './ledger.ts';

export interface Verdict {
  /** Calls that acted. */
  readonly acted: number;
  /** Calls that were answered "interrupted, effect unknown". */
  readonly interrupted: number;
  /** How often runs were taken over from a server that had died or lost its lease. */
  readonly recovered: number;
  readonly twice: readonly string[];
  readonly lost: readonly string[];
  readonly stuck: readonly string[];
  /** What clients were told, and the store does not contain. */
  readonly untrue: readonly string[];
  /** Anything else that is wrong. */
  readonly wrong: readonly string[];
}

/** Compares the store with the ledger, with what clients were told, and with what the runs had to do. */
export async function judge(url: string, ledgerFile: string, runs: readonly ChaosRun[], seen: Seen): Promise<Verdict> {
  const store = await postgresStore(url);
  try {
    const ledger = readLedger(ledgerFile);
    const found = await findRuns(store);
    const outcome = { twice: doneTwice(ledger), lost: [] as string[], stuck: [] as string[], wrong: [...seen.wrong] };
    let [interrupted, recovered] = [0, 0];
    for (const run of runs) {
      const stored = found.get(run.tag) ?? [];
      if (stored.length > 1) outcome.wrong.push(`${run.tag} has ${stored.length} runs`);
      if (!stored[0]) {
        outcome.lost.push(`${run.tag}: there is no run`);
        continue;
      }
      const checked = checkRun(
        run,
        stored[0],
        ledger.filter(({ tag }) => tag === run.tag),
      );
      interrupted += checked.interrupted;
      recovered += stored[0].recovered;
      outcome.lost.push(...checked.lost);
      outcome.stuck.push(...checked.stuck);
    }
    for (const [tag, what] of seen.waiting) outcome.stuck.push(`the client of ${tag} ${what}`);
    const { problems } = await checkPostgresStore(url);
    outcome.wrong.push(...problems.map((problem) => JSON.stringify(problem)));
    const untrue = await lostFacts(store, seen.facts);
    return { ...outcome, acted: ledger.length, interrupted, recovered, untrue };
  } finally {
    await store.close();
  }
}

interface StoredRun {
  readonly runId: string;
  readonly status: string;
  readonly recovered: number;
  readonly entries: readonly JournalEntry[];
}

async function findRuns(store: PostgresStore): Promise<ReadonlyMap<string, readonly StoredRun[]>> {
  const found = new Map<string, StoredRun[]>();
  for (const { runId, status, recovered } of await store.list({ limit: Infinity })) {
    const entries = await store.read(runId);
    const tag = /\b(r\d+): /.exec(JSON.stringify(entries[0]))?.[1] ?? runId;
    found.set(tag, [...(found.get(tag) ?? []), { runId, status, recovered: recovered?.times ?? 0, entries }]);
  }
  return found;
}

function doneTwice(ledger: readonly LedgerLine[]): readonly string[] {
  const seen = new Map<string, string>();
  return ledger.flatMap(({ tool, tag, step, key }) => {
    const call = `${tool} ${tag} ${step}`;
    const before = seen.get(call);
    seen.set(call, key);
    return before === undefined ? [] : [`${call}: ${before} and ${key}`];
  });
}

interface CheckedRun {
  readonly lost: readonly string[];
  readonly stuck: readonly string[];
  readonly interrupted: number;
}

function checkRun({ tag, tools, kind }: ChaosRun, run: StoredRun, lines: readonly LedgerLine[]): CheckedRun {
  const { runId, entries, status } = run;
  const log = entries.map((entry): Logged => ({ type: 'entry', runId, entry, batch: entry.seq }));
  const [settled, interrupted] = [settledCalls(log), interruptedCalls(log)];
  const at = `${tag} (${kind}, ${runId}, ${status})`;
  const isCancelled = status === 'cancelled' && kind === 'cancelled';
  const stuck = status === 'completed' || isCancelled ? [] : [`${at}: ${JSON.stringify(entries.at(-1)).slice(0, 300)}`];
  const lost: string[] = [];
  const expected = tools.map((tool, step) => ({ tool, key: `${runId}/t${step + 1}.tool.0` }));
  for (const { key, tool } of expected) {
    const acted = lines.some((line) => line.key === key);
    if (settled.has(key) && !interrupted.has(key) && !acted) lost.push(`${at}: ${key} has a result, and did not act`);
    if (status !== 'completed') continue;
    if (!settled.has(key) && !interrupted.has(key)) lost.push(`${at}: ${key} has no result`);
    // Whether it has acted can be found out.
    if (tool === 'wire' && !acted) lost.push(`${at}: ${key} did not act`);
  }
  const keys = new Set(expected.map(({ key }) => key));
  for (const { key } of lines) if (!keys.has(key)) lost.push(`${at}: ${key} acted, and is not in the journal`);
  if (status === 'completed' && !JSON.stringify(entries).includes(lastText(tag)))
    lost.push(`${at}: it has no last text`);
  if (lost.length > 0)
    lost.push(`${at}: ${entries.map(describeEntry).join(', ')}; acted: ${lines.map(({ key }) => key).join(', ')}`);
  return { lost, stuck, interrupted: interrupted.size };
}

function describeEntry({ event }: JournalEntry): string {
  return 'effect' in event ? `${event.type} ${event.effect}` : event.type;
}

import { forkRun, TreadleError, type JournalEntry, type RunStore } from '@treadle/core';
import {
  addMetrics,
  errorCount,
  liveSteps,
  metricsOf,
  metricsReader,
  NO_METRICS,
  traceOf,
  traceReader,
  type Metrics,
  type Trace,
} from '@treadle/core/trace';
import { countNotedRuns, findMetrics, type Store } from '@treadle/store';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { emptyStores, type EmptyStores } from '../store/kinds.ts';
import { SCENARIOS } from './all-scenarios.ts';
import { calls } from './scenarios/calls.ts';
import { worldAfterCrash } from './crash.ts';
import { played } from './crash-everywhere.ts';
import { cutsOf, type Cut } from './cuts.ts';
import { play, type Scenario } from './scenario.ts';
import { RUN, type World } from './world.ts';

/*
 * Traces and metrics are projections of journals. Here, runs with child runs, handoffs, programs and typed agents crash at each
 * entry and are resumed; then they are forked, and the forks too. What processes have projected while they drove the runs, also the
 * one that crashed, equals what the journals say afterwards, and the sums of the store are those of the journals.
 */

/** A process, which projects the entries that it appends. */
class Process {
  isAlive = true;
  readonly #runs = new Map<string, ReturnType<typeof projections>>();

  /** A run that others have driven so far: their entries are counted. */
  recall(runId: string, entries: readonly JournalEntry[]): void {
    const run = projections(entries.length);
    this.#runs.set(runId, run);
    run.add(entries);
  }

  readonly wrap = (store: RunStore): RunStore => ({
    ...store,
    append: async (runId, entries, ...rest) => {
      await store.append(runId, entries, ...rest);
      if (!this.isAlive) return;
      if (!this.#runs.has(runId)) this.recall(runId, []);
      this.#runs.get(runId)!.add(JSON.parse(JSON.stringify(entries)) as readonly JournalEntry[]);
    },
  });

  trace(runId: string): Trace | undefined {
    return this.#runs.get(runId)?.trace.trace();
  }

  get counted(): readonly Metrics[] {
    return [...this.#runs.values()].flatMap(({ metrics }) => [...metrics.hours.values()]);
  }
}

function projections(from: number) {
  const [trace, metrics, next] = [traceReader(), metricsReader(from), liveSteps()];
  return {
    trace,
    metrics,
    add(entries: readonly JournalEntry[]) {
      for (const { seq, event } of entries) {
        const step = next(seq, event)!;
        trace.add(step);
        metrics.add(step);
      }
    },
  };
}

/** The order in which tools were first called does not matter. */
function sum(all: readonly Metrics[]): Metrics {
  const { loop, tools } = all.reduce(addMetrics, NO_METRICS);
  return { loop, tools: Object.fromEntries(Object.entries(tools).toSorted(([a], [b]) => (a < b ? -1 : 1))) };
}

/** Forks the run after half of its entries, and the fork once more, and lets both end. Returns how many entries each took over. */
async function forkTwice(
  scenario: Scenario,
  store: Store,
  { after, process }: { readonly after: World; readonly process: Process },
): Promise<ReadonlyMap<string, number>> {
  const made = new Map<string, number>();
  let original = RUN;
  for (const newRunId of ['fork', 'fork-of-fork']) {
    await after.clock.advance(1_000);
    const { length } = await store.read(original);
    const at = Math.floor(length / 2);
    try {
      original = await forkRun({ journal: store, runId: original, at, newRunId, clock: after.clock });
      const entries = await store.read(newRunId);
      made.set(newRunId, entries.length);
      process.recall(newRunId, entries);
      await play(scenario, { ...after, runId: newRunId });
    } catch (error) {
      // Some runs cannot be forked there, or what the fork waits for has passed.
      if (error instanceof TreadleError && UNFORKABLE.has(error.code)) break;
      throw error;
    }
  }
  return made;
}

const UNFORKABLE: ReadonlySet<string> = new Set(['invalid-options', 'answer-unfit']);

interface Crash {
  readonly reference: World;
  readonly cut: Cut;
}

async function crashAndProject(stores: EmptyStores, scenario: Scenario, { reference, cut }: Crash): Promise<number> {
  const store = await stores.open();
  try {
    const killed = new Process();
    const crashed = await worldAfterCrash(reference, { cut, moment: 'before', store: killed.wrap(store) });
    killed.isAlive = false;
    // The store has got some of its sums.
    await countNotedRuns(store, { limit: 1 });
    const process = new Process();
    for (const { runId } of await store.list({ limit: Infinity })) process.recall(runId, await store.read(runId));
    const after = await play(scenario, { ...crashed, store: process.wrap(crashed.store) });
    const isForked = 'code' in scenario && !scenario.begin && !scenario.abandoned;
    const forked = isForked ? await forkTwice(scenario, store, { after, process }) : new Map<string, number>();

    const journals = await Promise.all((await store.list({ limit: Infinity })).map(({ runId }) => store.read(runId)));
    for (const entries of journals) {
      const { runId } = entries[0]!.event as { readonly runId: string };
      expect(process.trace(runId)).toEqual(await traceOf(entries));
      // What a fork took over is counted for its original.
      const taken = forked.get(runId) ?? 0;
      expect(await metricsOf(entries)).toEqual(await metricsOf(entries, taken));
      // Nothing stopped while a fork was driven: what it finds without a result was never performed for it. Only what came of a
      // call of the original that runs once is not known.
      const { failures } = process.trace(runId)!;
      const unknown = new Set(failures.filter(({ type }) => type === 'interrupted').map(({ effect }) => effect));
      const losses = failures.filter(
        ({ type, seq, effect }) => type === 'lost' && seq >= taken && !unknown.has(effect),
      );
      if (taken > 0) expect(losses).toEqual([]);
    }
    const rebuilt = await Promise.all(journals.map(async (entries) => [...(await metricsOf(entries))!.values()]));
    const all = sum(rebuilt.flat());
    expect(sum([...killed.counted, ...process.counted])).toEqual(all);
    for (const tool of Object.values(all.tools)) expect(tool.recovered).toBeLessThanOrEqual(errorCount(tool));
    // A run that a crash has left alone has not stopped, so that it is not counted.
    if (!scenario.abandoned) expect(await findMetrics(store)).toEqual({ metrics: all, waiting: 0 });
    const { metrics } = await findMetrics(store);
    await store.metrics.restart();
    expect((await findMetrics(store)).metrics).toEqual(metrics);
    return forked.size;
  } finally {
    await store.close();
  }
}

const IS_LONG = process.env['TREADLE_CASES'] !== undefined;

/** A part of the crashes: those of test/long are all of them on SQLite, and every fifth on PostgreSQL. */
const PARTS = [
  { kind: 'SQLite', scenarios: SCENARIOS, step: IS_LONG ? 1 : 5, leastForks: 50 },
  { kind: 'PostgreSQL', scenarios: IS_LONG ? SCENARIOS : [calls], step: 5, leastForks: 0 },
] as const;

describe.each(PARTS)('on $kind', ({ kind, scenarios, step, leastForks }) => {
  let stores: EmptyStores;
  let forks = 0;
  beforeAll(async () => {
    stores = await emptyStores(kind);
  });
  afterAll(() => stores[Symbol.asyncDispose]());

  test.each(scenarios.map((scenario) => [scenario.name, scenario] as const))('%s', async (_, scenario) => {
    const reference = await played(scenario, { faults: false });
    const { log } = await played(scenario, { faults: true });
    for (const [index, cut] of cutsOf(log).entries()) {
      if (index % step !== 0) continue;
      try {
        forks += await crashAndProject(stores, scenario, { reference, cut });
      } catch (error) {
        throw new Error(`After a crash at ${cut.label}: ${(error as Error).message}`, { cause: error });
      }
    }
  });

  test('many of them are forked twice', () => {
    expect(forks).toBeGreaterThan(leastForks);
  });
});

import { replay, walkJournal, type FollowedRun, type JournalEntry, type Outcome } from '@treadle/core';
import { observationReader, observationsOf, type Forgetting, type Observation } from '@treadle/core/memory';
import { openTelemetry } from '@treadle/core/otel';
import {
  addMetrics,
  errorCount,
  liveSteps,
  metricsReader,
  NO_METRICS,
  traceReader,
  metricsOf,
  type Metrics,
  type Trace,
} from '@treadle/core/trace';
import { countNotedRuns, findMetrics } from '@treadle/store';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { emptyStores, STORE_KINDS } from '../store/kinds.ts';
import { recordingSdk } from '../telemetry/recorded-spans.ts';
import { loadCore } from './core.ts';
import { drive } from './drive.ts';
import { worlds } from './generate/worlds.ts';
import { PARAMETERS } from './properties.ts';
import type { World } from './world.ts';

const core = loadCore();

/** The journal of a world, as it is stored. */
function journalOf(world: World): readonly JournalEntry[] {
  const applied = drive(core, world).moments.filter((moment) => moment.applied);
  const entries = applied.map(({ event, effects, after }, seq) => core.entryOf(seq, event, { state: after, effects }));
  return JSON.parse(JSON.stringify(entries)) as JournalEntry[];
}

/** A server follows its run. After a crash another one follows it from the entry `crash` on, and reads those before. */
function live(entries: readonly JournalEntry[], crash: number): Projections {
  const follow = (from: number, to: number) => {
    const [trace, metrics, memory, next] = [traceReader(), metricsReader(from), observationReader(from), liveSteps()];
    for (const { seq, event } of entries.slice(0, to)) {
      const step = next(seq, event)!;
      trace.add(step);
      metrics.add(step);
      memory.add(step);
    }
    return { trace: trace.trace(), hours: metrics.hours, observations: memory.observations };
  };
  const [before, after] = [follow(0, crash), follow(crash, entries.length)];
  return {
    trace: after.trace!,
    hours: [...before.hours.values(), ...after.hours.values()].reduce(addMetrics, NO_METRICS),
    observations: [...before.observations, ...after.observations],
  };
}

interface Projections {
  readonly trace: Trace;
  readonly hours: Metrics;
  readonly observations: readonly Observation[];
}

/** All projections, rebuilt from the journal. */
function rebuilt(entries: readonly JournalEntry[]): Projections {
  const [trace, metrics, memory] = [traceReader(), metricsReader(), observationReader()];
  const walked = walkJournal(entries, (step) => {
    trace.add(step);
    metrics.add(step);
    memory.add(step);
  });
  expect(walked.type).toBe('replayed');
  const hours = [...metrics.hours.values()].reduce(addMetrics, NO_METRICS);
  return { trace: trace.trace()!, hours, observations: memory.observations };
}

/** A part of the worlds: test:long has more. */
const RUNS = PARAMETERS.numRuns * Number(process.env['TREADLE_CASES'] ?? 1);
const numRuns = Math.ceil(RUNS / 4);
const IS_LONG = process.env['TREADLE_CASES'] !== undefined;
const STORE_RUNS = { SQLite: Math.ceil(RUNS / 16), PostgreSQL: IS_LONG ? Math.ceil(RUNS / 64) : 1 };

test('traces, metrics and observations that are rebuilt from a journal equal those that were live, with a crash at any entry', () => {
  const property = fc.property(worlds, fc.nat(), (world, place) => {
    const entries = journalOf(world);
    expect(live(entries, place % (entries.length + 1))).toEqual(rebuilt(entries));
  });
  fc.assert(property, { ...PARAMETERS, numRuns });
});

/** What OpenTelemetry gets of a run whose process is killed at the entry `crash`, and which another process resumes then. */
function reported(
  entries: readonly JournalEntry[],
  crash: number,
): { readonly spans: unknown; readonly values: unknown } {
  const { tracer, meter, spans, values } = recordingSdk();
  const tracing = openTelemetry({ tracer, meter });
  const started = entries[0]!.event as FollowedRun['started'];
  const steps = entries.map(
    (
      (next) =>
      ({ seq, event }) =>
        next(seq, event)!
    )(liveSteps()),
  );
  const follow = (isResumed: boolean): ReturnType<typeof tracing.follow> =>
    tracing.follow({
      runId: started.runId,
      started,
      isResumed,
      now: steps[Math.max(0, crash - 1)]!.entry.event.at,
      models: [],
    });
  if (crash > 0) {
    const killed = follow(false);
    killed.begin();
    for (const step of steps.slice(0, crash)) killed.add(step);
  }
  const run = follow(crash > 0);
  for (const step of steps.slice(0, crash)) run.recall(step);
  run.begin();
  for (const step of steps.slice(crash)) run.add(step);
  run.end();
  const ofEffects = spans.filter(({ attributes }) => attributes['treadle.effect'] !== undefined);
  const texts = ofEffects.map(({ spanId: _, parentId: __, traceId: ___, ...span }) => JSON.stringify(span)).toSorted();
  const counted = values.filter(({ name }) => !/invoke_agent|workflow/.test(name));
  return { spans: texts, values: counted.map((value) => JSON.stringify(value)).toSorted() };
}

test('spans and metrics of OpenTelemetry are the same with a crash at any entry, and none is lost or sent twice', () => {
  const property = fc.property(worlds, fc.nat(), (world, place) => {
    const entries = journalOf(world);
    expect(reported(entries, place % (entries.length + 1))).toEqual(reported(entries, 0));
  });
  fc.assert(property, { ...PARAMETERS, numRuns });
});

/** What a server does between two appends: counts, dies before it has added what it has counted, or adds it much later. */
const counting = fc.array(
  fc.tuple(fc.integer({ min: 1, max: 8 }), fc.constantFrom('none', 'count', 'killed', 'late')),
  {
    minLength: 1,
    maxLength: 12,
  },
);

test.each(STORE_KINDS)(
  'the sums of a store are those of its journals, whenever its processes count and are killed, on %s',
  async (kind) => {
    await using stores = await emptyStores(kind);
    const property = fc.asyncProperty(worlds, counting, async (world, parts) => {
      const entries = journalOf(world);
      const runId = String((entries[0]!.event as { readonly runId?: string }).runId);
      const store = await stores.open();
      const late: Parameters<typeof store.metrics.add>[0][] = [];
      try {
        for (let [next, turn] = [0, 0]; next < entries.length; turn++) {
          const [size, act] = parts[turn % parts.length]!;
          await store.append(runId, entries.slice(next, (next += size)));
          const noted = act === 'none' ? [] : await store.metrics.noted(10);
          if (act === 'count') await countNotedRuns(store);
          if (act !== 'late' || noted.length === 0) continue;
          const all = await store.read(runId);
          const { counted } = noted[0]!;
          const hours = (await metricsOf(all, counted))!;
          late.push([{ ...noted[0]!, next: all.length, tenant: undefined, hours }]);
          if (late.length > 1) await store.metrics.add(late.shift()!);
        }
        for (const one of late) await store.metrics.add(one);
        const { metrics, waiting } = await findMetrics(store);
        expect(waiting).toBe(0);
        if (entries.at(-1)!.status !== undefined) expect(metrics).toEqual(rebuilt(entries).hours);
        await store.metrics.restart();
        expect((await findMetrics(store)).metrics).toEqual(metrics);
      } finally {
        await store.close();
      }
    });
    await fc.assert(property, { ...PARAMETERS, numRuns: STORE_RUNS[kind] });
  },
);

/** What a server and people do between two appends. */
const remembering = fc.array(
  fc.record({
    size: fc.integer({ min: 1, max: 8 }),
    act: fc.constantFrom('none', 'count', 'count elsewhere', 'killed', 'late', 'forget one', 'forget older', 'rebuild'),
    place: fc.nat(),
  }),
  { minLength: 1, maxLength: 12 },
);

test.each(STORE_KINDS)(
  'the memory of a store is what its journals say without what was forgotten, whenever its processes are killed, on %s',
  async (kind) => {
    await using stores = await emptyStores(kind);
    let forgotten = 0;
    const property = fc.asyncProperty(worlds, remembering, async (world, parts) => {
      const entries = journalOf(world);
      const { runId: name, principal } = entries[0]!.event as FollowedRun['started'];
      const runId = String(name);
      const reader = { ...(principal && { tenant: principal.tenant }) };
      const store = await stores.open();
      const forgets: Forgetting[] = [];
      const late: Parameters<typeof store.metrics.add>[0][] = [];
      const keep = async (): Promise<void> => {
        while ((await countNotedRuns(store, { keepsMemory: true })) > 0);
      };
      const remembered = async (): Promise<readonly Observation[]> =>
        sorted((await store.memory.list({ ...reader, limit: 10_000 })) as readonly Observation[]);
      try {
        for (let [next, turn] = [0, 0]; next < entries.length; turn++) {
          const { size, act, place } = parts[turn % parts.length]!;
          await store.append(runId, entries.slice(next, (next += size)));
          if (act === 'count') await keep();
          if (act === 'count elsewhere') await countNotedRuns(store);
          if (act === 'rebuild') await store.memory.restart();
          if (act.startsWith('forget')) {
            const all = rebuilt(entries).observations;
            const one = all[place % Math.max(1, all.length)];
            if (!one) continue;
            const what = { ...reader, ...(act === 'forget one' && { id: one.id }), until: one.at };
            forgets.push(what);
            await store.memory.forget(what);
          }
          const [noted] = act === 'late' ? await store.metrics.noted(10) : [];
          if (!noted) continue;
          const all = await store.read(runId);
          const { counted, remembered: from } = noted;
          const [hours, observations] = [(await metricsOf(all, counted))!, (await observationsOf(all, from))!];
          const memory = { next: all.length, observations };
          late.push([{ ...noted, next: all.length, tenant: undefined, hours, memory }]);
          if (late.length > 1) await store.metrics.add(late.shift()!);
        }
        for (const one of late) await store.metrics.add(one);
        await keep();
        const before = await remembered();
        const expected = sorted(
          rebuilt(entries).observations.filter(
            ({ id, at }) => !forgets.some((what) => (what.id ?? id) === id && at <= what.until),
          ),
        );
        if (entries.at(-1)!.status !== undefined) {
          // A process that keeps no memory may have counted the rest.
          await store.memory.restart();
          await keep();
          expect(await remembered()).toEqual(expected);
          if (!parts.some(({ act }) => act === 'count elsewhere')) expect(before).toEqual(expected);
          forgotten += rebuilt(entries).observations.length - expected.length;
        }
        const known = new Map(expected.map((one) => [one.id, one]));
        for (const one of before) expect(one).toEqual(known.get(one.id));
      } finally {
        await store.close();
      }
    });
    await fc.assert(property, { ...PARAMETERS, numRuns: STORE_RUNS[kind] });
    if (kind === 'SQLite' || IS_LONG) expect(forgotten).toBeGreaterThan(10);
  },
);

const sorted = (all: readonly Observation[]): readonly Observation[] =>
  all.toSorted((a, b) => (a.id < b.id ? -1 : a.id > b.id ? 1 : 0));

test('a trace has one action for each call, and a failure that ended the run if one did', () => {
  const property = fc.property(worlds, (world) => {
    const entries = journalOf(world);
    const answered: string[] = [];
    walkJournal(entries, ({ items, before }) => {
      for (const item of items) if (item.type === 'call-answered') answered.push(`t${before.turn}.${item.index}`);
    });
    const { trace, hours } = rebuilt(entries);
    const { outcome } = (replay(entries).state.phase as { outcome?: Outcome }) ?? {};
    const actions = trace.steps.flatMap((step) => step.actions);
    const settled = actions.filter(({ endedAt }) => endedAt !== undefined);
    expect(settled.map(({ id }) => id).toSorted()).toEqual(answered.toSorted());
    if (outcome) expect(settled).toEqual(actions);
    expect(Object.values(hours.tools).reduce((sum, { calls }) => sum + calls, 0)).toBe(answered.length);
    for (const tool of Object.values(hours.tools)) expect(tool.recovered).toBeLessThanOrEqual(errorCount(tool));
    const endedBadly = outcome?.type === 'failed' || outcome?.type === 'exhausted';
    expect(trace.failures.some(({ severity }) => severity === 'high')).toBe(endedBadly);
    for (const [index, { turn, startedAt }] of trace.steps.entries()) {
      const next = trace.steps[index + 1];
      expect(next === undefined || (next.turn > turn && next.startedAt >= startedAt)).toBe(true);
    }
  });
  fc.assert(property, { ...PARAMETERS, numRuns });
});

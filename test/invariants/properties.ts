import fc, { type IRawProperty } from 'fast-check';
import type { Core } from './core.ts';
import { drive } from './drive.ts';
import { moves, worlds } from './generate/worlds.ts';
import { checkResults } from './i1-results.ts';
import { checkPermission } from './i2-permission.ts';
import { checkSettling } from './i3-settling.ts';
import { checkEnding } from './i4-ending.ts';
import { checkReplay } from './i5-replay.ts';
import { checkLimits } from './i6-limits.ts';
import { checkCost } from './i7-cost.ts';
import { checkDurable } from './i8-durable.ts';
import { checkOrderFree } from './i9-order.ts';
import { checkTold, plans } from './i10-told.ts';
import { checkLive } from './live-checks.ts';
import { live, type LiveTrace } from './live.ts';
import { checkTotal, strays } from './total.ts';
import type { Trace } from './trace.ts';

/** Seed and number of runs. INVARIANTS_SEED and INVARIANTS_RUNS change them. test/long/invariants.test.ts has more runs. */
export const PARAMETERS = {
  seed: Number(process.env['INVARIANTS_SEED'] ?? 20_251_115),
  numRuns: Number(process.env['INVARIANTS_RUNS'] ?? 400),
};

type Property = (core: Core) => IRawProperty<unknown>;

type Checks<T> = Readonly<Record<string, (core: Core, trace: T) => void>>;

const ofTraces = (check: Checks<Trace>[string]): Property => {
  return (core) => fc.property(worlds, (world) => check(core, drive(core, world)));
};

const ofLiveTraces = (check: Checks<LiveTrace>[string]): Property => {
  return (core) => fc.asyncProperty(worlds, async (world) => check(core, await live(core, world)));
};

const TRACE_CHECKS = {
  I1: (_, trace) => checkResults(trace),
  I2: (_, trace) => checkPermission(trace),
  I4: checkEnding,
  I6: (_, trace) => checkLimits(trace),
} satisfies Checks<Trace>;

/** These feed many events to each state of a trace, which takes several times as long. */
const STATE_CHECKS = { I3: checkSettling, I7: checkCost } satisfies Checks<Trace>;

const LIVE_CHECKS = { I8: (_, trace) => checkDurable(trace), live: checkLive } satisfies Checks<LiveTrace>;

const OTHERS = {
  I5: (core) => fc.property(worlds, (world) => checkReplay(core, world)),
  I9: (core) => fc.property(worlds, moves, (world, alternative) => fc.pre(checkOrderFree(core, world, alternative))),
  I10: (core) => fc.asyncProperty(plans, (plan) => checkTold(core, plan)),
  total: (core) => fc.property(worlds, strays, (world, stray) => checkTotal(core, drive(core, world), stray)),
} satisfies Record<string, Property>;

/** Each property gets the core that it checks: the real one, or a mutant. */
export const PROPERTIES = {
  I1: ofTraces(TRACE_CHECKS.I1),
  I2: ofTraces(TRACE_CHECKS.I2),
  I3: ofTraces(STATE_CHECKS.I3),
  I4: ofTraces(TRACE_CHECKS.I4),
  I6: ofTraces(TRACE_CHECKS.I6),
  I7: ofTraces(STATE_CHECKS.I7),
  I8: ofLiveTraces(LIVE_CHECKS.I8),
  live: ofLiveTraces(LIVE_CHECKS.live),
  ...OTHERS,
} satisfies Record<string, Property>;

interface SharedProperty {
  readonly property: Property;
  /** The part of the worlds that is enough here: those of a part of 1/4 show almost every mutant of the property. */
  readonly part: number;
}

/** The same properties for the same worlds. Those that look at the same traces share them, which takes half of the time. */
export const ALL_PROPERTIES: Readonly<Record<string, SharedProperty>> = {
  [Object.keys(TRACE_CHECKS).join(', ')]: { property: ofTraces(each(TRACE_CHECKS)), part: 1 / 2 },
  [Object.keys(STATE_CHECKS).join(', ')]: { property: ofTraces(each(STATE_CHECKS)), part: 1 / 4 },
  [Object.keys(LIVE_CHECKS).join(', ')]: { property: ofLiveTraces(each(LIVE_CHECKS)), part: 1 / 4 },
  ...Object.fromEntries(Object.entries(OTHERS).map(([name, property]) => [name, { property, part: 1 / 4 }])),
};

/** One check that makes all of them. Its errors begin with the name of the one that failed. */
function each<T>(checks: Checks<T>): Checks<T>[string] {
  return (core, trace) => {
    for (const [name, check] of Object.entries(checks)) {
      try {
        check(core, trace);
      } catch (error) {
        throw new Error(`${name}: ${(error as Error).message}`, { cause: error });
      }
    }
  };
}

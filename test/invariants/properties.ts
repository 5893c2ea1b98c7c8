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
import { checkLive } from './live-checks.ts';
import { live } from './live.ts';
import { checkTotal, strays } from './total.ts';

/** Seed and number of runs. INVARIANTS_SEED and INVARIANTS_RUNS change them. */
export const PARAMETERS = {
  seed: Number(process.env['INVARIANTS_SEED'] ?? 20_251_115),
  numRuns: Number(process.env['INVARIANTS_RUNS'] ?? 1_250),
};

type Property = (core: Core) => IRawProperty<unknown>;

const ofTraces =
  (check: (core: Core, trace: ReturnType<typeof drive>) => void): Property =>
  (core) =>
    fc.property(worlds, (world) => check(core, drive(core, world)));

/** Each property gets the core that it checks: the real one, or a mutant. */
export const PROPERTIES = {
  I1: ofTraces((_, trace) => checkResults(trace)),
  I2: ofTraces((_, trace) => checkPermission(trace)),
  I3: ofTraces(checkSettling),
  I4: ofTraces(checkEnding),
  I5: (core) => fc.property(worlds, (world) => checkReplay(core, world)),
  I6: ofTraces((_, trace) => checkLimits(trace)),
  I7: (core) => fc.property(worlds, (world) => checkCost(core, world)),
  I8: (core) => fc.asyncProperty(worlds, async (world) => checkDurable(await live(core, world))),
  I9: (core) => fc.property(worlds, moves, (world, alternative) => fc.pre(checkOrderFree(core, world, alternative))),
  live: (core) => fc.asyncProperty(worlds, async (world) => checkLive(core, await live(core, world))),
  total: (core) => fc.property(worlds, strays, (world, stray) => checkTotal(core, drive(core, world), stray)),
} satisfies Record<string, Property>;

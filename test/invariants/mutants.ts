import type { Mutant } from './mutate.ts';
import { attempts } from './mutants/agent-attempts.ts';
import { claims } from './mutants/agent-calls.ts';
import { results } from './mutants/i1-results.ts';
import { permission } from './mutants/i2-permission.ts';
import { settling } from './mutants/i3-settling.ts';
import { ending } from './mutants/i4-ending.ts';
import { replay } from './mutants/i5-replay.ts';
import { limits } from './mutants/i6-limits.ts';
import { turns } from './mutants/i6-turns.ts';
import { cost } from './mutants/i7-cost.ts';
import { durable } from './mutants/i8-durable.ts';
import { order } from './mutants/i9-order.ts';

export const MUTANTS: readonly Mutant[] = [
  ...results,
  ...permission,
  ...settling,
  ...ending,
  ...replay,
  ...limits,
  ...turns,
  ...cost,
  ...durable,
  ...order,
  ...attempts,
  ...claims,
];

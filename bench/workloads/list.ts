import type { Entry } from '../contenders/list.ts';
import { ATTACK_ROWS } from './attacks.ts';
import { S1 } from './s1-first-byte.ts';
import { S2 } from './s2-responses.ts';
import { S3 } from './s3-events.ts';
import { S4 } from './s4-open-streams.ts';
import { S5 } from './s5-chat.ts';
import { S6 } from './s6-idle-sockets.ts';
import { W1 } from './w1-loop.ts';
import { W2 } from './w2-growth.ts';
import { W3 } from './w3-deltas.ts';
import { W4 } from './w4-concurrent.ts';
import { W5 } from './w5-parallel.ts';
import { W6 } from './w6-start.ts';
import { W7 } from './w7-in-process.ts';
import { W8 } from './w8-extras.ts';
import type { Workload } from './workload.ts';

export const WORKLOADS: readonly Workload[] = [
  ...W1,
  W2,
  ...W3,
  W4,
  W5,
  ...W6,
  ...W7,
  ...W8,
  ...S1,
  ...S2,
  ...S3,
  S4,
  ...S5,
  S6,
  ...ATTACK_ROWS,
];

/** Variants of Treadle that show the cost of a feature: in their own rows, or where the protocol can make a difference. */
const VARIANTS: readonly string[] = [
  'treadle-sqlite',
  'treadle-sqlite-once',
  'treadle-policy',
  'treadle-tracing',
  'treadle-otlp',
  'treadle-otlp-hangs',
];
const SAME_PACKAGES: readonly string[] = ['treadle-anthropic'];

export function takesPart({ only, where, mode }: Workload, { id, http, inProcess }: Entry): boolean {
  if (only) return only.includes(id);
  if (VARIANTS.includes(id)) return false;
  if (where === 'in-process') return inProcess.includes(mode);
  return where === 'start' ? http.length > 0 && !SAME_PACKAGES.includes(id) : http.includes(mode);
}

export function workloadOf(id: string): Workload {
  const found = WORKLOADS.find((one) => one.id === id);
  if (!found) throw new Error(`Unknown workload '${id}'.`);
  return found;
}

import type { RunStore } from '@treadle/core';
import type { ResponseStore } from '@treadle/store';
import type { RunLimit } from '../http/run-limit.ts';
import type { RunLimits } from './driven.ts';
import type { Served } from './plan.ts';
import { underWay, type UnderWay } from './under-way.ts';

export type ServerStore = RunStore & { readonly responses: ResponseStore };

/** What all faces of the server run on. */
export interface Engine extends Served {
  readonly store: ServerStore;
  readonly limits: RunLimits;
  readonly runs: UnderWay;
}

export interface EngineOptions extends Served {
  readonly store: ServerStore;
  readonly limits: RunLimits;
  readonly admission: RunLimit;
}

export function engine({ admission, ...options }: EngineOptions): Engine {
  return { ...options, runs: underWay(admission) };
}

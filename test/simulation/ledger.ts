import type { ToolEffect } from '@treadle/core';
import type { Process } from './machine.ts';

/** A call of a tool in one process, from its start. */
export interface Execution {
  readonly key: string;
  readonly tool: string;
  readonly effect: ToolEffect;
  readonly input: string;
  /** The fencing token. */
  readonly token: number;
  readonly process: Process;
  readonly at: number;
}

export interface Act extends Execution {
  /** Its process was not the driver of the run any more. */
  readonly stale: boolean;
}

/** The systems that tools act on. They survive everything. */
export interface Ledger {
  readonly acts: readonly Act[];
  readonly has: (key: string) => boolean;
  readonly record: (act: Act) => void;
  /** A system that honours tokens: from now on it refuses lower ones for this key. False if it refuses this one. */
  readonly admits: (key: string, token: number) => boolean;
}

export function createLedger(): Ledger {
  const acts: Act[] = [];
  const keys = new Set<string>();
  const tokens = new Map<string, number>();
  return {
    acts,
    has: (key) => keys.has(key),
    record(act) {
      acts.push(act);
      keys.add(act.key);
    },
    admits(key, token) {
      if (token < (tokens.get(key) ?? 0)) return false;
      tokens.set(key, token);
      return true;
    },
  };
}

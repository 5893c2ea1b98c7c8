import type { Principal, Touch } from '../policy/port.ts';

/** What an effect may use, or has used. An absent amount is 0 unless the method says otherwise. */
export interface Amounts {
  readonly tokens?: number;
  /** In US dollars. `Infinity`: the price of the model is not known. */
  readonly cost?: number;
  readonly calls?: number;
  /** Different files that a tool writes, and the lines, as far as its tool declares them. */
  readonly files?: number;
  readonly lines?: number;
  /** Addresses that a tool requests. */
  readonly requests?: number;
  /** How long the effect takes. Only what a tool declares is reserved; a budget that has none left refuses. */
  readonly durationMs?: number;
}

/**
 * Enforces budgets. A run reserves the most that an effect may use before the effect starts, under the key of the effect
 * (`runId/effectId`), and settles what it used. What was reserved and never settled counts in full: the process may have
 * died after the effect took place.
 */
export interface Ledger {
  /**
   * Reserves amounts. When it returns or resolves, the reservation is durable. A key that has a reservation keeps it: the
   * effect was interrupted and is performed again. If it may use more now, the reservation is raised or refused. If it throws, the effect does not start and the run stops, as if its
   * journal had failed; it can be resumed.
   */
  reserve(key: string, amounts: Amounts, about: Spending): Reserved | Promise<Reserved>;
  /**
   * Replaces the reservation by what was used. An absent amount was used as reserved. If it throws, the reservation
   * stays.
   */
  settle(key: string, amounts: Amounts): void | Promise<void>;
  /** Removes the reservation of an effect that has certainly used nothing. If it throws, the reservation stays. */
  release(key: string): void | Promise<void>;
}

export type Reserved =
  | { readonly type: 'reserved' }
  /** It is reserved, and little is left. The listener of the run is told, once for each budget and kind. */
  | { readonly type: 'warned'; readonly warnings: readonly BudgetLevel[] }
  /**
   * Nothing is reserved, and people decide. They are asked to approve a tool call; for a model call or a summary the run
   * pauses on a question. If they approve, it is reserved again, with `approved`. If nobody can be asked, it is refused.
   */
  | { readonly type: 'escalated'; readonly reason: string; readonly ttlMs?: number }
  /** The effect does not start, and the run ends with `exhausted: budget`. */
  | { readonly type: 'refused'; readonly reason: string };

/** How much of a limit of a budget is used and reserved. */
export interface BudgetLevel {
  readonly budget: string;
  readonly kind: keyof Amounts;
  readonly used: number;
  readonly limit: number;
}

/** What a reservation is for. */
export interface Spending {
  readonly runId: string;
  readonly effect: 'call-model' | 'compact-history' | 'call-tool';
  /** The id of the model, or the name of the tool. */
  readonly name: string;
  /** What a call would touch. Absent: its tool does not declare it. */
  readonly touches?: readonly Touch[];
  /** People were asked, and approved that the effect exceeds its budgets. */
  readonly approved?: true;
  readonly principal?: Principal;
  /** The `context` option of the run. */
  readonly context: unknown;
}

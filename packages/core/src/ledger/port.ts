import type { Principal } from '../policy/port.ts';

/** What an effect may use, or has used. An absent amount is 0 unless the method says otherwise. */
export interface Amounts {
  readonly tokens?: number;
  /** In US dollars. `Infinity`: the price of the model is not known. */
  readonly cost?: number;
  readonly calls?: number;
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
  /** The effect does not start, and the run ends with `exhausted: budget`. */
  | { readonly type: 'refused'; readonly reason: string };

/** What a reservation is for. */
export interface Spending {
  readonly runId: string;
  readonly effect: 'call-model' | 'compact-history' | 'call-tool';
  /** The id of the model, or the name of the tool. */
  readonly name: string;
  readonly principal?: Principal;
  /** The `context` option of the run. */
  readonly context: unknown;
}

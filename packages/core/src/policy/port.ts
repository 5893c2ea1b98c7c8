import type { Autonomy } from '../machine/narrowing.ts';

/** Decides whether calls may run. Its verdicts are recorded, and a call that it does not allow never runs. */
export interface Policy {
  /**
   * Gets all calls of a turn that could run, before any of them runs. Returns one verdict per call, in order; a missing
   * verdict is a denial. If it throws, every call is denied.
   */
  judge(calls: readonly JudgedCall[], context: JudgeContext): readonly Verdict[] | Promise<readonly Verdict[]>;
}

export interface JudgedCall {
  readonly id: string;
  readonly name: string;
  /** The validated input for the tool. */
  readonly input: unknown;
  readonly effect: 'pure' | 'idempotent' | 'once';
}

export interface JudgeContext {
  readonly runId: string;
  readonly turn: number;
  /** How far the run may act without being asked, if something has narrowed that. */
  readonly autonomy?: Autonomy;
  readonly principal?: Principal;
  /** The `context` option of the run. */
  readonly context: unknown;
  readonly signal: AbortSignal;
}

export interface Principal {
  readonly subject: string;
  readonly tenant: string;
  readonly scopes: readonly string[];
}

export type Verdict =
  | { readonly type: 'allow' }
  | { readonly type: 'deny'; readonly reason: string }
  /** A person decides. The run pauses; without an answer within `ttlMs` (default: one day) the call is denied. */
  | { readonly type: 'ask'; readonly reason?: string; readonly ttlMs?: number };

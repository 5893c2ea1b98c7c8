/** Decides about calls before any of them runs. What it says is recorded, and a call it did not allow never runs. */
export interface Policy {
  /**
   * One verdict per call, in order; a missing one is a denial. All calls of a turn that could run come at once. If it
   * throws, every call is denied.
   */
  judge(calls: readonly JudgedCall[], context: JudgeContext): readonly Verdict[] | Promise<readonly Verdict[]>;
}

export interface JudgedCall {
  readonly id: string;
  readonly name: string;
  /** The validated input, as the tool will get it. */
  readonly input: unknown;
  readonly effect: 'pure' | 'idempotent' | 'once';
}

export interface JudgeContext {
  readonly runId: string;
  readonly turn: number;
  readonly principal?: Principal;
  /** The `context` that was given to the run. */
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
  /** A person decides. The run pauses on it; unanswered after `ttlMs` (a day) it is a denial. */
  | { readonly type: 'ask'; readonly reason?: string; readonly ttlMs?: number };

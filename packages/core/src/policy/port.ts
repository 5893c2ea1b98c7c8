import type { Exposes, Exposure } from '../machine/exposure.ts';
import type { Autonomy } from '../machine/narrowing.ts';

/** Decides whether calls may run. Its verdicts are recorded, and a call that it does not allow never runs. */
export interface Policy {
  /**
   * Gets all calls of a turn that could run, before any of them runs. Returns one verdict per call, in order; a missing
   * verdict is a denial. If it throws, every call is denied.
   */
  judge(calls: readonly JudgedCall[], context: JudgeContext): readonly Verdict[] | Promise<readonly Verdict[]>;
  /**
   * The rules that it judges by, as plain JSON. They are recorded. A run that is resumed under other rules is judged by
   * both, and the stricter verdict applies. Absent: the policy is code, and only the current one applies.
   */
  readonly rules?: unknown;
  /** The policy with the rules that a run has recorded. Without it, a run with other rules has all calls denied. */
  withRules?(rules: unknown): Policy;
  /**
   * Limits for a run that is started with it, narrowed to `autonomy` or not, or resumed with it. The smaller of these and of
   * what the run has apply.
   */
  limits?(autonomy?: Autonomy, run?: LimitedRun): PolicyLimits;
  /** What the policy knows about what a touch exposes a run to. The option `exposes` of the run adds to it. */
  readonly exposes?: TouchExposure;
}

/**
 * Says what a call that touched this exposes its run to, besides what its tool declares: a `url` is from outside. `sandbox`: the
 * promises of the sandbox that the call ran in. `narrowedBy`: as when it was judged. If it throws, both.
 */
export type TouchExposure = (
  touch: Touch,
  call: { readonly sandbox: readonly string[] } & Pick<JudgeContext, 'narrowedBy'>,
) => Exposes | undefined | Promise<Exposes | undefined>;

/** What a policy knows about the run that it limits. */
export interface LimitedRun {
  /** Its model is a program, which has an end of its own. */
  readonly program?: boolean;
}

export interface PolicyLimits {
  readonly turns?: number;
  readonly calls?: number;
}

export interface JudgedCall {
  readonly id: string;
  readonly name: string;
  /** The validated input for the tool. */
  readonly input: unknown;
  readonly effect: 'pure' | 'idempotent' | 'once';
  /** The client executes the call. */
  readonly client: boolean;
  /**
   * What the call would touch. Empty: it is harmless. `unknown` if its tool does not declare it or failed to. Undefined
   * for a call that the client executes, unless its tool declares it.
   */
  readonly touches: readonly Touch[] | undefined;
  /** The permissions that the tool needs. */
  readonly permissions: readonly string[];
  /** What the call does, if its tool has several operations. */
  readonly operation: string | undefined;
  /** The promises of the sandbox that the call will run in, by name. Absent: it promises nothing. */
  readonly sandbox?: readonly string[];
}

/** Something outside of the run that a call would touch. */
export type Touch =
  | ({ readonly type: 'read'; readonly path: string } & Placed)
  /** `lines`: how many it would write, if the tool knows. */
  | ({ readonly type: 'write'; readonly path: string; readonly lines?: number } & Placed)
  | ({ readonly type: 'command'; readonly command: string } & Placed)
  /** `bytes`: how many it would send in the body of the request, if the tool knows. */
  | ({ readonly type: 'url'; readonly url: string; readonly bytes?: number } & Placed)
  | ({ readonly type: 'session'; readonly session: string } & Placed)
  | { readonly type: 'device'; readonly device: string }
  | { readonly type: 'unknown' };

/** Where a touch is. Absent: this machine. */
export interface Placed {
  readonly on?: Place;
}

/** Another place than this machine. */
export interface Place {
  readonly type: 'device' | 'ssh' | 'container' | 'sandbox';
  readonly name: string;
}

export interface JudgeContext {
  readonly runId: string;
  readonly turn: number;
  /** How far the run may act without being asked, if something has narrowed that. */
  readonly autonomy?: Autonomy;
  /** The sources of what narrows the run, such as `skill:NAME`. */
  readonly narrowedBy?: readonly string[];
  /** The tools that the run may call, if not all. Calls of others are refused before they are judged. */
  readonly allowed?: readonly string[];
  /** Different paths in the `write` touches of calls that the run has started, at most 100. */
  readonly written?: readonly string[];
  /** What the run has seen before these calls, with the causes. */
  readonly exposure?: Exposure;
  readonly principal?: Principal;
  /** The model of the run is a program. It cannot do without a call, nor make it again later. */
  readonly program?: true;
  /** The `context` option of the run. */
  readonly context: unknown;
  readonly signal: AbortSignal;
}

export interface Principal {
  readonly subject: string;
  readonly tenant: string;
  readonly scopes: readonly string[];
}

/** `rule`: the rule that decided. It is recorded, and not sent to the model. */
export type Verdict =
  | { readonly type: 'allow'; readonly rule?: string }
  | { readonly type: 'deny'; readonly reason: string; readonly rule?: string }
  /** People decide. The run pauses; without an answer within `ttlMs` (default: one day) the call is denied. */
  | AskVerdict;

export interface AskVerdict {
  readonly type: 'ask';
  readonly reason?: string;
  readonly ttlMs?: number;
  /** How many different people have to approve; default 1. One denial denies the call. */
  readonly required?: number;
  /** Who may answer; absent: anybody. */
  readonly approvers?: readonly string[];
  /** Plain JSON to show to the people who decide, such as a diff. */
  readonly shown?: unknown;
  /** What people have allowed for the rest of the run does not answer it: they are asked about each call. */
  readonly eachTime?: true;
  readonly rule?: string;
}

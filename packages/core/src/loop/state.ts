import type { ResultBlock, ToolResult, UserMessage } from '../messages.ts';
import type { ModelError, Settings, ToolChoice, Usage } from '../model.ts';
import type { Principal } from '../policy/port.ts';
import type { History } from './history.ts';
import type { Limits, Memory, Rules, ToolEffect, ToolFacts, TurnDecision } from './pinned.ts';

export interface State {
  readonly runId: string;
  readonly rules: Rules;
  readonly model: string;
  readonly settings: Settings;
  readonly principal: Principal | undefined;
  readonly instructions: string | undefined;
  readonly tools: readonly ToolFacts[];
  /** Messages that were there at the start: the task. */
  readonly given: number;
  readonly phase: Phase;
  readonly history: History;
  /** Model calls begun. */
  readonly turn: number;
  /** Calls that were let through to run. */
  readonly calls: number;
  readonly usage: Usage;
  /** Turns in a row whose results were all errors. */
  readonly errors: number;
  /** The last call that ran, how often in a row it gave the same, and how often it was refused for that. */
  readonly streak: Streak | undefined;
  /** The standing tool choice; falls back to `auto` once satisfied. */
  readonly choice: ToolChoice;
  /** What the last reply lacked and was asked for; lacking it again fails the run. */
  readonly lacked: 'call' | 'content' | 'output' | undefined;
  /** Of the turn that goes on. */
  readonly decision: TurnDecision | undefined;
  /** The validated answer. */
  readonly output: unknown;
  /** Of a typed agent. */
  readonly agent: AgentState | undefined;
  /** Tokens that the conversation is estimated to have. */
  readonly contextTokens: number;
  readonly confirmed: boolean;
  readonly truncated: boolean;
  /** Replies of which the calls limit refused a call. After the first the model is asked for an answer. */
  readonly spent: number;
  /** The limit that was met, while the model is asked for a last answer. */
  readonly closing: Limit | undefined;
  /** Input that waits for the next turn boundary. */
  readonly pending: readonly UserMessage[];
  /** When the last event was, and how long the run has worked until then. */
  readonly at: number;
  readonly activeMs: number;
}

/** How far a typed agent is. */
export interface AgentState {
  /** From 1. */
  readonly attempt: number;
  /** Turns before this attempt. */
  readonly from: number;
  /** The arguments of the attempt's last call of the output tool. */
  readonly proposal: string | undefined;
  readonly memory: Memory | undefined;
  /** Why the last output was not accepted. */
  readonly rejection: Rejection | undefined;
}

export interface Rejection {
  /** The custom validator that refused it; absent: the schema. */
  readonly validator?: string;
  readonly problems: readonly string[];
}

export type Phase =
  | { readonly type: 'new' }
  | { readonly type: 'preparing'; readonly effect: string }
  | { readonly type: 'model'; readonly effect: string }
  /** `refused`: the model call that found the conversation too long, and with what. */
  | {
      readonly type: 'compacting';
      readonly effect: string;
      readonly to: number;
      readonly refused?: { readonly effect: string; readonly error: ModelError };
    }
  /** `slots`: of the turn whose output it is, where a tool gave it. */
  | { readonly type: 'validating'; readonly effect: string; readonly text: string; readonly slots?: readonly Slot[] }
  | { readonly type: 'judging'; readonly effect: string; readonly slots: readonly Slot[] }
  | { readonly type: 'tools'; readonly slots: readonly Slot[] }
  /** `effect`: the model call by whose failure it ended; the run goes on if that is lost instead. */
  | { readonly type: 'ended'; readonly outcome: Outcome; readonly effect?: string };

/** Where one call of the turn stands; its index in the slots is its index in the reply. */
export type Slot =
  /** `verify`: it had begun when it was lost, so it is to be asked whether it took effect. */
  | { readonly type: 'queued'; readonly call: Call; readonly verify?: true }
  | { readonly type: 'running'; readonly call: Call }
  | { readonly type: 'verifying'; readonly call: Call }
  | { readonly type: 'parked'; readonly call: Call; readonly on: string; readonly waiting: readonly Waiting[] }
  | {
      readonly type: 'asking';
      readonly call: Call;
      readonly digest: string;
      readonly expiresAt: number;
      readonly reason?: string;
    }
  | { readonly type: 'client'; readonly call: Call }
  /** Answered by the validation of the output, after all other calls. */
  | { readonly type: 'held'; readonly call: Call }
  | { readonly type: 'settled'; readonly call: Call; readonly result: ToolResult; readonly how: Settling };

/**
 * `ran`: by the tool, by somebody outside, or by a refusal that is for the model to mend. By the loop's own limits:
 * `capped` per reply, `spent` per run, `repeated` for the same call again and again. `claimed`: by the finish strategy,
 * whose call it was.
 */
export type Settling = 'ran' | 'capped' | 'spent' | 'repeated' | 'claimed';

/** A call that may run, or would if it were allowed. */
export interface Call {
  readonly turn: number;
  readonly index: number;
  readonly id: string;
  readonly name: string;
  /** The JSON text that the tool gets, after harmless repair. */
  readonly arguments: string;
  readonly resources: readonly string[];
  readonly effect: ToolEffect;
  readonly exclusive: boolean;
  readonly client: boolean;
  readonly verifiable: boolean;
  /** By the finish strategy: counts for no limit. */
  readonly claimed?: true;
  /** Of a call that is a run of its own: its part of what was left when it was let through. */
  readonly limits?: Limits;
}

export interface Streak {
  readonly name: string;
  readonly arguments: string;
  readonly content: readonly ResultBlock[];
  readonly count: number;
  readonly refused: number;
}

export type Limit = 'turns' | 'attempts' | 'calls' | 'tokens' | 'cost' | 'duration' | 'errors' | 'repetition';

export type CancelPhase = 'model' | 'tool' | 'approval' | 'client' | 'validation';

export type Outcome =
  | { readonly type: 'completed'; readonly truncated?: true }
  | { readonly type: 'exhausted'; readonly limit: Limit }
  | { readonly type: 'failed'; readonly error: { readonly code: string; readonly message: string } }
  | { readonly type: 'cancelled'; readonly phase: CancelPhase };

/** Something outside that a paused run waits for. */
export type Waiting =
  | {
      readonly type: 'approval';
      readonly effect: string;
      readonly call: Call;
      readonly digest: string;
      readonly expiresAt: number;
      readonly reason?: string;
    }
  | { readonly type: 'client'; readonly effect: string; readonly call: Call }
  | { readonly type: 'parked'; readonly effect: string; readonly call: Call; readonly on: string };

import type { AssistantPart, Message, ResultBlock, ToolResult, UserMessage } from '../messages.ts';
import type { Attempt, Finish, JsonSchema, ModelError, Settings, ToolChoice, Usage } from '../model.ts';
import type { Principal, Verdict } from '../policy/port.ts';
import type { History } from './history.ts';

// ── What is pinned when a run starts ─────────────────────────────────────────────────────────────────────────────────

/**
 * Everything that `step` decides by, as plain JSON, pinned in `run-started`: a journal replays the same after the
 * defaults of the code change. An absent limit is off; a count of 0 for `errorLimit` or `repeatLimit` is off too.
 */
export interface Rules {
  /** Which edition of the sentences that the loop writes into the history. */
  readonly wording: 1;
  readonly finish: 'plain' | 'confirm';
  readonly maxTurns: number;
  readonly maxParallel: number;
  readonly parallel: boolean;
  readonly maxCallsPerTurn?: number;
  readonly errorLimit: number;
  readonly repeatLimit: number;
  readonly maxResultChars: number;
  readonly toolTimeoutMs: number;
  readonly limits: Limits;
  readonly closingTurn: boolean;
  readonly toolChoice: ToolChoice;
  readonly allowedTools?: readonly string[];
  /** Calls are judged by a policy before they run. */
  readonly judged: boolean;
  /** Each turn is prepared before the model is asked. */
  readonly prepared?: true;
  /** The answer has to be JSON that this describes. */
  readonly output?: JsonSchema;
  readonly compaction?: CompactionRules;
}

/** When the oldest turns give way to a summary: once the model finds the conversation too long, or before. */
export interface CompactionRules {
  /** From this many estimated tokens on; absent: only when the model refuses. */
  readonly tokens?: number;
  /** The newest turns that stay as they are. */
  readonly keepTurns: number;
}

export interface Limits {
  readonly calls?: number;
  readonly tokens?: number;
  /** In US dollars. */
  readonly cost?: number;
  /** Time that the run works; time that it is paused is not counted. */
  readonly durationMs?: number;
}

/** What happens to the world when a tool runs: nothing, the same however often, or something new each time. */
export type ToolEffect = 'pure' | 'idempotent' | 'once';

/** What `step` and the model need to know of a tool. */
export interface ToolFacts {
  readonly name: string;
  readonly description: string;
  readonly parameters: JsonSchema;
  readonly effect: ToolEffect;
  readonly exclusive: boolean;
  readonly polling: boolean;
  /** Executed by the client: a call pauses the run. */
  readonly client: boolean;
  /** Can tell after a crash whether a call took effect. */
  readonly verifiable: boolean;
  readonly timeoutMs?: number;
  /** A whole run of its own: gets this share of what is left of its parent's limits. */
  readonly share?: number;
}

/** What was decided for one turn alone. */
export interface TurnDecision {
  readonly model?: string;
  /** By name; others cannot be called. */
  readonly tools?: readonly string[];
  readonly toolChoice?: ToolChoice;
  readonly instructions?: string;
}

/** Where a run comes from: it works for a call of another one, or was forked from it after that entry. */
export interface Parent {
  readonly runId: string;
  readonly effect?: string;
  readonly seq?: number;
}

// ── Facts ────────────────────────────────────────────────────────────────────────────────────────────────────────────

/** A fact, with the time at which it became one. */
export type Event =
  | {
      readonly type: 'run-started';
      readonly at: number;
      readonly runId: string;
      readonly rules: Rules;
      readonly tools: readonly ToolFacts[];
      readonly model: string;
      readonly settings: Settings;
      readonly instructions?: string;
      readonly input: readonly Message[];
      readonly principal?: Principal;
      readonly parent?: Parent;
    }
  /** From here on the run goes its own way, with these changes. */
  | {
      readonly type: 'run-forked';
      readonly at: number;
      readonly model?: string;
      readonly instructions?: string;
      readonly tools?: readonly ToolFacts[];
    }
  | {
      readonly type: 'turn-prepared';
      readonly at: number;
      readonly effect: string;
      readonly decision: TurnDecision;
      /** Why it could not be prepared; the run fails. */
      readonly problem?: string;
    }
  | { readonly type: 'input-added'; readonly at: number; readonly messages: readonly UserMessage[] }
  | { readonly type: 'tools-changed'; readonly at: number; readonly tools: readonly ToolFacts[] }
  | {
      readonly type: 'model-replied';
      readonly at: number;
      readonly effect: string;
      readonly content: readonly AssistantPart[];
      readonly finish: Finish;
      readonly rawFinish?: string;
      readonly usage: Usage;
      readonly model: string;
      readonly attempts?: readonly Attempt[];
      /** One for each call in `content`, in order: what code has found out about it. */
      readonly checks: readonly CallCheck[];
    }
  | {
      readonly type: 'model-failed';
      readonly at: number;
      readonly effect: string;
      readonly error: ModelError;
      readonly attempts?: readonly Attempt[];
    }
  | {
      readonly type: 'calls-judged';
      readonly at: number;
      readonly effect: string;
      readonly verdicts: readonly Verdict[];
    }
  | { readonly type: 'tool-settled'; readonly at: number; readonly effect: string; readonly result: SettledResult }
  /** The call goes on elsewhere (a child run, a device): its place is free, and the run may pause on it. */
  | {
      readonly type: 'tool-parked';
      readonly at: number;
      readonly effect: string;
      readonly on: string;
      /** What a child waits for. */
      readonly waiting?: readonly Waiting[];
    }
  | {
      readonly type: 'approval-given';
      readonly at: number;
      readonly effect: string;
      /** Of the call that was shown to whoever decided; another one does not fit. */
      readonly digest: string;
      readonly approved: boolean;
      readonly reason?: string;
      readonly by?: string;
    }
  | {
      readonly type: 'client-result-given';
      readonly at: number;
      readonly effect: string;
      readonly content: readonly ResultBlock[];
      readonly isError: boolean;
    }
  | {
      readonly type: 'output-checked';
      readonly at: number;
      readonly effect: string;
      readonly result:
        | { readonly type: 'valid'; readonly value: unknown }
        | { readonly type: 'invalid'; readonly problems: readonly string[] };
    }
  | {
      readonly type: 'history-compacted';
      readonly at: number;
      readonly effect: string;
      readonly result:
        | { readonly type: 'summary'; readonly summary: string; readonly model: string; readonly usage: Usage }
        | { readonly type: 'failure'; readonly error: ModelError };
    }
  /** What performed the effect is gone. `restart`: with the whole process, so the time until now was nobody's. */
  | { readonly type: 'effect-lost'; readonly at: number; readonly effect: string; readonly cause: 'restart' | 'device' }
  /** With `effect`: of that approval. Without: of the run (`limits.durationMs`). */
  | { readonly type: 'deadline-passed'; readonly at: number; readonly effect?: string }
  | { readonly type: 'cancel-requested'; readonly at: number };

/** Found by validating a call before anything runs. A call without a check, or with a problem, never runs. */
export interface CallCheck {
  /** Why it cannot run, in words for the model. */
  readonly problem?: string;
  /** The arguments after harmless repair; absent when the model's own text needed none. */
  readonly arguments?: string;
  /** What the call needs for itself: calls that share one run in call order. */
  readonly resources?: readonly string[];
}

export type SettledResult =
  | {
      readonly type: 'result';
      readonly content: readonly ResultBlock[];
      readonly isError: boolean;
      /** Of a call that was a run of its own. */
      readonly usage?: Usage;
      readonly calls?: number;
    }
  /** Only of `verify-tool`: it did not take effect, so it may run; or nobody can tell. */
  | { readonly type: 'not-done' }
  | { readonly type: 'unknown' };

// ── Wishes ───────────────────────────────────────────────────────────────────────────────────────────────────────────

/** Something for the shell to do. Each settles by exactly one event that bears its id. */
export type Effect =
  | {
      readonly type: 'call-model';
      readonly id: string;
      readonly turn: number;
      readonly toolChoice: ToolChoice;
      readonly history: History;
      readonly tools: readonly ToolFacts[];
      readonly instructions: string | undefined;
      /** Absent: the run's own. */
      readonly model: string | undefined;
    }
  | { readonly type: 'prepare-turn'; readonly id: string; readonly turn: number; readonly history: History }
  /** Messages `from` up to `to`, which are whole turns, are to be summarised. */
  | {
      readonly type: 'compact-history';
      readonly id: string;
      readonly history: History;
      readonly from: number;
      readonly to: number;
    }
  | { readonly type: 'validate-output'; readonly id: string; readonly text: string }
  | { readonly type: 'judge-calls'; readonly id: string; readonly calls: readonly Call[] }
  | { readonly type: 'call-tool'; readonly id: string; readonly call: Call }
  | { readonly type: 'verify-tool'; readonly id: string; readonly call: Call }
  | {
      readonly type: 'ask-approval';
      readonly id: string;
      readonly call: Call;
      readonly digest: string;
      readonly expiresAt: number;
      readonly reason?: string;
    }
  | { readonly type: 'await-client'; readonly id: string; readonly call: Call };

// ── State ────────────────────────────────────────────────────────────────────────────────────────────────────────────

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
  | { readonly type: 'validating'; readonly effect: string; readonly text: string }
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
  | { readonly type: 'settled'; readonly call: Call; readonly result: ToolResult; readonly how: Settling };

/**
 * `ran`: by the tool, by somebody outside, or by a refusal that is for the model to mend. By the loop's own limits:
 * `capped` per reply, `spent` per run, `repeated` for the same call again and again.
 */
export type Settling = 'ran' | 'capped' | 'spent' | 'repeated';

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

export type Limit = 'turns' | 'calls' | 'tokens' | 'cost' | 'duration' | 'errors' | 'repetition';

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

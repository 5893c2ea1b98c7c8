import type { AssistantPart, Message, ResultBlock, UserMessage } from '../messages.ts';
import type { Attempt, Finish, ModelError, Settings, Usage } from '../model.ts';
import type { Principal, Verdict } from '../policy/port.ts';
import type { Memory, Parent, Rules, ToolFacts, TurnDecision } from './pinned.ts';
import type { Waiting } from './state.ts';

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
        | {
            readonly type: 'invalid';
            readonly problems: readonly string[];
            /** The custom validator that found them; absent: the schema. */
            readonly validator?: string;
            /** What the model is told beside the problems, for its next attempt. */
            readonly prompt?: string;
            /** Why that could not be written; the run fails. */
            readonly promptProblem?: string;
          };
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
      /** What the helper of a typed agent left changed. */
      readonly memory?: Memory;
    }
  /** Only of `verify-tool`: it did not take effect, so it may run; or nobody can tell. */
  | { readonly type: 'not-done' }
  | { readonly type: 'unknown' };

import type {
  AssistantPart,
  ErrorFacts,
  ErrorType,
  Message,
  ResultBlock,
  ToolResult,
  UserMessage,
} from '../messages.ts';
import type { Attempt, Finish, ModelError, Settings, Usage } from '../model.ts';
import type { PolicyLimits, Principal, Touch, Verdict } from '../policy/port.ts';
import type { Exposure } from './exposure.ts';
import type { Narrowing } from './narrowing.ts';
import type { AskedQuestion, Question } from './questions.ts';
import type { HeldProcess, OpenResource } from './resources.ts';
import type { Handoff, Memory, Parent, Rules, RunFacts, ToolFacts, TurnDecision } from './rules.ts';
import type { Grant, Waiting } from './state.ts';

/** When something was observed. */
export interface Moment {
  /** By the clock that people set. */
  readonly at: number;
  /**
   * The time since the event before, by the monotonic clock of the process, rounded. This is what `limits.durationMs` counts. Absent:
   * the difference of both `at`. The driver sets it when the clocks disagree: somebody has set the clock, or the machine was
   * suspended.
   */
  readonly elapsedMs?: number;
}

/** A fact about a run, with the time at which it was observed. */
export type Event = Moment & Fact;

/** The first event of a run. */
export type RunStarted = Extract<Event, { type: 'run-started' }>;

type Fact =
  | (RunFacts & {
      readonly type: 'run-started';
      readonly at: number;
      readonly runId: string;
      readonly rules: Rules;
      readonly tools: readonly ToolFacts[];
      readonly model: string;
      readonly settings: Settings;
      readonly instructions?: string;
      readonly input: readonly Message[];
      /** Set if `input` ends with a reply whose calls the run executes, except those with a result here. */
      readonly answered?: readonly ToolResult[];
      readonly principal?: Principal;
      readonly parent?: Parent;
      /** The initial memory; that of a typed agent is in its rules. */
      readonly memory?: Memory;
      /** What the run may do at most. */
      readonly narrow?: Narrowing | readonly Narrowing[];
      /** What people have allowed in the conversation that the run continues. */
      readonly grants?: readonly Grant[];
      /** What the runs before in the conversation, or the calling run, and the input have exposed it to. */
      readonly exposure?: Exposure;
      /** The processes that the run takes over of the last run of its conversation. */
      readonly resources?: readonly OpenResource[];
      /** The rules of the policy, if it has any. */
      readonly policy?: unknown;
      /** The definition of the program that is the model. */
      readonly program?: unknown;
      /** The definition of the agent that the run is of. */
      readonly definition?: unknown;
    })
  /** The run is a fork; from here on it differs from the original, with these changes. */
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
      /** Why `prepareTurn` failed; the run fails. */
      readonly problem?: string;
    }
  | {
      readonly type: 'input-added';
      readonly at: number;
      readonly messages: readonly UserMessage[];
      readonly exposes?: Exposure;
    }
  /** The run has these tools from now on, until a change that waits for the next turn; with `from`, from that turn on. */
  | {
      readonly type: 'tools-changed';
      readonly at: number;
      readonly tools: readonly ToolFacts[];
      readonly from?: 'next-turn';
    }
  /** Somebody outside of the run undid the narrowing of a source, or all. */
  | { readonly type: 'narrowing-lifted'; readonly at: number; readonly by?: string; readonly source?: string }
  | {
      readonly type: 'model-replied';
      readonly at: number;
      readonly effect: string;
      readonly content: readonly AssistantPart[];
      readonly finish: Finish;
      readonly rawFinish?: string;
      readonly usage: Usage;
      /** The model uses no tokens, so that a usage of 0 is known. */
      readonly usesTokens?: false;
      readonly model: string;
      readonly attempts?: readonly Attempt[];
      /** The checks of the calls in `content`, in order. */
      readonly checks: readonly CallCheck[];
    }
  | {
      readonly type: 'model-failed';
      readonly at: number;
      readonly effect: string;
      readonly error: ModelError;
      readonly attempts?: readonly Attempt[];
    }
  /** The run was resumed with another program as its model; absent: with a model that is none. */
  | { readonly type: 'program-changed'; readonly at: number; readonly program?: unknown }
  | {
      readonly type: 'calls-judged';
      readonly at: number;
      readonly effect: string;
      readonly verdicts: readonly RecordedVerdict[];
    }
  /**
   * The run was resumed with other rules, or for the first time with a policy: it is judged from now on. Calls of the turn
   * that have not started and open approvals get new verdicts, which only make them stricter.
   */
  | {
      readonly type: 'policy-changed';
      readonly at: number;
      /** Absent for a policy that is code. */
      readonly rules?: unknown;
      /** By the id of the effect that runs the call. */
      readonly verdicts?: Readonly<Record<string, RecordedVerdict>>;
      /** The limits of the policy that are smaller than those of the run. They apply from the next reply on. */
      readonly limits?: PolicyLimits;
    }
  /**
   * The promises of the sandbox that the verdict of a call counts on do not hold where it would run, so it was judged again.
   * It has not started here, or its approval is open. Without a verdict it is denied.
   */
  | { readonly type: 'call-rejudged'; readonly at: number; readonly effect: string; readonly verdict?: RecordedVerdict }
  | { readonly type: 'tool-settled'; readonly at: number; readonly effect: string; readonly result: SettledResult }
  /**
   * The child run of the call is in the journal. It performs nothing before this is durable, so if the event is missing,
   * the child has done nothing, and if the child is missing after this event, it was lost.
   */
  | { readonly type: 'child-started'; readonly at: number; readonly effect: string }
  /** The call continues elsewhere (a child run, a device). It no longer counts as running, and the run may pause on it. */
  | {
      readonly type: 'tool-parked';
      readonly at: number;
      readonly effect: string;
      readonly on: string;
      /** What the child run waits for. */
      readonly waiting?: readonly Waiting[];
      /** The call fails if it has no result by then. Absent: the deadline of an earlier park stays. */
      readonly expiresAt?: number;
      /** When its tool should be asked again. */
      readonly wakeAt?: number;
    }
  /** The tool of the call has asked these questions. It waits for the answers, so the call no longer counts as running. */
  | {
      readonly type: 'questions-asked';
      readonly at: number;
      readonly effect: string;
      readonly questions: readonly Pick<AskedQuestion, 'key' | 'question' | 'expiresAt'>[];
    }
  /** `question`: its position among all questions of the call. When none is open, the call is issued again. */
  | {
      readonly type: 'question-answered';
      readonly at: number;
      readonly effect: string;
      readonly question: number;
      readonly value: unknown;
      readonly by?: string;
      /** As in `approval-given`. */
      readonly raises?: string;
    }
  | {
      readonly type: 'approval-given';
      readonly at: number;
      readonly effect: string;
      /** The digest of the call that was approved; the event applies only if it is the call's own. */
      readonly digest: string;
      readonly approved: boolean;
      readonly reason?: string;
      readonly by?: string;
      /** Also allows later calls of the tool that touch nothing else, for the rest of the run. */
      readonly forRun?: true;
      /** The run for which the effect may exceed its budgets. A fork has this entry too, and is another run. */
      readonly raises?: string;
    }
  /** A result from outside: of a call that the client executes, or of a parked call. */
  | ({
      readonly type: 'client-result-given';
      readonly at: number;
      readonly effect: string;
      readonly content: readonly ResultBlock[];
      readonly isError: boolean;
    } & ErrorFacts &
      Examined)
  | {
      readonly type: 'output-checked';
      readonly at: number;
      readonly effect: string;
      readonly result:
        | { readonly type: 'valid'; readonly value: unknown }
        | {
            readonly type: 'invalid';
            readonly problems: readonly string[];
            /** The custom validator that reported them; absent: the schema. */
            readonly validator?: string;
            /** The prompt for the next attempt. */
            readonly prompt?: string;
            /** Why the prompt could not be created; the run fails. */
            readonly promptProblem?: string;
          };
    }
  /** One verdict per guardrail, in order. The first `stop` ends the run. */
  | {
      readonly type: 'guardrails-checked';
      readonly at: number;
      readonly effect: string;
      readonly verdicts: readonly GuardrailVerdict[];
    }
  | {
      readonly type: 'history-compacted';
      readonly at: number;
      readonly effect: string;
      readonly result:
        | { readonly type: 'summary'; readonly summary: string; readonly model: string; readonly usage: Usage }
        | { readonly type: 'failure'; readonly error: ModelError };
    }
  /**
   * The effect was lost. `restart`: with its process, so the time since the last event does not count as active. `died`:
   * that process did not release its lease, and no child run of the call's run has made progress since the last event.
   * `parked`: a parked call that must not run again is verified; it stays parked unless that finds a result.
   */
  | {
      readonly type: 'effect-lost';
      readonly at: number;
      readonly effect: string;
      readonly cause: 'restart' | 'device' | 'parked';
      readonly died?: true;
    }
  /** A tool has started a process for the run, under a name. `runId`: the run that did; a fork has this entry too. */
  | {
      readonly type: 'resource-opened';
      readonly at: number;
      readonly runId: string;
      readonly name: string;
      readonly process: HeldProcess;
    }
  /** The process has ended: it was closed, or killed when the run was resumed. */
  | { readonly type: 'resource-closed'; readonly at: number; readonly name: string }
  /**
   * The budgets lack what the effect may use, and people decide; it did not start. A call is asked about, and a denial
   * denies it. For a model call or a summary the run pauses on the question: its first choice starts it, another ends the run.
   */
  | {
      readonly type: 'budget-escalated';
      readonly at: number;
      readonly effect: string;
      readonly reason: string;
      /** What the call would touch, if its tool declares it. */
      readonly touches?: readonly Touch[];
      /** For a model call or a summary. */
      readonly question?: Question;
      /** How long people have; absent: a day. */
      readonly ttlMs?: number;
    }
  /** The ledger refused to reserve what the effect may use. It did not start, and the run ends. */
  | { readonly type: 'budget-refused'; readonly at: number; readonly effect: string; readonly reason: string }
  /**
   * With `effect`: the deadline of that approval or call, or of a question of that call. Without: the deadline of the run
   * (`limits.durationMs`).
   */
  | { readonly type: 'deadline-passed'; readonly at: number; readonly effect?: string; readonly question?: number }
  | { readonly type: 'cancel-requested'; readonly at: number };

/** A verdict with what its call would touch; absent if its tool does not declare that. */
export type RecordedVerdict = Verdict & {
  readonly touches?: readonly Touch[];
  /** The promises of the sandbox that its call would run in. Absent: none. */
  readonly sandbox?: readonly string[];
};

export type GuardrailVerdict = { readonly type: 'pass' } | { readonly type: 'stop'; readonly reason: string };

/** The result of validating a call before anything runs. A call without a check, or with a problem, never runs. */
export interface CallCheck {
  /** Why the call cannot run, as a text for the model. */
  readonly problem?: string;
  /** The type of that error; absent: `invalid_params`. */
  readonly errorType?: ErrorType;
  /** The arguments after repair; absent if they needed none. */
  readonly arguments?: string;
  /** Resources that the call needs. Calls that share one run in call order. */
  readonly resources?: readonly string[];
  /** Who would execute the call. */
  readonly recipient?: string;
}

/** What was found out about a result before it was recorded. */
export interface Examined {
  /** What the result filters did, in order. Absent: nothing. */
  readonly filtered?: readonly Filtered[];
  /** What the run has seen with it. */
  readonly exposes?: Exposure;
}

/** `marked`: the filter only said what the result exposes. */
export interface Filtered {
  readonly filter: string;
  readonly action: 'changed' | 'refused' | 'marked';
  readonly note?: string;
}

export type SettledResult =
  /** An error without `errorType` is `execution_failed`. */
  | (ErrorFacts &
      Examined & {
        readonly type: 'result';
        readonly content: readonly ResultBlock[];
        readonly isError: boolean;
        /** The blob that has the whole text, which `content` only refers to. */
        readonly blob?: string;
        /** What a child run has used. */
        readonly usage?: Usage;
        readonly calls?: number;
        /** The keys of the memory that the call changed, with their new values. `null`: the key was removed. */
        readonly memory?: Memory;
        /** Narrows what the run may do from the next turn on. */
        readonly narrow?: Narrowing | readonly Narrowing[];
        /** Hands the run over to an agent from the next turn on. Of several in a turn, that of the last call counts. */
        readonly handoff?: Handoff;
      })
  /** Only for `verify-tool`: the call did not take effect and may run, or it is unknown whether it did. */
  | { readonly type: 'not-done' }
  | { readonly type: 'unknown' };

import type { Clock } from '../platform.ts';
import type { Journal } from '../journal/port.ts';
import type { Ledger } from '../ledger/port.ts';
import type { CallAnswered, CallStarted, Item, TurnStarted } from '../journal/items.ts';
import type { ErrorFacts, InputMessage, Message, ResultBlock, ToolResult } from '../messages.ts';
import type { Model, Settings, ToolChoice, Usage } from '../model.ts';
import type { TreadleErrorCode } from '../errors.ts';
import type { Policy, Principal, TouchExposure } from '../policy/port.ts';
import type { PatternMatcher } from '../tools/json-schema.ts';
import type { Schema } from '../tools/schema.ts';
import type { StartRun, Tool } from '../tools/tool.ts';
import type { GuardrailVerdict } from '../machine/events.ts';
import type { Exposes } from '../machine/exposure.ts';
import type { Narrowing } from '../machine/narrowing.ts';
import type { HeldProcess } from '../machine/resources.ts';
import type { Limits, Memory, OutputCheck, Parent, RunFacts, TurnDecision } from '../machine/rules.ts';
import type { AgentState, Call, Carried, Outcome, Waiting } from '../machine/state.ts';

import type { HandoffAgent } from './handoff.ts';
import type { Tracing } from './tracing.ts';

/** Options for a new run. Only `model` and `input` are required. */
export interface LoopOptions<S extends Schema = Schema> extends RunEnvironment, RunFacts {
  /** The task: a text, or a conversation for the model to continue. */
  readonly input: string | readonly InputMessage[];
  /**
   * Set if `input` ends with a reply whose calls this run has to execute, such as calls that were approved later: the results
   * of those that have one. The others are judged and executed before the model is called, whatever the tool choice is.
   */
  readonly answered?: readonly ToolResult[];
  readonly instructions?: string;
  /** The maximum number of model calls; default 20. The calls of the last reply are still executed. */
  readonly maxTurns?: number;
  /** The maximum number of calls of one reply that run at once; default 5. */
  readonly maxParallel?: number;
  /** False: calls run one by one, each after all earlier ones have results. */
  readonly parallel?: boolean;
  /** More calls than this in one reply are refused. */
  readonly maxCallsPerTurn?: number;
  /** Consecutive turns with only errors that end the run; default 3, 0 is off. */
  readonly errorLimit?: number;
  /**
   * A call that was running at this many process deaths in a row, with no other entry of the run or its child runs in
   * between, is not attempted again: the run fails with `crash-loop`. 0: off. Default 5.
   */
  readonly crashLimit?: number;
  /** Consecutive identical calls with identical results after which the next one is refused; default 3, 0 is off. */
  readonly repeatLimit?: number;
  /** A longer result is cut to its head and tail; default 15,000. */
  readonly maxResultChars?: number;
  readonly limits?: Limits;
  /** The timeout of tools that do not set their own; default 60,000. */
  readonly toolTimeoutMs?: number;
  /** At a limit, ask the model for a final answer without tools. Not at the tokens, cost and duration limits. */
  readonly closingTurn?: boolean;
  readonly settings?: Settings;
  readonly principal?: Principal;
  readonly toolChoice?: ToolChoice;
  /** Calls of other tools are answered with an error. */
  readonly allowedTools?: readonly string[];
  /** `confirm`: before a text is accepted as the answer, the model is asked once whether everything is done. */
  readonly finish?: 'plain' | 'confirm';
  /** The answer must be JSON that this schema accepts; the validated value is `output` of the result. */
  readonly output?: S;
  /** For an answer of which not only `output` is used, but the text itself. */
  readonly outputCheck?: OutputCheck;
  /** With `output`: an answer that is not JSON, or not an object, is the value of this field, and is checked so. */
  readonly outputText?: string;
  /** Replaces the oldest turns of a long history by a summary. `true`: when the model rejects the history as too long. */
  readonly compaction?: boolean | CompactionOptions;
  /**
   * If the model fails and asks to wait (`retryAfterMs`), the run fails with a `wakeAt`, and `resumeDue` calls the model again
   * then. At most so many times in a row; `true`: 10. Models of `@treadle/models` wait up to a minute themselves.
   */
  readonly retryLater?: boolean | number;
  /** Any text without unpaired surrogates. By default a new id. */
  readonly runId?: string;
  /** What tools with `remembers` find in the beginning: plain JSON by key. `memory` of the result is what they left. */
  readonly memory?: Memory;
  /**
   * The definition of the agent that the run is of, as plain JSON. It is recorded for whoever resumes the run. The loop does not
   * use it.
   */
  readonly definition?: unknown;
  /** What the run may do at most. Results of tools may narrow it further. */
  readonly narrow?: Narrowing | readonly Narrowing[];
  /**
   * What the run takes over of the last run of its conversation: `carried` of the result, or `carriedFrom` the state. `memory`
   * and `narrow` are added to it.
   */
  readonly carried?: Carried;
  /** The run that this one is a child of. */
  readonly parent?: Parent;
  /** Requires a `runId` and a `journal`: see `StartOrResumeOptions`. */
  readonly resume?: never;
}

export interface CompactionOptions {
  /** Compact from this number of estimated tokens on, before the model rejects the history. */
  readonly tokens?: number;
  /** The number of newest turns that are not summarised; default 3. */
  readonly keepTurns?: number;
}

/**
 * Options to resume a run from its journal, by the rules that it was started with: a run that is paused, that was
 * interrupted, or that failed with a model error. In the last case the model is called again.
 */
export interface ContinueOptions<S extends Schema = Schema> extends RunEnvironment {
  readonly resume?: never;
  readonly runId: string;
  readonly journal: Journal;
  /** Answers for what the run waits for. Without them it pauses again. */
  readonly answers?: readonly Answer[];
  /**
   * By default, missing tools and tools with a changed schema or effect are an error. `true`: resume with the current
   * tools.
   */
  readonly acceptChangedTools?: boolean;
  /**
   * `true`: missing tools are no error. The model is still offered them as the journal records them, and a call of one gets
   * an error result. For tools whose server is away.
   */
  readonly keepMissingTools?: boolean;
  /**
   * By default, resuming under another program (`Model.program`) is an error. `true`: the run is resumed with the program
   * of `model`, and records that. Calls that the run has made already have to be those that the program asks for.
   */
  readonly acceptChangedProgram?: boolean;
  /** The schema that the run was started with. Without it, its JSON Schema in the journal is used. */
  readonly output?: S;
}

/**
 * Options to start a run, or to resume it if the journal already has it. So the same call can be repeated after a crash.
 *
 * - No run of this id: it is started, as with `LoopOptions`. `answers` then has to be empty.
 * - A run that can be resumed: it is resumed, as with `ContinueOptions`, by the rules that it was started with. Of the
 *   options for a new run only `input` is used, for a comparison.
 * - A run that has ended: its result is returned. Nothing is called.
 *
 * Rejects with `run-exists` if the run was started with another `input`, and with `run-driven` while another driver has
 * the run. If the journal has no leases, the second of two drivers is rejected with `run-exists` when it appends.
 */
export interface StartOrResumeOptions<S extends Schema = Schema>
  extends
    Omit<LoopOptions<S>, 'runId' | 'journal' | 'resume'>,
    Omit<ContinueOptions<S>, 'runId' | 'journal' | 'resume'> {
  readonly resume: 'auto';
  readonly runId: string;
  readonly journal: Journal;
}

/** What a run and its child runs are driven with. */
export type CallingOptions = RunEnvironment &
  Partial<Pick<ContinueOptions, 'acceptChangedTools' | 'keepMissingTools' | 'acceptChangedProgram'>>;

/** All forms of options for a run. */
export type RunOptions<S extends Schema = Schema> = LoopOptions<S> | ContinueOptions<S> | StartOrResumeOptions<S>;

/** Functions that may stop a run. Their verdicts are recorded, so a replay does not call them. */
export interface Guardrails {
  /** Called before the first turn. */
  readonly input?: readonly Guardrail[];
  /** Called before an answer is accepted. */
  readonly output?: readonly Guardrail[];
}

/**
 * Returns true to pass, or why the run has to stop; the long forms are `{ type: 'pass' }` and `{ type: 'stop', reason }`. If it
 * throws, or returns anything else, the run stops.
 */
export type Guardrail = (checked: GuardedContent) => GuardrailAnswer | Promise<GuardrailAnswer>;

export type GuardrailAnswer = GuardrailVerdict | boolean | string;

export interface GuardedContent {
  readonly runId: string;
  /** The conversation. An answer is its last message. */
  readonly messages: readonly Message[];
  /** The text of the last message. */
  readonly text: string;
  /** The validated answer of a run with `output`. */
  readonly output?: unknown;
  readonly context: unknown;
  readonly principal: Principal | undefined;
  readonly signal: AbortSignal;
}

/** Sees results before they are recorded. If it throws, or takes longer than `toolTimeoutMs`, the result is refused. */
export interface ResultFilter {
  readonly name: string;
  readonly filter: (result: FilteredResult) => FilterAnswer | Promise<FilterAnswer>;
}

export interface FilteredResult {
  /** A copy: only what the filter returns counts. */
  readonly content: readonly ResultBlock[];
  readonly isError: boolean;
  /** `stderr`: the content is what a command that failed wrote there. It is recorded beside the content, and not sent to the model. */
  readonly part: 'content' | 'stderr';
  readonly call: Pick<Call, 'id' | 'name' | 'arguments'>;
  readonly runId: string;
  readonly effect: string;
  readonly context: unknown;
  readonly principal: Principal | undefined;
  /** Aborts when the answer does not count any more. */
  readonly signal: AbortSignal;
}

/**
 * Undefined: the result stays as it is. `refused`: the model gets the reason in its place. `exposes`: what was found in it.
 * `note`: why, for the journal, up to 200 characters.
 */
export type FilterAnswer =
  | undefined
  | void
  | (FilterFindings & { readonly type: 'changed'; readonly content: string | readonly ResultBlock[] })
  | (FilterFindings & { readonly type: 'refused'; readonly reason: string })
  | (FilterFindings & { readonly type: 'marked' });

export interface FilterFindings {
  readonly exposes?: Exposes;
  readonly note?: string;
}

/** What the journal does not contain: code and listeners. Child runs inherit some of it: see `INHERITED` in agents/child-run.ts. */
export interface RunEnvironment {
  readonly model: Model;
  readonly tools?: readonly Tool[];
  /** Passed to tools and to the policy unchanged. */
  readonly context?: unknown;
  readonly policy?: Policy;
  /** Verifies who gave an answer, before it is recorded. Without it, `by` of an answer is trusted. */
  readonly verifyAnswer?: VerifyAnswer;
  /** Receives what is rejected and so leaves no trace in the journal. */
  readonly audit?: Audit;
  /**
   * Enforces budgets: reserves what a model call, a summary or a tool call may use before it starts. If it refuses, the
   * run ends with `exhausted: budget`. Child runs draw on it too. A run that was started with one is resumed with one.
   */
  readonly ledger?: Ledger;
  /** Checks of the input and the answer. A run that is resumed needs those that it was started with. */
  readonly guardrails?: Guardrails;
  /**
   * Filters of results, in order: redact, mark or refuse what a tool, a child run, a verification or an answer from outside
   * returns, before anything of it is recorded, stored or sent. While there are any, listeners receive no progress of tools.
   * They apply to child runs too. What is recorded stays as it is when a run is resumed with others.
   */
  readonly resultFilters?: readonly ResultFilter[];
  /**
   * What calls expose the run to by what they touch, such as private data for the path of a key, besides what the policy says.
   * It applies to child runs too.
   */
  readonly exposes?: TouchExposure;
  /** Called before each turn to change it. The decision is recorded, so a replay does not call it again. */
  readonly prepareTurn?: PrepareTurn;
  /** The agents that tools made by `handoff` may hand the run over to. */
  readonly agents?: readonly HandoffAgent[];
  /** Other models that `prepareTurn` may choose for a turn, by id. */
  readonly models?: readonly Model[];
  /** Writes the summaries of compaction; default: the run's own model. */
  readonly summariser?: Model;
  /** Default: in memory, discarded with the run. */
  readonly journal?: Journal;
  readonly signal?: AbortSignal;
  /**
   * Called for each item as it happens. Errors that it throws are ignored. If it returns a promise, a model that streams
   * over HTTP reads no further until the promise is settled.
   */
  readonly onItem?: (item: Item) => unknown;
  /** Called before each model call. Errors that this and the other hooks throw are ignored. */
  readonly onTurnStart?: (turn: TurnStarted) => unknown;
  /** Called when a tool starts to run. Not for a call that is refused. */
  readonly onToolCall?: (started: CallStarted) => unknown;
  /** Called once for each call, when it has its result, also if the tool never ran. */
  readonly onToolResult?: (answered: CallAnswered) => unknown;
  /** Called when the run has ended or paused, before its result is returned. If it returns a promise, the result waits for it. */
  readonly onFinish?: (result: LoopResult) => unknown;
  /**
   * `onItem` and the stream receive facts, and the items that follow from them, only when they are durable. Set it if the
   * listener sends them out of the process. By default they are received as soon as they are written: a power failure can
   * lose facts that nothing depends on yet, and the run then takes these steps again.
   */
  readonly durableItems?: boolean;
  /**
   * Called with what the run waits for, when it would pause and that is durable. It pauses when the promise has settled, unless
   * `answer` was called by then. Until then its resources stay open, and tools that have asked a question wait. Called again when the run
   * has changed and would pause again. Errors are ignored.
   */
  readonly beforePause?: (waiting: readonly Waiting[]) => unknown;
  /**
   * False: nobody can answer questions of tools. `ask` of a tool then rejects with the code `nobody-answers`, unless the
   * journal has the answer. It applies to child runs too.
   */
  readonly canAnswer?: boolean;
  /** Starts a run that outlives the call of a tool (`context.startRun`). Absent: tools cannot. Child runs have it too. */
  readonly startRun?: StartRun;
  /** A resource that no call has used for this time is closed; default 300,000, 0: never before the end. */
  readonly holdIdleMs?: number;
  /**
   * Passes resources that tools allow to pass (`passes`) on to the next run of the conversation: `resourceKeeper` of
   * `@treadle/store`. Without it they are closed with the run.
   */
  readonly kept?: KeptResources;
  /**
   * Ends processes that tools of the run have started and that survived the process that drove it: `killProcess` of
   * `@treadle/store`. It is called when the run is resumed. Without it they are left alone.
   */
  readonly killProcess?: KillProcess;
  /**
   * Matches the patterns of JSON Schemas: of tools, of `output`, and of questions. It applies to child runs too. Default: regular
   * expressions of JavaScript, of which some take exponential time. If schemas come from others, use `matchPattern` of
   * `@treadle/tools/patterns`.
   */
  readonly matchPattern?: PatternMatcher;
  /** Makes spans of the run and its child runs: `openTelemetry` of `@treadle/core/otel`. Absent: nothing of it is loaded. */
  readonly tracing?: Tracing;
  readonly clock?: Clock;
}

/** What keeps resources between the runs of a conversation. */
export interface KeptResources {
  /** Called when a run starts. What it returns belongs to the run from then on. */
  take(): readonly KeptResource[];
  /**
   * Called when a run has ended or, if there is `takeBack`, has paused, and has taken or opened resources, with those that pass.
   * What a paused run has left is only for itself. Must not reject.
   */
  keep(runId: string, left: readonly KeptResource[], isPaused?: boolean): Promise<void>;
  /**
   * Called when a run is resumed. Returns what it left when it paused and `isOpen` accepts, which belongs to the run again, and
   * closes the rest: another process has driven the run since. Without it, a run that pauses has its resources closed.
   */
  takeBack?(runId: string, isOpen: (resource: KeptResource) => boolean): readonly KeptResource[];
}

export interface KeptResource {
  readonly name: string;
  readonly value: unknown;
  readonly close: (value: unknown) => unknown;
  readonly isBusy?: (value: unknown) => boolean;
  /** Recorded with the run that has it. */
  readonly process?: HeldProcess;
}

/**
 * Ends a process, unless another one has its pid by now. True: it does not run any more. False: that cannot be found out
 * here, because it belongs to another host. If it rejects, the run is not resumed.
 */
export type KillProcess = (process: HeldProcess) => boolean | Promise<boolean>;

/**
 * Verifies an answer to something that the run waits for, such as its signature. `by` replaces the name in the answer. If
 * it throws, the answer is refused.
 */
export type VerifyAnswer = (answer: Answer, waiting: Waiting) => VerifiedAnswer | Promise<VerifiedAnswer>;

export type VerifiedAnswer =
  | { readonly type: 'verified'; readonly by?: string }
  | { readonly type: 'refused'; readonly reason: string };

export interface Audit {
  /** The caller gets the error when this has returned. Errors that it throws are ignored. */
  rejectedAnswer(rejected: RejectedAnswer): void | Promise<void>;
}

/** An answer that was not recorded: it was refused, or the run does not wait for it. */
export interface RejectedAnswer {
  readonly runId: string;
  readonly at: number;
  readonly answer: Answer;
  readonly code: TreadleErrorCode;
  readonly reason: string;
}

export type PrepareTurn = (turn: TurnInfo) => TurnChanges | Promise<TurnChanges>;

export interface TurnInfo {
  readonly runId: string;
  readonly turn: number;
  readonly messages: readonly Message[];
  readonly usage: Usage;
  readonly calls: number;
  readonly context: unknown;
}

/** What this turn overrides. `model` is the id of one of `models`; `tools` are names. */
export type TurnChanges = TurnDecision;

/** An answer to something that a paused run waits for. `effect` and `digest` are those of its entry in `waiting`. */
export type Answer =
  | {
      readonly type: 'approval';
      readonly effect: string;
      readonly digest: string;
      readonly approved: boolean;
      readonly reason?: string;
      /** Who decided. Required if several people have to approve, or only some may. */
      readonly by?: string;
      /** Also allows later calls of this tool that touch nothing else, for the rest of the run. */
      readonly forRun?: boolean;
      /** For `verifyAnswer`. Not recorded. */
      readonly signature?: string;
    }
  /** The result of a parked call, or of a call that the client executes. With an error, the facts say more about it. */
  | ({
      readonly type: 'result';
      readonly effect: string;
      readonly content: string | readonly ResultBlock[];
      readonly isError?: boolean;
      /** For `verifyAnswer`. Not recorded. */
      readonly signature?: string;
    } & ErrorFacts)
  /** The answer to a question of a tool: one of its choices, a value that its schema accepts, or a text. */
  | {
      readonly type: 'answer';
      readonly effect: string;
      readonly value: unknown;
      /** Who answered. */
      readonly by?: string;
      /** For `verifyAnswer`. Not recorded. */
      readonly signature?: string;
    };

export interface LoopResult<Output = unknown> {
  readonly runId: string;
  /** Absent when the run is paused (`waiting` lists what it waits for) or was detached. */
  readonly outcome?: Outcome;
  /** The run was detached before its end, and can be resumed. */
  readonly detached?: true;
  readonly waiting: readonly Waiting[];
  /** When the run should be resumed without an answer; absent: it only waits for answers, or has ended for good. */
  readonly wakeAt?: number;
  /** The text of the last reply. */
  readonly text: string;
  /** The validated answer of a run with `output`. */
  readonly output?: Output;
  /** The agent that the run is with, if it was handed over. */
  readonly handedTo?: string;
  /** What tools with `remembers` left, and what the run was started with. */
  readonly memory?: Memory;
  /** What the next run of a conversation takes over, as its option `carried`. Absent: nothing. */
  readonly carried?: Carried;
  /** The progress of a typed agent. */
  readonly agent?: AgentState;
  readonly messages: readonly Message[];
  /** The id of the model that the run is with. */
  readonly model: string;
  /** The names of the tools that were called, without calls that were denied; sorted. */
  readonly toolsUsed: readonly string[];
  readonly usage: Usage;
  readonly turns: number;
  /** Calls that were allowed to run. */
  readonly calls: number;
  /** Active time, without paused time. */
  readonly durationMs: number;
  /**
   * This result if the run has completed. Otherwise throws a `RunError` with its code, and with the id of the run: the run
   * failed, reached a limit, was cancelled or detached, or is paused.
   */
  orThrow(): CompletedRun<Output>;
}

/** The result of a run that has completed. */
export interface CompletedRun<Output = unknown> extends LoopResult<Output> {
  readonly outcome: Extract<Outcome, { type: 'completed' }>;
  /** Undefined if the run has no `output`. */
  readonly output: Output;
}

/** A run in progress. */
export interface StartedRun {
  readonly runId: string;
  /** Rejects only if the journal fails. If the rejection is not handled, the process continues. */
  readonly result: Promise<LoopResult>;
  /**
   * Adds input at the next turn boundary. The call adds it at once; the promise resolves when it is durable. False: the run
   * has ended or paused, and the input is dropped. Rejects with `invalid-input`, or if the journal fails. If the rejection
   * is not handled, the process continues.
   */
  send(input: string | (InputMessage & { readonly role: 'user' })): Promise<boolean>;
  /**
   * Adds, removes or changes tools: the run has exactly these from the next turn on. Calls of the current turn still use the
   * tools that the model was offered. False: the run has ended or paused. Rejects for misuse, else like `send`.
   */
  changeTools(tools: readonly Tool[]): Promise<boolean>;
  /**
   * Undoes narrowing at once: that of a source, or all. `by`: who decided it, for the journal. False: the run has ended or
   * paused, or is not narrowed so. Resolves when that is durable, like `send`.
   */
  liftNarrowing(by?: string, source?: string): Promise<boolean>;
  /**
   * Resolves when the answer is durable. Rejects with `answer-unfit` if the run does not wait for it, with `answer-refused`
   * if `verifyAnswer` refuses it, else like `send`.
   */
  answer(answer: Answer): Promise<void>;
  cancel(): void;
  /**
   * Stops driving the run without ending it, like a crash, but in order: nothing more is started or recorded, effects in
   * progress are aborted and count as lost, child runs are detached too, and the lease is released. `result` then has the
   * progress so far. Resuming the run recovers the lost effects by the rules. A run that has not started never starts; one
   * that has ended or is paused does not change. Resolves when another process may drive the run; never rejects.
   */
  detach(): Promise<void>;
}

/**
 * A run in progress, with its items. Leaving the iteration early cancels the run. Items are buffered until they are read;
 * if nothing iterates, use `startLoop` or `runLoop` with `onItem`, which buffer none.
 */
export interface LiveRun extends StartedRun, AsyncIterable<Item> {}

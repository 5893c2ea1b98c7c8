import type { Clock } from '../clock.ts';
import type { Journal } from '../journal/port.ts';
import type { Message, ResultBlock, ToolCall, ToolResult, UserMessage } from '../messages.ts';
import type { Model, ModelDelta, Settings, ToolChoice, Usage } from '../model.ts';
import type { Policy, Principal } from '../policy/port.ts';
import type { Schema } from '../tools/schema.ts';
import type { Tool } from '../tools/tool.ts';
import type { Event } from './events.ts';
import type { Limits, Parent, TurnDecision } from './pinned.ts';
import type { AgentState, Outcome, Waiting } from './state.ts';

/** What a run is made of. Everything but `model` and `input` has a default. */
export interface LoopOptions extends Surroundings {
  /** The task: a text, or a conversation that ends where the model is to go on. */
  readonly input: string | readonly Message[];
  readonly instructions?: string;
  /** Model calls at most; default 20. The last reply's calls are still executed. */
  readonly maxTurns?: number;
  /** Calls of one reply that run at once at most; default 5. */
  readonly maxParallel?: number;
  /** False: calls run one by one, each after all before it are answered. */
  readonly parallel?: boolean;
  /** More calls than this in one reply are refused. */
  readonly maxCallsPerTurn?: number;
  /** Turns in a row with nothing but errors; default 3, 0 is off. */
  readonly errorLimit?: number;
  /** Identical calls in a row with identical results; default 3, 0 is off. */
  readonly repeatLimit?: number;
  /** A longer result keeps its head and tail; default 15,000. */
  readonly maxResultChars?: number;
  readonly limits?: Limits;
  /** For tools that set none of their own; default 60,000. */
  readonly toolTimeoutMs?: number;
  /** At a limit, ask the model for one last answer without tools. Not when tokens, cost or time are spent. */
  readonly closingTurn?: boolean;
  readonly settings?: Settings;
  readonly principal?: Principal;
  readonly toolChoice?: ToolChoice;
  /** Calls of other tools are answered with an error. */
  readonly allowedTools?: readonly string[];
  /** `confirm`: before a text counts as the answer, the model is asked once whether everything is done. */
  readonly finish?: 'plain' | 'confirm';
  /** The answer has to be JSON that this schema takes; the validated value is `output` of the result. */
  readonly output?: Schema;
  /** Makes a conversation that has become too long shorter. `true`: when the model refuses it. */
  readonly compaction?: boolean | CompactionOptions;
  readonly runId?: string;
  /** The run that it works for. */
  readonly parent?: Parent;
}

export interface CompactionOptions {
  /** Before the model refuses: from this many estimated tokens on. */
  readonly tokens?: number;
  /** The newest turns that stay as they are; default 3. */
  readonly keepTurns?: number;
}

/**
 * Goes on with a run that is in the journal, by the rules that it was started with: one that is paused, that a process
 * left in the middle, or that failed because the model did, which is then asked again.
 */
export interface ContinueOptions extends Surroundings {
  readonly runId: string;
  readonly journal: Journal;
  /** For what it waits for; without, it pauses again. */
  readonly answers?: readonly Answer[];
  /**
   * Tools that are gone, or whose schema or effect has changed since the run last had them, are an error; `true`: go on
   * with the tools as they are now.
   */
  readonly acceptChangedTools?: boolean;
  /** The schema that the run was started with; without, its JSON Schema in the journal serves. */
  readonly output?: Schema;
}

/** What is not pinned in the journal: code, and who listens. */
interface Surroundings {
  readonly model: Model;
  readonly tools?: readonly Tool[];
  /** Handed to tools and to the policy as it is. */
  readonly context?: unknown;
  readonly policy?: Policy;
  /** Decides before each turn what it shall be like. What it says is recorded, so it is not asked again on a replay. */
  readonly prepareTurn?: PrepareTurn;
  /** Other models that `prepareTurn` may give a turn to, by their ids. */
  readonly models?: readonly Model[];
  /** Writes the summaries of compaction; default: the run's own model. */
  readonly summariser?: Model;
  /** Default: in memory, gone with the run. */
  readonly journal?: Journal;
  readonly signal?: AbortSignal;
  /**
   * Called for each item as it happens. What it throws is ignored. A promise holds a model that streams over HTTP back
   * until it is settled.
   */
  readonly onItem?: (item: Item) => unknown;
  readonly clock?: Clock;
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

/** What differs in this turn from the run's own. `model` is the id of one of `models`; `tools` are names. */
export type TurnChanges = TurnDecision;

/** For something that a paused run waits for; `effect` and `digest` are those of its entry in `waiting`. */
export type Answer =
  | {
      readonly type: 'approval';
      readonly effect: string;
      readonly digest: string;
      readonly approved: boolean;
      readonly reason?: string;
      readonly by?: string;
    }
  | {
      readonly type: 'client-result';
      readonly effect: string;
      readonly content: string | readonly ResultBlock[];
      readonly isError?: boolean;
    };

/** What a listener gets: signals on their way, facts once they are durable, and what follows from them. */
export type Item = ModelDelta | Report | Fact | TurnStarted | CallStarted | CallAnswered;

/** Progress of a running tool. */
export interface Report {
  readonly type: 'tool-report';
  readonly call: ToolCall;
  readonly progress: unknown;
}

export interface Fact {
  readonly type: 'fact';
  readonly seq: number;
  readonly event: Event;
}

export interface TurnStarted {
  readonly type: 'turn-started';
  readonly turn: number;
  /** Of a typed agent. */
  readonly attempt?: number;
}

/**
 * A tool begins to run, or the validation that answers a call of a typed agent's output. Comes again for a call that was
 * lost and may run again.
 */
export interface CallStarted {
  readonly type: 'call-started';
  /** Counts the calls of the reply from 0. */
  readonly index: number;
  readonly call: ToolCall;
}

/** A call has its result, also one that never ran; once per call. */
export interface CallAnswered {
  readonly type: 'call-answered';
  /** Counts the calls of the reply from 0. */
  readonly index: number;
  readonly call: ToolCall;
  readonly result: ToolResult;
}

export interface LoopResult {
  readonly runId: string;
  /** Absent when the run is paused, and `waiting` says on what; or when it was detached. */
  readonly outcome?: Outcome;
  /** It was left in the middle, and can be gone on with. */
  readonly detached?: true;
  readonly waiting: readonly Waiting[];
  /** The words of the last reply. */
  readonly text: string;
  /** The validated answer of a run with `output`. */
  readonly output?: unknown;
  /** How far a typed agent got. */
  readonly agent?: AgentState;
  readonly messages: readonly Message[];
  readonly usage: Usage;
  readonly turns: number;
  /** Calls that were let through to run. */
  readonly calls: number;
  /** Without the time that it was paused. */
  readonly durationMs: number;
}

/** A run on its way. */
export interface StartedRun {
  readonly runId: string;
  /** Rejects only if the journal fails. Nobody has to handle it. */
  readonly result: Promise<LoopResult>;
  /** Input that lands at the next turn boundary. False: the run has ended or paused, and will not see it. */
  send(input: string | UserMessage): boolean;
  /** Throws if it does not fit what the run waits for, and says why. */
  answer(answer: Answer): void;
  cancel(): void;
  /**
   * Stops driving the run without ending it, as a crash would, but in order: nothing more is begun or recorded, what is
   * under way is told to stop and counts as lost, as do runs that work for it, and the lease is given back. `result`
   * then says how far it got. Whoever goes on with the run later recovers what was lost by the rules. A run that has
   * not begun yet never does; one that has ended or is paused stays as it is. Resolves when others may drive it; never
   * rejects.
   */
  detach(): Promise<void>;
}

/**
 * A run on its way, with its items. Leaving the iteration early cancels it. Items are kept for a reader who comes late;
 * where nobody will iterate, `startLoop` and `runLoop` with `onItem` keep none.
 */
export interface LiveRun extends StartedRun, AsyncIterable<Item> {}

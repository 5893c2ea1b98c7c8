import type { ResultBlock, ToolResult, UserMessage } from '../messages.ts';
import type { ModelError, Settings, ToolChoice, Usage } from '../model.ts';
import type { PolicyLimits, Principal, Touch } from '../policy/port.ts';
import type { Exposure } from './exposure.ts';
import type { History } from './history.ts';
import type { Narrowings } from './narrowing.ts';
import type { AskedQuestion, Question } from './questions.ts';
import type { OpenResource } from './resources.ts';
import type { Handoff, Limits, Memory, Rules, ToolEffect, ToolFacts, TurnDecision } from './rules.ts';

/** The whole state of a run, derived from its journal alone. */
export interface State {
  readonly runId: string;
  readonly rules: Rules;
  readonly model: string;
  readonly settings: Settings;
  readonly principal: Principal | undefined;
  readonly instructions: string | undefined;
  readonly tools: readonly ToolFacts[];
  /** The tools from the next turn on, if they change. */
  readonly nextTools: readonly ToolFacts[] | undefined;
  /** The agent that the run was handed to, by name; undefined: the one that it was started with. */
  readonly handedTo: string | undefined;
  /** The agent that the run is handed to with the next turn, and the index of the call that did it. */
  readonly handoff: (Omit<Handoff, 'tools'> & { readonly index: number }) | undefined;
  /** The definition of the program that is the model. */
  readonly program: unknown;
  /** The number of messages that the run was started with: the task. */
  readonly inputLength: number;
  readonly phase: Phase;
  readonly history: History;
  /** Model calls started. */
  readonly turn: number;
  /** Calls that were allowed to run. */
  readonly calls: number;
  readonly usage: Usage;
  /** Every reply so far is of a model that uses no tokens, so a usage of 0 is known. */
  readonly tokenless: boolean;
  /** Consecutive turns whose results were all errors. */
  readonly errors: number;
  /** The last call that ran, how often in a row it returned the same result, and how often it was refused for that. */
  readonly streak: Streak | undefined;
  /** The tool choice of the run; becomes `auto` once satisfied. */
  readonly choice: ToolChoice;
  /** What the last reply lacked. The model was asked for it; if the next reply lacks it too, the run fails. */
  readonly lacked: 'call' | 'content' | 'output' | undefined;
  /** What `prepareTurn` decided for the current turn. */
  readonly decision: TurnDecision | undefined;
  /** The validated answer. */
  readonly output: unknown;
  /** Set for a typed agent. */
  readonly agent: AgentState | undefined;
  /** What tools remember. A typed agent has its memory in `agent`. */
  readonly memory: Memory | undefined;
  /** What the run may do in this turn, and from the next turn on, at most. */
  readonly narrowed: Narrowings;
  readonly narrowing: Narrowings;
  /** The tools that were used in turns which a summary has replaced. Undefined: none has. */
  readonly usedBefore: readonly string[] | undefined;
  /** The estimated number of tokens in the history. */
  readonly contextTokens: number;
  /** The model was asked whether everything is done (finish `confirm`). */
  readonly confirmed: boolean;
  /** The last reply was cut off. */
  readonly truncated: boolean;
  /** Replies with a call that the calls limit refused. After the first one the model is asked for an answer. */
  readonly spent: number;
  /** The limit that was reached, while the model is asked for a final answer. */
  readonly closing: Limit | undefined;
  /** Input that waits for the next turn boundary. */
  readonly pending: readonly UserMessage[];
  /** The rules of every policy that the run was judged by, the latest last. Undefined: none is recorded. */
  readonly policies: readonly unknown[] | undefined;
  /** Limits of policies that the run was resumed with. The smaller of these and of the rules apply. */
  readonly policyLimits: PolicyLimits | undefined;
  /** What people have allowed for the rest of the run. */
  readonly grants: readonly Grant[] | undefined;
  /** Different paths that calls which were allowed to run may have written, as their tools declare; at most 100. */
  readonly written: readonly string[] | undefined;
  /** What the run has seen. Undefined: neither content from outside nor private data. */
  readonly exposure: Exposure | undefined;
  /** Processes that tools have started for the run. Undefined: none. */
  readonly resources: readonly OpenResource[] | undefined;
  /** How many process deaths in a row each call was running at, by effect. Any event that is not about a resource resets it. */
  readonly deaths: Readonly<Record<string, number>> | undefined;
  /** The time of the last event, and how long the run was active until then. */
  readonly at: number;
  readonly activeMs: number;
}

/** The progress of a typed agent. */
export interface AgentState {
  /** From 1. */
  readonly attempt: number;
  /** Turns before this attempt. */
  readonly from: number;
  /** The arguments of the attempt's last call of the output tool. */
  readonly proposal: string | undefined;
  readonly memory: Memory | undefined;
  /** Why the last output was rejected. */
  readonly rejection: Rejection | undefined;
}

export interface Rejection {
  /** The custom validator that rejected it; absent: the schema. */
  readonly validator?: string;
  readonly problems: readonly string[];
}

export type Phase =
  | { readonly type: 'new' }
  | { readonly type: 'preparing'; readonly effect: string }
  /**
   * `retries`: how often it was repeated because the model asked to wait. `raised`: the run for which people allowed it to
   * exceed its budgets.
   */
  | { readonly type: 'model'; readonly effect: string; readonly retries?: number; readonly raised?: string | undefined }
  /** `refused`: the model call that failed because the history was too long, and its error. */
  | {
      readonly type: 'compacting';
      readonly effect: string;
      readonly to: number;
      readonly refused?: { readonly effect: string; readonly error: ModelError };
      readonly raised?: string | undefined;
    }
  /** The budgets lack what `of` needs. The run is paused until people have decided whether it may start. */
  | {
      readonly type: 'raising';
      readonly of: Extract<Phase, { readonly type: 'model' | 'compacting' }>;
      readonly question: Question;
      readonly expiresAt: number;
    }
  /** `slots`: the calls of the turn, if a call provided the output. */
  | { readonly type: 'validating'; readonly effect: string; readonly text: string; readonly slots?: readonly Slot[] }
  /** `answer`: how the run ends if the guardrails let its answer pass; absent: they check the input. */
  | { readonly type: 'guarding'; readonly effect: string; readonly answer?: Outcome }
  | { readonly type: 'judging'; readonly effect: string; readonly slots: readonly Slot[] }
  | { readonly type: 'tools'; readonly slots: readonly Slot[] }
  /**
   * `effect`: the model call whose failure ended the run. `effect-lost` for it resumes the run. `wakeAt`: when to do that,
   * because the model asked to wait. `retries`: how often that was done before; absent: never.
   */
  | {
      readonly type: 'ended';
      readonly outcome: Outcome;
      readonly effect?: string;
      readonly wakeAt?: number;
      readonly retries?: number;
    };

/** The progress of one call of the turn. Its index in the slots is its index in the reply. */
export type Slot =
  /**
   * `verify`: the call was lost after it had started, so its tool is asked whether it took effect. `begun`: its child
   * run has started, so a repeated call resumes that run. `parked`: what it was parked with, until it settles. `asked`: the
   * questions that its tool has asked, with the answers.
   */
  | {
      readonly type: 'queued';
      readonly call: Call;
      readonly verify?: true;
      readonly begun?: true;
      readonly parked?: Parking;
      readonly asked?: readonly AskedQuestion[];
    }
  | {
      readonly type: 'running';
      readonly call: Call;
      readonly begun?: true;
      readonly parked?: Parking;
      readonly asked?: readonly AskedQuestion[];
    }
  | {
      readonly type: 'verifying';
      readonly call: Call;
      readonly parked?: Parking;
      readonly asked?: readonly AskedQuestion[];
    }
  /** Its tool waits for answers. At least one of the questions is open. */
  | {
      readonly type: 'questioning';
      readonly call: Call;
      readonly begun?: true;
      readonly parked?: Parking;
      readonly asked: readonly AskedQuestion[];
    }
  | ({ readonly type: 'parked'; readonly call: Call; readonly asked?: readonly AskedQuestion[] } & Parking)
  | ({ readonly type: 'asking'; readonly call: Call } & Ask)
  | { readonly type: 'client'; readonly call: Call; readonly expiresAt?: number }
  /** Answered by the validation of the output, after all other calls. */
  | { readonly type: 'held'; readonly call: Call }
  | { readonly type: 'settled'; readonly call: Call; readonly result: ToolResult; readonly how: Settling };

/** What a call is parked on. */
export interface Parking {
  readonly on: string;
  /** What its child run waits for. */
  readonly waiting: readonly Waiting[];
  /** The call fails if it has no result by then. */
  readonly expiresAt?: number;
  /** When its tool should be asked again. */
  readonly wakeAt?: number;
}

/**
 * What settled a call. `ran`: the tool, a person or client, or a refusal that the model can correct. A limit of the loop:
 * `capped` per reply, `spent` per run, `repeated` for identical calls. `claimed`: the finish strategy.
 */
export type Settling = 'ran' | 'capped' | 'spent' | 'repeated' | 'claimed';

/** A call of a reply, with the facts about its tool. */
export interface Call {
  readonly turn: number;
  readonly index: number;
  readonly id: string;
  readonly name: string;
  /** The JSON text that the tool gets, after repair. */
  readonly arguments: string;
  readonly resources: readonly string[];
  readonly effect: ToolEffect;
  readonly exclusive: boolean;
  /** Executed by the client. */
  readonly client: boolean;
  /** The tool has `verify`. */
  readonly verifiable: boolean;
  /** Claimed by the finish strategy: does not count for the calls limit. */
  readonly claimed?: true;
  /** For a call that starts a child run: its share of the limits. */
  readonly limits?: Limits;
  /** The arguments that are references to long results. */
  readonly references?: readonly string[];
  /** The step of a program that makes it. */
  readonly label?: string;
  /** Its tool has `needsApproval`, so the call is judged also without a policy. */
  readonly needsApproval?: true;
  /** The rule that decided its verdict. */
  readonly rule?: string;
  /** For a call that the client executes: how long it waits for its result. */
  readonly ttlMs?: number;
  /** Does not count for the calls limit. */
  readonly uncounted?: true;
  /** The promises of the sandbox that its verdict counts on. It does not run without them, but is judged again. */
  readonly sandbox?: readonly string[];
  /** Who executes it elsewhere, as its tool said when the model called it. */
  readonly recipient?: string;
  /** How often it was judged again, because promises did not hold. */
  readonly rejudged?: number;
  /** The run for which people allowed it to exceed its budgets. */
  readonly raised?: string | undefined;
}

/** An open approval. */
export interface Ask {
  readonly digest: string;
  readonly expiresAt: number;
  readonly reason?: string;
  /** How many different people have to approve; absent: one. */
  readonly required?: number;
  /** Who may answer; absent: anybody. */
  readonly approvers?: readonly string[];
  /** What the policy wants to be shown. */
  readonly shown?: unknown;
  /** What the call would touch; absent if its tool does not declare it. */
  readonly touches?: readonly Touch[];
  /** The rule that requires the approval. */
  readonly rule?: string;
  /** What people allow for the rest of the run does not answer it. */
  readonly eachTime?: true;
  /** Who has approved so far, if several people have to. */
  readonly approvedBy?: readonly string[];
  /** Somebody approved this call only, so that it will not be allowed for the rest of the run. */
  readonly onlyThisCall?: true;
  /** The call exceeds its budgets, which an approval allows once. */
  readonly raises?: true;
}

/** What people have allowed for the rest of a run, and of its conversation: calls of a tool that touch no more than this. */
export interface Grant {
  readonly tool: string;
  readonly touches: readonly Touch[];
  /** A digest of the facts about the tool. If the tool changes, the grant does not count any more. */
  readonly definition: string;
  /** Who allowed it. Empty if the approval has no name. */
  readonly by: readonly string[];
  /** It counts only for calls in a sandbox with these promises. */
  readonly sandbox?: readonly string[];
}

/** What a run of a conversation leaves for the next one, which takes it as the option `carried`. Plain JSON. */
export interface Carried {
  readonly memory?: Memory | undefined;
  readonly narrow?: Narrowings;
  /** They count only for a run with the same subject and tenant. */
  readonly grants?: readonly Grant[] | undefined;
  readonly exposure?: Exposure | undefined;
  /** For whom the run was driven. */
  readonly principal?: Principal | undefined;
}

export interface Streak {
  readonly name: string;
  readonly arguments: string;
  readonly content: readonly ResultBlock[];
  readonly count: number;
  readonly refused: number;
}

/** `budget`: the ledger of the run refused an effect. */
export type Limit =
  | 'turns'
  | 'attempts'
  | 'calls'
  | 'tokens'
  | 'cost'
  | 'duration'
  | 'errors'
  | 'repetition'
  | 'budget';

export type CancelPhase = 'model' | 'tool' | 'approval' | 'client' | 'validation';

export type Outcome =
  | { readonly type: 'completed'; readonly truncated?: true }
  | { readonly type: 'exhausted'; readonly limit: Limit }
  | { readonly type: 'failed'; readonly error: { readonly code: string; readonly message: string } }
  | { readonly type: 'cancelled'; readonly phase: CancelPhase };

/** Something outside that a run waits for. */
export type Waiting =
  | ({ readonly type: 'approval'; readonly effect: string; readonly call: Call } & Ask)
  | { readonly type: 'client'; readonly effect: string; readonly call: Call; readonly expiresAt?: number }
  /** A tool has asked a question. With `raises`: the call stands for that of a model which exceeds its budgets. */
  | {
      readonly type: 'question';
      readonly effect: string;
      readonly call: Call;
      readonly question: Question;
      readonly expiresAt?: number;
      readonly raises?: true;
    }
  | ({ readonly type: 'parked'; readonly effect: string; readonly call: Call } & Omit<Parking, 'waiting'>);

import type {
  Amounts,
  CallCheck,
  ErrorFacts,
  Finish,
  GuardrailVerdict,
  Handoff,
  Memory,
  Message,
  ModelErrorCode,
  Grant,
  Narrowing,
  OpenResource,
  ProviderData,
  ReasoningPart,
  ResultBlock,
  RecordedVerdict,
  Rules,
  RunFacts,
  SettledResult,
  TextBlock,
  ToolFacts,
  TurnDecision,
  Usage,
  Waiting,
} from '@treadle/core';
import type { PolicyRules } from '@treadle/core/policy';

/** Everything that happens to one run, as plain data, so that fast-check can shrink and print it. */
export interface World {
  readonly rules: Rules;
  readonly tools: readonly ToolFacts[];
  /** The tools after a change. A second change restores the first ones. */
  readonly otherTools: readonly ToolFacts[];
  /** The rules of the policy at the start; absent: it is code. */
  readonly policy?: unknown;
  readonly input: readonly Message[];
  /** The initial memory of a run that is not a typed agent's. */
  readonly memory?: Memory;
  /** What the run may do at most in the beginning. */
  readonly narrow?: Narrowing | readonly Narrowing[];
  /** What people have allowed before in the conversation. */
  readonly grants?: readonly Grant[];
  /** What it takes over of the last run of the conversation. Only for `step`: a live run gets it from its host. */
  readonly taken?: readonly OpenResource[];
  /** The definition of the program that is the model. */
  readonly program?: unknown;
  /** What the run belongs to. */
  readonly facts?: RunFacts;
  /** The limits of the budget that a run with a ledger draws on. */
  readonly budget?: Amounts;
  /** The replies of the model by turn. After the last one, the model replies with a final text. */
  readonly replies: readonly Reply[];
  /** Other values by turn. They start again after the last one. */
  readonly turnScripts: readonly TurnScript[];
  /** The order, the time and the disturbances. After the last one, outstanding effects settle in order. */
  readonly moves: readonly Move[];
}

export type Reply =
  /** `stubborn`: it fails again with the compacted conversation. */
  | {
      readonly type: 'failure';
      readonly code: ModelErrorCode;
      readonly stubborn: boolean;
      /** The model ends the run with this code. */
      readonly endsWith?: string;
      /** How long the model asks to wait. */
      readonly retryAfterMs?: number;
    }
  | {
      readonly type: 'reply';
      readonly parts: readonly Part[];
      readonly finish: Finish;
      readonly usage: Usage;
      /** The model uses no tokens. */
      readonly usesTokens?: false;
      /** How many of the last checks and verdicts are missing. */
      readonly unchecked: number;
      readonly unjudged: number;
      /** Input is added while the calls run. */
      readonly steered: boolean;
    };

/** What the program, the summariser and the validator return in a turn. */
export interface TurnScript {
  readonly decision: TurnDecision;
  /** The preparation of the turn fails. */
  readonly unprepared: boolean;
  readonly summary: { readonly type: 'summary'; readonly usage: Usage } | { readonly type: 'failure' };
  readonly valid: boolean;
  /** The verdicts of the guardrails. Without any, the run stops. */
  readonly guards: readonly GuardrailVerdict[];
  /** The validated output of a typed agent, and the details of a rejection. */
  readonly value: unknown;
  readonly rejection: { readonly validator?: string; readonly prompt?: string; readonly promptProblem?: string };
}

export type Part = TextBlock | ReasoningPart | ScriptedCall;

/** A call and everything that happens to it, in any order of the calls of its turn. */
export interface ScriptedCall {
  readonly type: 'call';
  readonly id: string;
  readonly name: string;
  readonly arguments: string;
  readonly provider?: ProviderData;
  /** The arguments that refer to long results. */
  readonly references?: readonly string[];
  /** How many times the reply contains it, with the same id. */
  readonly copies: number;
  readonly check: CallCheck;
  readonly verdict: RecordedVerdict;
  /** The verdict of other rules; absent: none. */
  readonly rejudged?: RecordedVerdict;
  readonly fate: Fate;
}

export interface Fate {
  readonly content: readonly ResultBlock[];
  readonly isError: boolean;
  /** The blob that has its result. */
  readonly blob?: string;
  /** What is known about its error. */
  readonly facts?: ErrorFacts;
  /** The usage of the call if it is a child run. */
  readonly usage?: Usage;
  /** The keys of the memory that it changes. */
  readonly memory?: Memory;
  /** How it narrows the run. */
  readonly narrow?: Narrowing;
  /** How it hands the run over, and whether that agent has the other tools. */
  readonly handoff?: Omit<Handoff, 'tools'> & { readonly other: boolean };
  /** Its child run starts before anything else happens to it. */
  readonly child: boolean;
  /** It is parked before it settles, and its child waits for these. */
  readonly parked: boolean;
  readonly inside: readonly Exclude<Waiting['type'], 'question'>[];
  /** How long after it is parked it fails; absent: never. */
  readonly ttl?: number;
  /** How long after it is parked its tool should be asked again. */
  readonly wake?: number;
  /** Its result comes from outside while it is parked. */
  readonly outside?: boolean;
  /** Its first verification parks it. */
  readonly verifyParks?: boolean;
  /** The questions that it asks before it settles: those of one list at once. */
  readonly asks: readonly (readonly ScriptedQuestion[])[];
  /** The losses before it settles. */
  readonly lost: readonly ('restart' | 'device' | 'parked')[];
  readonly verified: SettledResult;
  /** The answer of a person, a client or a device. `late`: an approval after it expired. */
  readonly answer: 'given' | 'refused' | 'expired' | 'late' | 'never';
  /** Which of the people who approve it, in order, do so for the rest of the run. */
  readonly forRun: readonly boolean[];
}

/** `ttlMs`: it expires. */
export interface ScriptedQuestion {
  readonly prompt: string;
  readonly ttlMs?: number;
}

/** One thing that happens. `pick` selects among the possibilities. */
export interface Move {
  readonly act: Act;
  readonly pick: number;
  readonly delay: number;
}

export type Act =
  | 'settle'
  /** One effect is lost, or all that are in progress. */
  | 'lose'
  | 'restart'
  /** An earlier event is repeated; an event has a wrong id or a wrong type. */
  | 'repeat'
  | 'foreign'
  /** An approval has the digest of another call, or comes from somebody at random. */
  | 'mistake'
  /** The run gets other rules. */
  | 'policy'
  /** The promises of the sandbox of a call do not hold, so it is judged again. */
  | 'rejudge'
  /** The run gets another program as its model. */
  | 'program'
  | 'input'
  | 'tools'
  | 'lift'
  /** A tool starts a process for the run, or one of them has ended. */
  | 'open'
  | 'close'
  | 'fork'
  | 'deadline'
  /** The ledger refuses an effect. */
  | 'refuse'
  | 'cancel';

export const SETTLE_FIRST: Move = { act: 'settle', pick: 0, delay: 1 };

const callsByReply = new WeakMap<Reply, readonly ScriptedCall[]>();

/** The calls of a reply, with each copy. Cached, because replies may have many copies and are asked for often. */
export function callsOf(reply: Reply | undefined): readonly ScriptedCall[] {
  if (reply?.type !== 'reply') return [];
  const known = callsByReply.get(reply);
  if (known) return known;
  const calls = reply.parts.flatMap((part) =>
    part.type === 'call' ? Array.from({ length: part.copies }, () => part) : [],
  );
  callsByReply.set(reply, calls);
  return calls;
}

/** Whether the results of a live run are filtered. It follows from the world, so that others stay as they were. */
export function isFiltered({ moves }: World): boolean {
  return moves.length % 4 === 1;
}

/** Whether the rules of a policy are those of `policy()`. The others are of a policy that answers by the script. */
export function hasRules(rules: unknown): rules is PolicyRules {
  return typeof rules === 'object' && rules !== null && 'autonomy' in rules;
}

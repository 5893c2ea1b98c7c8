import type {
  CallCheck,
  Finish,
  Memory,
  Message,
  ModelErrorCode,
  ReasoningPart,
  ResultBlock,
  Rules,
  SettledResult,
  TextBlock,
  ToolFacts,
  TurnDecision,
  Usage,
  Verdict,
  Waiting,
} from '@treadle/core';

/** Everything that happens to one run, as plain data, so that fast-check can shrink and print it. */
export interface World {
  readonly rules: Rules;
  readonly tools: readonly ToolFacts[];
  /** What the tools become when they change; changing them again brings back the first. */
  readonly otherTools: readonly ToolFacts[];
  readonly input: readonly Message[];
  /** What the model says, turn by turn. After the last it says that it is done. */
  readonly replies: readonly Reply[];
  /** What else is said of the turns, from the first on; after the last it begins again. */
  readonly asides: readonly Aside[];
  /** In which order, how fast and with what disturbance things happen. After the last, what is open settles in order. */
  readonly moves: readonly Move[];
}

export type Reply =
  /** `stubborn`: it fails again when the conversation was made shorter. */
  | { readonly type: 'failure'; readonly code: ModelErrorCode; readonly stubborn: boolean }
  | {
      readonly type: 'reply';
      readonly parts: readonly Part[];
      readonly finish: Finish;
      readonly usage: Usage;
      /** So many of the last checks and verdicts are missing. */
      readonly unchecked: number;
      readonly unjudged: number;
      /** Somebody says something while the calls run. */
      readonly steered: boolean;
    };

/** What the program, the summariser and the validator have to say of a turn, if they are asked. */
export interface Aside {
  readonly decision: TurnDecision;
  /** Nothing was decided: it went wrong. */
  readonly unprepared: boolean;
  readonly summary: { readonly type: 'summary'; readonly usage: Usage } | { readonly type: 'failure' };
  readonly valid: boolean;
  /** What a typed agent's output is taken to be, or what else is said of one that is not valid. */
  readonly value: unknown;
  readonly rejection: { readonly validator?: string; readonly prompt?: string; readonly promptProblem?: string };
}

export type Part = TextBlock | ReasoningPart | ScriptedCall;

/** A call and all that will become of it, whatever the order in which its turn goes on. */
export interface ScriptedCall {
  readonly type: 'call';
  readonly id: string;
  readonly name: string;
  readonly arguments: string;
  /** How often it stands in the reply, with the same id. */
  readonly copies: number;
  readonly check: CallCheck;
  readonly verdict: Verdict;
  readonly fate: Fate;
}

export interface Fate {
  readonly content: readonly ResultBlock[];
  readonly isError: boolean;
  /** What it has used, if it was a run of its own. */
  readonly usage?: Usage;
  /** What it has left to remember, if it helps a typed agent. */
  readonly memory?: Memory;
  /** It goes on elsewhere before it settles, and waits there for these. */
  readonly parked: boolean;
  readonly inside: readonly Waiting['type'][];
  /** It is lost so often before it settles. */
  readonly lost: readonly ('restart' | 'device')[];
  readonly verified: SettledResult;
  /** By whoever is outside: a person, a client, a device. `late` is an approval after its time. */
  readonly answer: 'given' | 'refused' | 'expired' | 'late' | 'never';
}

/** One thing that happens. `pick` says which of those that could. */
export interface Move {
  readonly act: Act;
  readonly pick: number;
  readonly delay: number;
}

export type Act =
  | 'settle'
  /** What performs one effect is gone; or what performs all of them. */
  | 'lose'
  | 'restart'
  /** An event of before comes again; one comes that bears a wrong id or a wrong kind. */
  | 'repeat'
  | 'foreign'
  /** Somebody approves of something else than what is asked. */
  | 'mistake'
  | 'input'
  | 'tools'
  | 'fork'
  | 'deadline'
  | 'cancel';

export const AT_REST: Move = { act: 'settle', pick: 0, delay: 1 };

/** The calls of a reply, each copy for itself. */
export function callsOf(reply: Reply | undefined): readonly ScriptedCall[] {
  if (reply?.type !== 'reply') return [];
  return reply.parts.flatMap((part) => (part.type === 'call' ? Array.from({ length: part.copies }, () => part) : []));
}

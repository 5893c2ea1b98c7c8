import type { JsonSchema, ToolChoice } from '../model.ts';

/**
 * Everything that `step` decides by, as plain JSON, pinned in `run-started`: a journal replays the same after the
 * defaults of the code change. An absent limit is off; a count of 0 for `errorLimit` or `repeatLimit` is off too.
 */
export interface Rules {
  /** Which edition of the sentences that the loop writes into the history. */
  readonly wording: 1;
  readonly finish: 'plain' | 'confirm' | 'output';
  /** Of a typed agent: per attempt. */
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
  /** Of a typed agent; goes with finish `output`. */
  readonly agent?: AgentRules;
}

/** What a typed agent goes by. */
export interface AgentRules {
  readonly name: string;
  /** Of what it was started with; absent if that has no JSON form. */
  readonly input?: string;
  /** The tool by which the model gives its output. */
  readonly output: string;
  /** The tool by which the model says that the last output stands; with it, the output tool itself only reflects. */
  readonly submit?: string;
  readonly maxAttempts: number;
  /** Whether a reply without a call ends the run or is answered, and the attempt goes on. */
  readonly textOnly: Leniency;
  /** The same for a submit before any output. */
  readonly earlySubmit: Leniency;
  /** What helpers remember to begin with. */
  readonly memory?: Memory;
}

export type Leniency = 'fail' | 'feedback';

/** What the helpers of a typed agent remember: for the whole run, and for one attempt. Plain JSON. */
export interface Memory {
  readonly run?: unknown;
  readonly attempt?: unknown;
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
  readonly strict?: boolean;
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

import type { CustomForm, JsonSchema, ToolChoice } from '../model.ts';

/**
 * The rules that `step` decides by, as plain JSON. `run-started` pins them, so that a journal replays the same after the
 * defaults of the code change. An absent limit is off; 0 for `errorLimit` or `repeatLimit` is off too.
 */
export interface Rules {
  /** The edition of the sentences that the loop writes into the history. */
  readonly wording: 1 | 2;
  readonly finish: 'plain' | 'confirm' | 'output';
  /** Per attempt for a typed agent. */
  readonly maxTurns: number;
  readonly maxParallel: number;
  readonly parallel: boolean;
  readonly maxCallsPerTurn?: number;
  readonly errorLimit: number;
  readonly repeatLimit: number;
  /** A call that was running at this many process deaths in a row is not attempted again. Absent or 0: off. */
  readonly crashLimit?: number;
  readonly maxResultChars: number;
  readonly toolTimeoutMs: number;
  readonly limits: Limits;
  readonly closingTurn: boolean;
  readonly toolChoice: ToolChoice;
  readonly allowedTools?: readonly string[];
  /** A policy judges calls before they run. */
  readonly judged: boolean;
  /** Error results in the history have an `errorType`. Runs of earlier versions do not have this rule. */
  readonly errorTypes?: true;
  /** Tools that stay callable are marked, as `unnarrowed`. In runs of earlier versions they are known by their names. */
  readonly marks?: true;
  /** Results that are too long are stored as blobs, the history refers to them, and calls may do so too. */
  readonly references?: true;
  /** A ledger reserves what an effect may use before it starts. */
  readonly budgeted?: true;
  /** A run that failed because its model asked to wait is due again after that time, at most so many times in a row. */
  readonly retryLater?: number;
  /** `prepareTurn` is called before each turn. */
  readonly prepared?: true;
  /** The answer must be JSON that matches this schema. */
  readonly output?: JsonSchema;
  readonly outputCheck?: OutputCheck;
  /** An answer that is not JSON, or not an object, is the value of this field of the output. */
  readonly outputText?: string;
  readonly compaction?: CompactionRules;
  /** Guardrails check the input before the first turn, and an answer before it is accepted. */
  readonly guardrails?: { readonly input?: true; readonly output?: true };
  /** Set for a typed agent, together with finish `output`. */
  readonly agent?: AgentRules;
}

/**
 * For an answer that is used as the text that it is: JSON in a code fence is invalid, and a refusal or an answer that was cut
 * off is not checked. `repair`: the model is asked once for another answer. `once`: an invalid answer fails the run. Absent:
 * like `repair`, but a code fence is accepted, and every answer is checked.
 */
export type OutputCheck = 'repair' | 'once';

/** The rules of a typed agent. */
export interface AgentRules {
  readonly name: string;
  /** A digest of the agent's input; absent if the input has no JSON form. */
  readonly input?: string;
  /** The tool that the model calls with its output. */
  readonly output: string;
  /** The tool that the model calls to submit its last output. If set, the output tool only reflects. */
  readonly submit?: string;
  readonly maxAttempts: number;
  /** Whether a reply without calls fails the run, or is answered and the attempt continues. */
  readonly textOnly: Leniency;
  /** The same for a submit call before any output. */
  readonly earlySubmit: Leniency;
  /** The initial memory of the helpers. */
  readonly memory?: Memory;
}

export type Leniency = 'fail' | 'feedback';

/**
 * What the tools of a run remember: plain JSON by key. A result replaces the whole value of each key that its call changed.
 * The helpers of a typed agent share two keys: `run`, and `attempt`, which is reset with each attempt.
 */
export type Memory = Readonly<Record<string, unknown>>;

/** When a summary replaces the oldest turns: after the model rejects the history as too long, or before. */
export interface CompactionRules {
  /** From this number of estimated tokens on; absent: only after the model rejects the history. */
  readonly tokens?: number;
  /** The number of newest turns that are not summarised. */
  readonly keepTurns: number;
}

export interface Limits {
  readonly calls?: number;
  readonly tokens?: number;
  /** In US dollars. */
  readonly cost?: number;
  /** Active time by the monotonic clock; paused time does not count. */
  readonly durationMs?: number;
}

/**
 * The effect of a tool outside of the run. `pure`: none. `idempotent`: the same no matter how often it runs with one key.
 * `once`: a new one each time.
 */
export type ToolEffect = 'pure' | 'idempotent' | 'once';

/** What `step` and the model need to know about a tool. */
export interface ToolFacts {
  readonly name: string;
  readonly description: string;
  readonly parameters: JsonSchema;
  readonly strict?: boolean;
  readonly custom?: CustomForm;
  readonly effect: ToolEffect;
  readonly exclusive: boolean;
  readonly polling: boolean;
  /** Executed by the client: a call pauses the run. */
  readonly client: boolean;
  /** The tool can find out after a crash or a timeout whether a call took effect. */
  readonly verifiable: boolean;
  readonly timeoutMs?: number;
  /** Of a tool that the client executes: how long a call waits for its result. */
  readonly ttlMs?: number;
  /** Calls do not count for the limit of calls. */
  readonly uncounted?: true;
  /** It stays callable however the run is narrowed. */
  readonly unnarrowed?: true;
  /** Calls are judged also without a policy, because people may have to approve them. */
  readonly needsApproval?: true;
  /** Of the definition that somebody else gave. Approvals are bound to it. */
  readonly fingerprint?: string;
  /** The tool starts a child run, which gets this share of what its parent has left of its limits. */
  readonly share?: number;
  /** If the run has a ledger, the child run draws on it instead, and gets only the time that its parent has left. */
  readonly drawsOnLedger?: true;
}

/** The agent that a run is handed to. */
export interface Handoff {
  /** Its name. */
  readonly agent: string;
  /** The id of its model. */
  readonly model: string;
  readonly instructions?: string;
  readonly tools: readonly ToolFacts[];
}

/** What `prepareTurn` decided for one turn. */
export interface TurnDecision {
  readonly model?: string;
  /** Names of the tools that can be called. */
  readonly tools?: readonly string[];
  readonly toolChoice?: ToolChoice;
  readonly instructions?: string;
}

/** What a run belongs to, for programs that list, group or trace runs. The loop does not use it. */
export interface RunFacts {
  /** The session or conversation that the run is part of. */
  readonly session?: string;
  /** The task that the run works on. */
  readonly task?: string;
  /** The trace that the run continues, as a W3C `traceparent`. */
  readonly trace?: string;
  readonly labels?: Readonly<Record<string, string>>;
}

/** Where a run comes from: it is the child run of a call (`effect`), or a fork after an entry (`seq`). */
export interface Parent {
  readonly runId: string;
  readonly effect?: string;
  readonly seq?: number;
  /** When the fork was made. Forks of earlier versions do not have it. */
  readonly at?: number;
  /** The trace of the original, as a `traceparent`, if that continues none itself. Forks of earlier versions do not have it. */
  readonly trace?: string;
}

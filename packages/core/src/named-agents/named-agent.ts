import type { JsonSchema } from '../model.ts';

/**
 * An agent that is invoked by its name: a definition, mostly in a file. Plain JSON with the keys of the file, checked by
 * `checkNamedAgent`. A run of the agent records it (`LoopOptions.definition`), and keeps it when the file changes.
 */
export interface NamedAgent {
  /** Up to 50 lower-case letters, digits, and single hyphens or underscores. */
  readonly name: string;
  readonly version?: string;
  /** Such as `reviewer`. */
  readonly role?: string;
  /** What it is for. Other agents decide by this text whether to call it. */
  readonly description: string;
  /** What it has to do. The text of a Markdown file. */
  readonly instructions?: string;
  /** What it can do, for people and for its prompt. */
  readonly capabilities?: readonly string[];
  /** The same by the identifiers of a specification, such as `P-01`. */
  readonly spec_capabilities?: readonly string[];
  readonly inputs?: Fields;
  readonly outputs?: Fields;
  /** The name of a model of the host. Absent: its default model. */
  readonly model?: string;
  /** Default 0.7, for models that take one. */
  readonly temperature?: number;
  /**
   * The tools of the host that it may call: names, `*` for all, or entries such as `Bash(git:*)`. `agent:NAME` calls another agent,
   * `handoff:NAME` hands the conversation over to it. Absent: none.
   */
  readonly tools?: readonly string[];
  /** Skills of the host that are active from the start. */
  readonly skills?: readonly string[];
  readonly constraints?: AgentConstraints;
  /** What it may do at most. It never allows more than the policy of the host. */
  readonly governance?: Governance;
  /** How far it may act without being asked. The lower of this and of the host's level applies. */
  readonly autonomy_level?: AutonomyLevel;
  readonly ownership?: { readonly owner: string; readonly escalation_target?: string };
  /** Other agents that it needs. Each is a tool for it, as if `tools` had `agent:NAME`. */
  readonly dependencies?: readonly AgentDependency[];
  /** Whether its prompt has up to five items from before that may be about its task, if the host has a memory. */
  readonly memory?: boolean;
  /**
   * The steps of a workflow: a program is its model. Not a key of files of agents. Only a host with `workflows` knows what it means.
   */
  readonly workflow?: object;
}

/** Named fields, or a JSON Schema of an object: a table with the text `object` as its `type`. */
export type Fields = Readonly<Record<string, Field>> | JsonSchema;

export interface Field {
  readonly type: FieldType;
  readonly description?: string;
  /** Default false. */
  readonly required?: boolean;
  /** The value of an input that is not given. */
  readonly default?: unknown;
  /** The values that are allowed. */
  readonly enum?: readonly unknown[];
}

export type FieldType = 'string' | 'number' | 'integer' | 'boolean' | 'array' | 'object';

export interface AgentConstraints {
  /** How often a model call that failed is repeated, besides what the model itself does; default 0. Not the task. */
  readonly max_retries?: number;
  /** For the whole run. */
  readonly timeout_seconds?: number;
  /** Model calls of a run; default 20. */
  readonly max_iterations?: number;
  /** Default 5. More calls in one reply are refused. */
  readonly max_tool_calls_per_iteration?: number;
  /** Of one reply. */
  readonly max_tokens?: number;
  /** False: calls run one after the other. */
  readonly parallel_allowed?: boolean;
}

export interface Governance {
  /** Commands by their first words. With `allow`, others are denied. */
  readonly commands?: Lists;
  /** Globs, from `working_dir`. With `read` or `write`, reads or writes of other paths are denied. */
  readonly paths?: {
    readonly read?: readonly string[];
    readonly write?: readonly string[];
    readonly deny?: readonly string[];
  };
  /** Hosts. With `allow`, others are denied. */
  readonly domains?: Lists;
  /** A folder inside the host's, from which it cannot get out, and in which its commands run. */
  readonly working_dir?: string;
  /** Calls that people have to approve: names of tools, or entries such as `Bash(git push:*)`. */
  readonly approvals?: readonly string[];
  /** The scopes that its calls act with at most, such as `tools:execute:read`. */
  readonly scopes?: readonly string[];
}

interface Lists {
  readonly allow?: readonly string[];
  readonly ask?: readonly string[];
  readonly deny?: readonly string[];
}

export type AutonomyLevel = 'read-only' | 'supervised' | 'bounded' | 'full';

export interface AgentDependency {
  readonly agent: string;
  /** The agent also works without it. Default false. */
  readonly optional?: boolean;
  readonly purpose?: string;
}

/** Stands for the agent that is used where none is named. */
export const DEFAULT_AGENT = '__default__';

/** Something that is wrong with a definition, or has no effect. */
export interface AgentProblem {
  /** Where it is: the keys, and positions in lists. Empty: the definition as a whole. */
  readonly path: readonly (string | number)[];
  /** What was found, and what is allowed. */
  readonly message: string;
}

/** Where agents come from, such as folders with files. */
export interface AgentRegistry {
  /** All usable agents, by name. */
  list(): readonly NamedAgent[];
  /** The agent of this name, also by `DEFAULT_AGENT`; undefined if there is none. */
  get(name: string): NamedAgent | undefined;
  /** Called after agents were added, removed or changed. Returns a function that ends this. */
  onChange(listener: () => void): () => void;
  /** Globs of where the definitions are. Agents may not change what they may do. */
  readonly protects?: readonly string[];
}

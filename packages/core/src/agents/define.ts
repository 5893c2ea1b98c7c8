import type { LoopOptions } from '../driver/options.ts';
import { TreadleError } from '../errors.ts';
import type { Leniency, Limits, ToolEffect } from '../machine/rules.ts';
import type { UserBlock } from '../messages.ts';
import type { JsonSchema, Model, Settings } from '../model.ts';
import type { Touch } from '../policy/port.ts';
import type { Skill } from '../skills/skill.ts';
import type { Schema, StandardSchema } from '../tools/schema.ts';
import type { Tool, ToolContext } from '../tools/tool.ts';
import { checkAgent } from './check-agent.ts';

/**
 * An agent with a typed answer: the model works with helpers, gives its output by calling the output tool, and the output
 * is validated. A rejected output is sent back to the model with the problems, for another attempt.
 */
export interface AgentDefinition<Input, Output, Run = unknown, Attempt = unknown, Final = unknown> {
  /** Recorded in the journal: only an agent of the same name can resume a run. */
  readonly name: string;
  /** For people; not sent to the model. */
  readonly description: string;
  readonly model: Model;
  readonly prompts: AgentPrompts<Input>;
  readonly tools: AgentTools<Output, Run, Attempt, Input>;
  readonly validation: AgentValidation<Input, Output>;
  /** The initial state of the helpers, as plain JSON. Absent: they have no state. */
  readonly state?: InitialState<Input, Run, Attempt>;
  /** Computes the `finalState` of a success from the state of the helpers. If it fails: `STATE_PROJECTION_FAILED`. */
  readonly projectFinalState?: (final: FinalState<Input, Output, Run, Attempt>) => Final | Promise<Final>;
  readonly observability?: Observability;
  readonly settings?: Settings;
  /** For all iterations and attempts together. `calls` counts calls of helpers, not outputs and submits. */
  readonly limits?: Limits;
  /** What a run may do at most, as the option `narrow` of `runLoop`. Helpers are named by their names. */
  readonly narrow?: LoopOptions['narrow'];
  /** Skills that are active from the first turn on, with those that they depend on: the model gets their texts. */
  readonly skills?: readonly Skill[];
  /** Default `required`. Some models accept only `auto`, such as some reasoning models. */
  readonly toolChoice?: 'required' | 'auto';
  /** False: calls run one after the other. */
  readonly parallel?: boolean;
  /** The number of calls of one reply that may run at the same time; default 5. */
  readonly maxParallel?: number;
  /** A longer result is cut to its head and tail; default 15,000. */
  readonly maxResultChars?: number;
  /** For helpers without a `timeoutMs` of their own; default 60,000. */
  readonly toolTimeoutMs?: number;
}

/** `system` and `user` are built once, when the run starts. A prompt that throws fails with `PROMPT_FAILED`. */
export interface AgentPrompts<Input> {
  readonly system?: string | ((input: Input) => string | Promise<string>);
  readonly user: UserPrompt | ((input: Input) => UserPrompt | Promise<UserPrompt>);
  /**
   * The user message that opens the next attempt. The model has already got the problems as the result of its call. Not
   * called after the last attempt. Absent: a sentence with the number of the attempt.
   */
  readonly error?: (failure: ValidationFailure, rejected: RejectedAttempt<Input>) => string | Promise<string>;
}

export type UserPrompt = string | readonly UserBlock[];

export interface RejectedAttempt<Input> {
  readonly input: Input;
  /** The number of the rejected attempt. */
  readonly attempt: number;
  readonly maxAttempts: number;
}

/** Why an output was rejected. */
export interface ValidationFailure {
  /** The custom validator that rejected the output; absent: the schema did. */
  readonly validator?: string;
  readonly problems: readonly string[];
  /** The validator and the problems in one sentence. */
  readonly message: string;
  /** The arguments of the output tool; absent if they were not JSON, and in `lastError`. */
  readonly output?: unknown;
}

export interface AgentTools<Output, Run = unknown, Attempt = unknown, Input = unknown> {
  /** Tools that the model may use before it gives its output. */
  readonly helpers?: readonly (HelperTool<Run, Attempt, Input> | Tool)[];
  readonly output: OutputTool<Output>;
}

/** A tool of an agent with its handler. */
export interface HelperTool<Run = unknown, Attempt = unknown, Input = unknown> {
  readonly definition: HelperDefinition;
  /**
   * Sync or async. `input` is validated and transformed by the schema of the definition; for invalid arguments the handler
   * is not called. Returns the result: a text unchanged, any other value as JSON. An error that it throws becomes an error
   * result for the model, and its changes to the state are discarded.
   */
  handler(input: unknown, context: HelperContext<Run, Attempt, Input>): unknown;
  /**
   * Calls of one attempt with the same input share one result, even if the state has changed. Only for `pure` helpers.
   * Failures are not cached.
   */
  readonly cache?: boolean;
}

/** What a call touches and needs is for the policy, as in `tool`. */
export interface HelperDefinition extends Pick<Tool, 'touches' | 'permissions' | 'operation' | 'needsApproval'> {
  readonly name: string;
  readonly description: string;
  /** A Standard Schema or JSON Schema; absent: the helper takes no arguments. */
  readonly input?: Schema;
  /** JSON Schema instead of `input`, under the name that Anthropic's API uses. */
  readonly input_schema?: JsonSchema;
  /** The JSON Schema that the model gets, if `input` cannot be converted. */
  readonly parameters?: JsonSchema;
  /** Default `once`: a call that a crash interrupted is not run again. */
  readonly effect?: ToolEffect;
  /** A timeout is an error result, even if the handler ignores its signal. */
  readonly timeoutMs?: number;
  /** No other call runs at the same time. */
  readonly exclusive?: boolean;
}

/** The second argument of a handler. */
export interface HelperContext<Run = unknown, Attempt = unknown, Input = unknown> extends Omit<
  ToolContext,
  'memory' | 'run'
> {
  /** The `input` of the execution. */
  readonly agentInput: Input;
  /**
   * The state of the helpers: `run` lasts for the whole run, `attempt` is reset with each attempt. Plain JSON that the
   * handler may change in place; changes are stored when the handler succeeds. Helpers that may write run one after the
   * other; for helpers of effect `pure` the state is frozen.
   */
  readonly state: { run: Run; attempt: Attempt };
  readonly attempt: number;
}

/**
 * The tool that the model calls with its output. With a `reflectionHandler` the model gets the return value of the handler,
 * may call the tool again, and ends the attempt by calling `submit`. Without one, the first call ends the attempt.
 */
export type OutputTool<Output> = {
  readonly name: string;
  readonly description: string;
  /** The JSON Schema that the model gets, if `outputSchema` cannot be converted. */
  readonly parameters?: JsonSchema;
} & (
  | {
      /** Only called with a valid output. An error that it throws is an error result; the output can still be submitted. */
      readonly reflectionHandler: (output: Output, context: ReflectionContext) => string | Promise<string>;
      /** What a reflection touches, for the policy, as in `tool`. Absent: the policy gets `unknown`. */
      readonly touches?: (output: Output) => readonly Touch[];
      readonly submit?: SubmitTool;
    }
  | { readonly reflectionHandler?: never; readonly touches?: never; readonly submit?: never }
);

/** The tool that ends an attempt with reflection. It takes no arguments. Its default name is `submit`. */
export interface SubmitTool {
  readonly name?: string;
  readonly description?: string;
}

export type ReflectionContext = Pick<HelperContext, 'signal' | 'context' | 'attempt'>;

export interface AgentValidation<Input, Output> {
  /** Checked first. `Output` is its result, with defaults and transforms applied. */
  readonly outputSchema: StandardSchema<Output> | JsonSchema;
  /** Called in order until one rejects the output. They have no timeout, so respect `signal`. */
  readonly customValidators?: readonly CustomValidator<Input, Output>[];
  /** The execution fails when this many outputs were rejected. */
  readonly maxAttempts: number;
  /** Model calls per attempt; default 15. The calls of the last reply are still executed, and its output counts. */
  readonly maxIterationsPerAttempt?: number;
  /** A reply without a call: `fail` (default) ends with `INVALID_RESPONSE`, `feedback` asks the model for a call. */
  readonly textOnly?: Leniency;
  /** A submit before an output: `fail` (default) ends with `SUBMIT_BEFORE_OUTPUT`, `feedback` is an error result. */
  readonly earlySubmit?: Leniency;
}

export interface CustomValidator<Input, Output> {
  readonly name: string;
  /**
   * Returns the problems as text for the model; `true`, an empty list or undefined accepts the output. Throwing rejects it.
   * May run again after a crash.
   */
  validate(output: Output, context: ValidationContext<Input>): Verdict | Promise<Verdict>;
}

type Verdict = boolean | string | readonly string[] | undefined | void;

export interface ValidationContext<Input> {
  readonly input: Input;
  readonly attempt: number;
  readonly signal: AbortSignal;
  readonly context: unknown;
}

/** A function is called once, when the run starts. `executeAgent` rejects if it throws. */
export interface InitialState<Input, Run, Attempt> {
  readonly run?: Run | ((input: Input) => Run);
  readonly attempt?: Attempt | (() => Attempt);
}

export interface FinalState<Input, Output, Run, Attempt> {
  readonly input: Input;
  readonly output: Output;
  readonly run: Run;
  readonly attempt: Attempt;
}

/** Both default to true. */
export interface Observability {
  readonly trackTokens?: boolean;
  readonly trackLatency?: boolean;
}

/** An agent that can be executed; created by `defineAgent`. */
export type Agent<Input, Output, Run = unknown, Attempt = unknown, Final = unknown> = AgentDefinition<
  Input,
  Output,
  Run,
  Attempt,
  Final
> & { readonly [DEFINED]: true };

declare const DEFINED: unique symbol;

/** An agent whose types are erased. Its schemas guarantee them at run time. */
export type AnyAgent = Agent<unknown, unknown>;

/**
 * Creates an agent. Throws `invalid-agent` if the definition could never work. All type arguments are inferred; to write
 * one, write all of them, because TypeScript infers all or none.
 */
export function defineAgent<Input, Output, Run = unknown, Attempt = unknown, Final = unknown>(
  definition: AgentDefinition<Input, Output, Run, Attempt, Final>,
): Agent<Input, Output, Run, Attempt, Final> {
  if (typeof definition !== 'object' || definition === null) {
    throw new TreadleError(
      'invalid-agent',
      'The definition of an agent must be an object. Give name, model, prompts, tools and validation.',
    );
  }
  checkAgent(definition as unknown as AgentDefinition<never, never>);
  return definition as Agent<Input, Output, Run, Attempt, Final>;
}

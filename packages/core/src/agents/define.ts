import { TreadleError } from '../errors.ts';
import type { Leniency, Limits, ToolEffect } from '../machine/rules.ts';
import type { UserBlock } from '../messages.ts';
import type { JsonSchema, Model, Settings } from '../model.ts';
import type { Schema, StandardSchema } from '../tools/schema.ts';
import type { Tool, ToolContext } from '../tools/tool.ts';
import { checkAgent } from './check-agent.ts';

/**
 * An agent whose answer is typed: the model works with helpers, gives its output by calling the output tool, and the
 * output is validated. One that is rejected goes back to the model with what is wrong, for another attempt.
 */
export interface AgentDefinition<Input, Output, Run = unknown, Attempt = unknown, Final = unknown> {
  /** Pinned in the journal: a run is gone on with by the agent of the same name. */
  readonly name: string;
  /** For people. The model is told by the prompts. */
  readonly description: string;
  readonly model: Model;
  readonly prompts: AgentPrompts<Input>;
  readonly tools: AgentTools<Output, Run, Attempt, Input>;
  readonly validation: AgentValidation<Input, Output>;
  /** What helpers remember, to begin with: plain JSON. Absent: they have no state. */
  readonly state?: InitialState<Input, Run, Attempt>;
  /** Makes `finalState` of a success from what the helpers remember in the end. If it fails: `STATE_PROJECTION_FAILED`. */
  readonly projectFinalState?: (final: FinalState<Input, Output, Run, Attempt>) => Final | Promise<Final>;
  readonly observability?: Observability;
  readonly settings?: Settings;
  /** Over all iterations and attempts. `calls` counts helpers only: neither outputs nor submits. */
  readonly limits?: Limits;
  /** Default `required`. Some models take only `auto`, such as those that think before they call. */
  readonly toolChoice?: 'required' | 'auto';
  /** False: calls run one by one. */
  readonly parallel?: boolean;
  /** Calls of one reply that run at once at most; default 5. */
  readonly maxParallel?: number;
  /** A longer result keeps its head and tail; default 15,000. */
  readonly maxResultChars?: number;
  /** For helpers that set none of their own; default 60,000. */
  readonly toolTimeoutMs?: number;
}

/** What the model is told. `system` and `user` are written once, at the start. One that throws is `PROMPT_FAILED`. */
export interface AgentPrompts<Input> {
  readonly system?: string | ((input: Input) => string | Promise<string>);
  readonly user: UserPrompt | ((input: Input) => UserPrompt | Promise<UserPrompt>);
  /**
   * Opens the next attempt, after the problems, which the model gets as the result of its call. Not called after the last
   * attempt. Absent: a sentence with the number of the attempt.
   */
  readonly error?: (failure: ValidationFailure, about: RejectedAttempt<Input>) => string | Promise<string>;
}

export type UserPrompt = string | readonly UserBlock[];

export interface RejectedAttempt<Input> {
  readonly input: Input;
  /** The one that was rejected. */
  readonly attempt: number;
  readonly maxAttempts: number;
}

/** Why an output was not accepted. */
export interface ValidationFailure {
  /** The name of the custom validator that refused it; absent: the schema did. */
  readonly validator?: string;
  readonly problems: readonly string[];
  /** The same in one sentence. */
  readonly message: string;
  /** What the model called the output tool with, unless it was no JSON; absent in `lastError`. */
  readonly output?: unknown;
}

export interface AgentTools<Output, Run = unknown, Attempt = unknown, Input = unknown> {
  /** Tools to work with, on the way to the output. */
  readonly helpers?: readonly (HelperTool<Run, Attempt, Input> | Tool)[];
  readonly output: OutputTool<Output>;
}

/** A tool with what it does. */
export interface HelperTool<Run = unknown, Attempt = unknown, Input = unknown> {
  readonly definition: HelperDefinition;
  /**
   * Sync or async. `input` is what the schema of the definition made of the arguments; arguments that it does not take are
   * answered without it. A text is the result as it is, anything else as JSON. What it throws is an error result for the
   * model, and changes no state.
   */
  handler(input: unknown, context: HelperContext<Run, Attempt, Input>): unknown;
  /**
   * Within one attempt, the same input gives the same result without running again, whatever the state is by then. Only for
   * `pure` helpers; a failure is not kept.
   */
  readonly cache?: boolean;
}

export interface HelperDefinition {
  readonly name: string;
  readonly description: string;
  /** A Standard Schema or JSON Schema; absent: it needs no arguments. */
  readonly input?: Schema;
  /** The same as JSON Schema, by the name that Anthropic gives it. */
  readonly input_schema?: JsonSchema;
  /** JSON Schema for the model, where `input` cannot describe itself. */
  readonly parameters?: JsonSchema;
  /** Default `once`: after a crash in the middle of a call it is not run again. */
  readonly effect?: ToolEffect;
  /** Hard: an error result, even if the handler ignores its signal. */
  readonly timeoutMs?: number;
  /** Runs alone. */
  readonly exclusive?: boolean;
}

/** What a handler gets beside its input. */
export interface HelperContext<Run = unknown, Attempt = unknown, Input = unknown> extends Omit<
  ToolContext,
  'memory' | 'run'
> {
  /** What the agent was executed with. */
  readonly agentInput: Input;
  /**
   * What helpers remember: `run` for the whole run, `attempt` until the next one begins. A copy of plain JSON, to be read
   * and written in place; what is written is kept when the handler succeeds. Helpers that may write run one after the
   * other; to those of effect `pure` it is frozen.
   */
  readonly state: { run: Run; attempt: Attempt };
  readonly attempt: number;
}

/**
 * The tool by which the model gives its output. With a `reflectionHandler` the model is shown what the handler makes of
 * its output, may give another one, and calls `submit` when it is content. Without, the output counts at once, so there
 * is nothing to submit.
 */
export type OutputTool<Output> = {
  readonly name: string;
  readonly description: string;
  /** JSON Schema for the model, where `outputSchema` cannot describe itself. */
  readonly parameters?: JsonSchema;
} & (
  | {
      /** Only called with an output that matches the schema. What it throws is an error result; the output still counts. */
      readonly reflectionHandler: (output: Output, context: ReflectionContext) => string | Promise<string>;
      readonly submit?: SubmitTool;
    }
  | { readonly reflectionHandler?: never; readonly submit?: never }
);

/** Default: `submit`, described as what ends the work. It takes no arguments. */
export interface SubmitTool {
  readonly name?: string;
  readonly description?: string;
}

export type ReflectionContext = Pick<HelperContext, 'signal' | 'context' | 'attempt'>;

export interface AgentValidation<Input, Output> {
  /** Checked first. `Output` is what it makes of what the model gave, with defaults and transforms. */
  readonly outputSchema: StandardSchema<Output> | JsonSchema;
  /** Then these, one after the other, until the first that refuses. They have no timeout: heed `signal`. */
  readonly customValidators?: readonly CustomValidator<Input, Output>[];
  /** Attempts at most: when so many outputs were rejected, the execution fails. */
  readonly maxAttempts: number;
  /** Model calls of one attempt; default 15. The last reply's calls are still executed, and its output counts. */
  readonly maxIterationsPerAttempt?: number;
  /** A reply without any call: `fail` ends with `INVALID_RESPONSE`, `feedback` tells the model; default `fail`. */
  readonly textOnly?: Leniency;
  /** A submit before any output: `fail` ends with `SUBMIT_BEFORE_OUTPUT`, `feedback` tells the model; default `fail`. */
  readonly earlySubmit?: Leniency;
}

export interface CustomValidator<Input, Output> {
  readonly name: string;
  /**
   * What is wrong, in words for the model; `true`, an empty list or nothing if all is well. What it throws is a refusal
   * too. May run again after a crash.
   */
  validate(output: Output, about: ValidationContext<Input>): Verdict | Promise<Verdict>;
}

type Verdict = boolean | string | readonly string[] | undefined | void;

export interface ValidationContext<Input> {
  readonly input: Input;
  readonly attempt: number;
  readonly signal: AbortSignal;
  readonly context: unknown;
}

/** A function is called once, at the start; what it throws is thrown by `executeAgent`. */
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

/** Both are on unless they are switched off. */
export interface Observability {
  readonly trackTokens?: boolean;
  readonly trackLatency?: boolean;
}

/** An agent that can be executed; made by `defineAgent`. */
export type Agent<Input, Output, Run = unknown, Attempt = unknown, Final = unknown> = AgentDefinition<
  Input,
  Output,
  Run,
  Attempt,
  Final
> & { readonly [DEFINED]: true };

declare const DEFINED: unique symbol;

/**
 * Makes an agent. Throws `invalid-agent` for what could never work. All types follow from the definition; whoever names
 * some of them names all, since TypeScript infers all or none.
 */
export function defineAgent<Input, Output, Run = unknown, Attempt = unknown, Final = unknown>(
  definition: AgentDefinition<Input, Output, Run, Attempt, Final>,
): Agent<Input, Output, Run, Attempt, Final> {
  if (typeof definition !== 'object' || definition === null) {
    throw new TreadleError(
      'invalid-agent',
      'An agent is defined by an object. Give name, model, prompts, tools and validation.',
    );
  }
  checkAgent(definition as unknown as AgentDefinition<never, never>);
  return definition as Agent<Input, Output, Run, Attempt, Final>;
}

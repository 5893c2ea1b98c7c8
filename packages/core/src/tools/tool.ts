import { TreadleError } from '../errors.ts';
import type { Clock } from '../clock.ts';
import type { Journal } from '../journal/port.ts';
import type { Answer } from '../loop/options.ts';
import type { Limits, Memory, ToolEffect, ToolFacts } from '../loop/pinned.ts';
import type { ResultBlock } from '../messages.ts';
import type { JsonSchema, Model } from '../model.ts';
import type { Principal } from '../policy/port.ts';
import { describe, type OutputOf, type Schema } from './schema.ts';

/** What a program says of a tool. */
export interface ToolDefinition<S extends Schema = JsonSchema, Output = unknown> {
  /** Letters, digits, `_` and `-`, at most 64: what every provider takes. */
  readonly name: string;
  /** For the model: what it does and when to use it. */
  readonly description: string;
  /** Absent: the tool needs no arguments, and none are checked. */
  readonly input?: S;
  /** JSON Schema for the model, where `input` cannot describe itself or should be described otherwise. */
  readonly parameters?: JsonSchema;
  /** What `execute` gives is checked against it; something else is an error result. */
  readonly output?: Schema;
  /** Default `once`: after a crash in the middle of a call it is not run again. */
  readonly effect?: ToolEffect;
  /** Hard: the turn goes on even if the tool ignores its signal. */
  readonly timeoutMs?: number;
  /** Runs alone. */
  readonly exclusive?: boolean;
  /** May be asked the same again and again; exempt from `repeatLimit`. */
  readonly polling?: boolean;
  /** Ask the provider to make sure that arguments keep to the schema, which must then be in its strict subset. */
  readonly strict?: boolean;
  /** Of a tool that the client executes: it gets the arguments as the model wrote them, and reads and checks them itself. */
  readonly asWritten?: boolean;
  /** What a call needs for itself, such as the path that it edits: calls that share one run in call order. */
  readonly resources?: (input: OutputOf<S>) => readonly string[];
  /** After a crash, for `once` tools: did the call with this key take effect? */
  readonly verify?: (input: OutputOf<S>, context: ToolContext) => Verification | Promise<Verification>;
  /**
   * Absent: the client executes it, and a call pauses the run. Returns a text, content blocks in `{ content }`, or
   * anything that has a JSON form. An async iterable reports each item as progress; its result is what it returns, or
   * else all of its texts joined, or its last item.
   */
  readonly execute?: (input: OutputOf<S>, context: ToolContext) => Output;
}

export interface ToolContext {
  /** Aborts on cancel, timeout and the run's deadline. */
  readonly signal: AbortSignal;
  /** `runId/effectId`: the same when the call runs again after a crash. */
  readonly key: string;
  /** Tells listeners how far it is; never part of the result. */
  readonly report: (progress: unknown) => void;
  readonly context: unknown;
  readonly principal: Principal | undefined;
  /** The run that the call belongs to; only for tools that are runs themselves. */
  readonly run?: CallingRun | undefined;
  /** What the helpers of a typed agent remember: changes to it are kept if the call succeeds. */
  readonly memory?: Memory | undefined;
}

export interface CallingRun {
  readonly runId: string;
  readonly effect: string;
  readonly journal: Journal;
  readonly clock: Clock;
  /** The tool's share of what is left of the run's limits. */
  readonly limits: Limits;
  /** For what the tool's own run waits for. */
  readonly answers: readonly Answer[];
  /** The call was parked before, so the tool's own run has begun. */
  readonly parked: boolean;
  readonly acceptChangedTools: boolean;
}

export type Verification =
  | { readonly type: 'done'; readonly result: unknown }
  | { readonly type: 'not-done' | 'unknown' };

/** What a tool returns when it means blocks or an error of its own. */
export interface ToolOutput {
  readonly content: string | readonly ResultBlock[];
  readonly isError?: boolean;
}

/** A tool as the loop takes it; made by `tool`. */
export interface Tool {
  readonly name: string;
  readonly description: string;
  readonly input: Schema;
  readonly parameters: JsonSchema;
  readonly output?: Schema;
  readonly effect: ToolEffect;
  readonly timeoutMs?: number;
  readonly exclusive: boolean;
  readonly polling: boolean;
  readonly strict?: boolean;
  /** Executed by the client, which gets the arguments unread. */
  readonly asWritten?: boolean;
  /** Of a tool that is a run of its own: its share of what is left of the limits. */
  readonly share?: number;
  /** A helper of a typed agent, which gets what the helpers remember. */
  readonly remembers?: true;
  /** Of a tool that is a run of its own: the models that it may ask. */
  readonly asks?: readonly Model[];
  readonly resources?: (input: unknown) => readonly string[];
  readonly verify?: (input: unknown, context: ToolContext) => Verification | Promise<Verification>;
  readonly execute?: (input: unknown, context: ToolContext) => unknown;
}

const NO_ARGUMENTS: JsonSchema = { type: 'object', properties: {} };
const EFFECTS: readonly ToolEffect[] = ['pure', 'idempotent', 'once'];
const NAME = /^[a-zA-Z0-9_-]{1,64}$/;

/** Makes a tool. Throws `invalid-tool` when it could never be called. */
export function tool<const S extends Schema = JsonSchema, Output = unknown>(
  definition: ToolDefinition<S, Output>,
): Tool {
  checkDefinition(definition as ToolDefinition<Schema>);
  const { name } = definition;
  const input: Schema = definition.input ?? NO_ARGUMENTS;
  const made = {
    ...definition,
    input,
    parameters: definition.parameters ?? describe(`The input of tool "${name}"`, input, 'invalid-tool'),
    effect: definition.effect ?? 'once',
    exclusive: definition.exclusive ?? false,
    polling: definition.polling ?? false,
  };
  const { type = 'object' } = made.parameters;
  if (type !== 'object')
    throw invalid(name, `takes a ${JSON.stringify(type)}`, 'Models call with an object: name its parts');
  // The one place where the input's type is given up: it is checked against `input` before it gets there.
  return made as unknown as Tool;
}

function checkDefinition(definition: ToolDefinition<Schema>): void {
  const { name, description, timeoutMs, effect = 'once', input = NO_ARGUMENTS } = definition ?? {};
  if (typeof name !== 'string' || !NAME.test(name)) {
    throw new TreadleError(
      'invalid-tool',
      `The tool name ${JSON.stringify(name)} is not one that providers take. Use 1 to 64 letters, digits, "_" or "-".`,
    );
  }
  if (typeof description !== 'string') throw invalid(name, 'has no description', 'Say in a sentence what it does');
  if (input === null || !['object', 'function'].includes(typeof input)) {
    throw invalid(name, `has ${JSON.stringify(input)} as input`, 'Give a schema, or leave it out');
  }
  if (timeoutMs !== undefined && !(timeoutMs > 0 && Number.isFinite(timeoutMs))) {
    throw invalid(name, `has timeoutMs ${timeoutMs}`, 'Give a number above 0');
  }
  if (!EFFECTS.includes(effect)) throw invalid(name, `has effect "${effect}"`, `Use ${EFFECTS.join(', ')}`);
  if (definition.asWritten && (definition.execute || definition.resources)) {
    throw invalid(name, 'takes its arguments as written, and is no tool of the client alone', 'Leave out asWritten');
  }
  for (const part of ['execute', 'verify', 'resources'] as const) {
    if (!['function', 'undefined'].includes(typeof definition[part])) {
      throw invalid(name, `has a ${typeof definition[part]} as ${part}`, 'Give a function, or leave it out');
    }
  }
}

function invalid(name: string, what: string, remedy: string): TreadleError {
  return new TreadleError('invalid-tool', `Tool "${name}" ${what}. ${remedy}.`);
}

/** The part of a tool that is pinned in the journal. */
export function factsOf(made: Tool): ToolFacts {
  return {
    name: made.name,
    description: made.description,
    parameters: made.parameters,
    effect: made.effect,
    exclusive: made.exclusive,
    polling: made.polling,
    client: made.execute === undefined,
    verifiable: made.verify !== undefined,
    ...(made.strict !== undefined && { strict: made.strict }),
    ...(made.timeoutMs !== undefined && { timeoutMs: made.timeoutMs }),
    ...(made.share !== undefined && { share: made.share }),
  };
}

/** The tools of one run. Throws `duplicate-tool` if two have one name. */
export function toolsByName(tools: readonly Tool[]): ReadonlyMap<string, Tool> {
  if (!Array.isArray(tools))
    throw new TreadleError('invalid-options', 'The tools are no list. Give an array of tools.');
  const byName = new Map<string, Tool>();
  for (const [index, value] of tools.entries()) {
    if (typeof value?.parameters !== 'object') {
      throw new TreadleError(
        'invalid-options',
        `tools[${index}] is no tool. Make it with tool({ name, description, … }).`,
      );
    }
    const { name } = value;
    if (byName.has(name)) {
      const first = tools.findIndex((tool) => tool.name === name);
      throw duplicateTool(name, 'tools', `tools[${first}]`, `tools[${index}]`);
    }
    byName.set(name, value);
  }
  return byName;
}

export function duplicateTool(name: string, what: string, first: string, second: string): TreadleError {
  return new TreadleError(
    'duplicate-tool',
    `There are two ${what} named "${name}": one from ${first}, one from ${second}. Rename or leave out one.`,
  );
}

import { TreadleError } from '../errors.ts';
import { checkOptions, type KnownOptions, type OptionNames } from '../known-options.ts';
import type { Clock } from '../platform.ts';
import type { Journal } from '../journal/port.ts';
import { checkAmounts } from '../ledger/amounts.ts';
import type { Amounts } from '../ledger/port.ts';
import type { HandoffAgent } from '../driver/handoff.ts';
import type { Answer, CallingOptions } from '../driver/options.ts';
import type { CallCheck, RunStarted } from '../machine/events.ts';
import type { Exposes, Exposure } from '../machine/exposure.ts';
import type { Narrowing, Narrowings } from '../machine/narrowing.ts';
import type { AskedQuestion, Question } from '../machine/questions.ts';
import type { HeldProcess } from '../machine/resources.ts';
import type { Limits, ToolEffect, ToolFacts } from '../machine/rules.ts';
import type { Parking, State } from '../machine/state.ts';
import type { ErrorFacts, ResultBlock } from '../messages.ts';
import type { CustomForm, JsonSchema, Model } from '../model.ts';
import type { Principal, Touch } from '../policy/port.ts';
import type { PolicyRules } from '../policy/rules.ts';
import type { Parked } from './result.ts';
import { requireSchema, toJsonSchema, type OutputOf, type Schema } from './schema.ts';

/** A tool as a program defines it. */
export interface ToolDefinition<S extends Schema = JsonSchema, Output = unknown> {
  /** 1 to 64 letters, digits, `_` and `-`: the names that every provider accepts. */
  readonly name: string;
  /** For the model: what the tool does and when to use it. */
  readonly description: string;
  /** Absent: the tool takes no arguments, and they are not validated. */
  readonly input?: S;
  /** The JSON Schema that the model gets, if `input` cannot be converted or should be described differently. */
  readonly parameters?: JsonSchema;
  /** The return value of `execute` is validated against it; an invalid one is an error result. */
  readonly output?: Schema;
  /** Default `once`: a call that a crash interrupted is not run again. */
  readonly effect?: ToolEffect;
  /** The call ends then even if the tool ignores its signal. If the function throws, the time limit of the run applies. */
  readonly timeoutMs?: number | ((input: OutputOf<S>) => number);
  /** Only for tools that the client executes: a call without a result after this time fails. */
  readonly ttlMs?: number;
  /** No other call runs at the same time. */
  readonly exclusive?: boolean;
  /** The same call may be repeated; `repeatLimit` does not apply. */
  readonly polling?: boolean;
  /** Asks the provider to enforce the schema, which must then be in the provider's strict subset. */
  readonly strict?: boolean;
  /** The tool takes a text: `{ input }`. */
  readonly custom?: CustomForm;
  /** Only for tools that the client executes: the client gets the raw arguments and validates them itself. */
  readonly asWritten?: boolean;
  /** Calls do not count for `limits.calls`. */
  readonly uncounted?: boolean;
  /** It stays callable however the run is narrowed. For tools that you trust, never what a server asks for. */
  readonly unnarrowed?: boolean;
  /** What a call may use of the budgets of the run's ledger, besides the call itself. */
  readonly spends?: Amounts;
  /** Resources that a call uses, such as the path that it edits. Calls that share a resource run in call order. */
  readonly resources?: (input: OutputOf<S>) => readonly string[];
  /**
   * The keys of the run's memory that the tool, or a call of it, uses. It gets a copy of their values, and what it changes is
   * stored with its result if the call succeeds. Calls that share a key run in call order. If the function throws, the call
   * is refused.
   */
  readonly remembers?: readonly string[] | ((input: OutputOf<S>) => readonly string[]);
  /**
   * What a call would touch, for the policy: paths, commands, addresses. Empty: the call is harmless. Absent, and if it
   * throws: the policy gets `unknown`.
   */
  readonly touches?: (input: OutputOf<S>) => readonly Touch[];
  /**
   * What the result of a call, or of every call, exposes the run to, besides what its touches say: a `url` is from outside. If
   * the function throws, both.
   */
  readonly exposes?: Exposes | ((input: OutputOf<S>) => Exposes | undefined);
  /** Names of permissions that the policy requires for the tool, such as `file_write`. */
  readonly permissions?: readonly string[];
  /**
   * What the sandbox that a call would run in promises here and now, such as `network` or `root`: names that a policy knows. Absent,
   * or if it throws: nothing. Called when a call is judged, and again before it starts. A call that was judged with a promise
   * that does not hold then is judged again. Not for tools that are runs themselves.
   */
  readonly sandbox?: (input: OutputOf<S>) => readonly string[];
  /**
   * Of a definition that somebody else gave, such as a server: a text that changes when the definition does. What people
   * have approved is bound to it.
   */
  readonly fingerprint?: string;
  /** What a call does, for rules about a single operation of the tool. If the function throws, the call is denied. */
  readonly operation?: string | ((input: OutputOf<S>) => string);
  /** People have to approve a call before it runs, also without a policy. If the function throws, they have to. */
  readonly needsApproval?: boolean | ((input: OutputOf<S>) => NeedsApproval);
  /**
   * For `once` tools, after a crash or a timeout, and when a run with a parked call is resumed: reports whether the call
   * with this key took effect. If that will be known only later, it parks the call. It is also called, with an aborted signal,
   * when a run ends while the call is parked: whatever continues elsewhere can be told so. Its answer does not count then.
   */
  readonly verify?: (input: OutputOf<S>, context: ToolContext) => Verification | Promise<Verification>;
  /**
   * Who would execute a call elsewhere, such as the ledger of a device. It is recorded before the call starts, so that `execute` and
   * `verify` know whom an earlier process has asked. Undefined, and if it throws: nobody knows.
   */
  readonly recipient?: (input: OutputOf<S>) => string | undefined;
  /**
   * Absent: the client executes the tool, and a call pauses the run. Returns a text, content blocks in `{ content }`, or
   * any value with a JSON form. Each item of an async iterable is progress. Its result is its return value; without one,
   * all items joined if they are texts, or else the last item.
   */
  readonly execute?: (input: OutputOf<S>, context: ToolContext) => Output;
}

export interface ToolContext {
  /** Aborts on cancel, timeout, the run's deadline, and when this process stops to drive the run (`isDetached`). */
  readonly signal: AbortSignal;
  /** `runId/effectId`; the same when the call runs again after a crash. */
  readonly key: string;
  /**
   * The fencing token: it increases whenever another driver takes over the run. A system that refuses a lower token than it
   * has seen is safe from a driver that continues after it was taken over. Undefined without a store.
   */
  readonly lease?: number | undefined;
  /** The span of the call in its trace, as W3C Trace Context defines it. Undefined: the run is not traced. */
  readonly traceparent?: string | undefined;
  /** Reports progress to listeners; not part of the result. */
  readonly report: (progress: unknown) => void;
  readonly context: unknown;
  readonly principal: Principal | undefined;
  /** The sources of what narrows the run, such as `skill:NAME`. Absent: nothing does. */
  readonly narrowedBy?: readonly string[] | undefined;
  /**
   * The rules of what narrows the run, by which the call was judged besides the policy. A tool that looks for files itself applies
   * them to each: only what the call names was judged.
   */
  readonly narrowedRules?: readonly PolicyRules[] | undefined;
  /** The run that the call belongs to. Only for tools that are runs themselves, or that Treadle makes. */
  readonly run?: CallingRun | undefined;
  /**
   * The values of the keys that the tool `remembers`, as far as they are set; for a helper of a typed agent, the state of
   * the helpers. Changes are stored if the call succeeds: assign to a key, or delete it.
   */
  readonly memory?: Record<string, unknown> | undefined;
  /** What the call is parked with, if the tool is asked again about a parked call. */
  readonly parked?: Omit<Parking, 'waiting'> | undefined;
  /** What the `recipient` of the tool was when the model called it. */
  readonly recipient?: string | undefined;
  /**
   * Asks a person or a client, and resolves with the answer. The run may pause until then, and be resumed by another
   * process: the tool is then called again from its start, and gets the answers that it already has at once. So ask first,
   * and act when you have all answers. Rejects if nobody answers in time.
   */
  readonly ask: AskQuestion;
  /** What this call has asked so far, also in other processes, with the answers. */
  readonly asked?: readonly AskedQuestion[] | undefined;
  /**
   * A resource that lives while this process drives the run, such as a browser, a shell or a connection. The first call
   * opens it, later calls of any tool of the run get the same one. It is closed when the run ends, pauses or is detached,
   * and when no call has used it for `holdIdleMs`. Rejects with `no-run` if the tool is not called by a run.
   */
  readonly hold: HoldResource;
  /**
   * Offers more tools to the model from the next turn on. Those that the run has stay as they are. Resolves when that is
   * durable. A resumed run needs the code of these tools too. Rejects with `no-run` if the tool is not called by a run.
   */
  readonly offer: (tools: readonly Tool[]) => Promise<void>;
  /**
   * Starts a run that belongs to whoever the run is driven for, and not to the call: it goes on when the call or its run
   * ends. Resolves when it is stored. Called again after a crash, with the same input, it resolves to the same run. Absent:
   * whoever drives the run cannot start others.
   */
  readonly startRun?: ((run: NewRun) => Promise<StartedByCall>) | undefined;
}

/** A run that a call starts. It has the key, the tenant and the scopes of the calling run, and the policy of the host. */
export interface NewRun {
  readonly input: string;
  /** Tells several runs of one call apart. */
  readonly id?: string;
  /** Default: that of the host. */
  readonly model?: string;
  readonly instructions?: string;
  /** The most tool calls. */
  readonly maxCalls?: number;
  /** Over all turns. */
  readonly maxOutputTokens?: number;
}

export interface StartedByCall {
  readonly runId: string;
}

/** Starts a run for a call. `key`: at most one run is ever started for it; if it has one, that is the result. */
export type StartRun = (run: Omit<NewRun, 'id'>, call: StartingCall) => Promise<StartedByCall>;

export interface StartingCall {
  readonly key: string;
  /** The calling run. */
  readonly runId: string;
  readonly principal: Principal | undefined;
  /** What the calling run has seen, for `carried` of the run that is started. */
  readonly exposure?: Exposure;
  /** The trace that the run that is started continues. */
  readonly trace?: string;
}

export type HoldResource = <T>(
  name: string,
  open: () => T | Promise<T>,
  close: (resource: T) => unknown,
  options?: HoldOptions<T>,
) => Promise<Held<T>>;

export interface HoldOptions<T> {
  /** The process that the resource is. It is recorded, and killed if it survives the process that drives the run. */
  readonly process?: (resource: T) => HeldProcess;
  /**
   * The mark that the process will have, with its host. It is recorded before `open`, so that the process is found if it is
   * started and the driver is killed before `process` is recorded.
   */
  readonly marked?: HeldProcess;
  /** It works although no call uses it, so it is not closed for being idle. Must not throw. */
  readonly isBusy?: (resource: T) => boolean;
  /** It may outlive the run: the next run of the conversation gets it, if the run has the option `kept`. */
  readonly passes?: true;
}

export interface Held<T> {
  readonly resource: T;
  /** This call has opened it. If it is not the first one of the run, the state of the last one is gone. */
  readonly isNew: boolean;
}

/** What a tool passes to `hold`. */
export interface HoldRequest extends HoldOptions<unknown> {
  readonly name: string;
  readonly open: () => unknown;
  readonly close: (resource: unknown) => unknown;
}

export interface AskQuestion {
  (question: string | (QuestionOptions & { readonly schema?: undefined })): Promise<string>;
  (question: QuestionOptions): Promise<unknown>;
}

export interface QuestionOptions extends Question {
  /**
   * Finds the answer when the tool is called again; unique within the call. By default the number of questions without an
   * id that were asked before, so give one if the order of the questions may change.
   */
  readonly id?: string;
  /** The question expires after this time. By default never. */
  readonly ttlMs?: number;
}

export interface CallingRun {
  readonly runId: string;
  readonly effect: string;
  readonly journal: Journal;
  readonly clock: Clock;
  /** The tool's share of the remaining limits of the run. */
  readonly limits: Limits;
  /** What the run may do in this turn; the tool's own run may do no more. */
  readonly narrowed: Narrowings;
  /** What the run is driven with. The tool's own run inherits what concerns it. */
  readonly options: CallingOptions;
  readonly state: () => State;
  /** The first event of the run, which says what the run belongs to. A run that was resumed has it only in its journal. */
  readonly started: () => RunStarted | Promise<RunStarted | undefined>;
  /** The trace of the call, as `traceparent`. */
  readonly traceparent: () => string | undefined;
  /** Answers for the tool's own run. */
  readonly answers: readonly Answer[];
  /**
   * Whether the tool's own run is in the journal. `begun`: it is, or it was lost. `unknown`: the call was issued before,
   * and the process may have died before or after it was. `new`: it is not, because this is the first time.
   */
  readonly child: 'new' | 'unknown' | 'begun';
  /** Records that the tool's own run is in the journal. Resolves when that is durable. */
  readonly childStarted: () => Promise<unknown>;
  /** The calling run does not end before this settles. Must not reject. */
  readonly waitFor: (child: Promise<unknown>) => void;
}

/**
 * What became of a call. `not-done`: it did not take effect, so it may run; a parked call stays parked then, and for
 * `unknown`. `Parked`: the call continues elsewhere, such as on a device that is offline.
 */
export type Verification =
  | { readonly type: 'done'; readonly result: unknown }
  | { readonly type: 'not-done' | 'unknown' }
  | Parked;

/** Returned by a tool to give content blocks or an error of its own. */
export interface ToolOutput extends ErrorFacts {
  readonly content: string | readonly ResultBlock[];
  /** With an error, the other fields say more about it. An error that a tool throws can have them as properties. */
  readonly isError?: boolean;
  /** What the run may do at most from the next turn on, also if `isError` is set. */
  readonly narrow?: Narrowing | readonly Narrowing[];
}

/** A tool for the loop; created by `tool`. */
export interface Tool {
  readonly name: string;
  readonly description: string;
  readonly input: Schema;
  readonly parameters: JsonSchema;
  readonly output?: Schema;
  readonly effect: ToolEffect;
  readonly timeoutMs?: number | ((input: unknown) => number);
  /** Of a tool that the client executes: how long a call waits for its result. */
  readonly ttlMs?: number;
  readonly exclusive: boolean;
  readonly polling: boolean;
  readonly strict?: boolean;
  readonly custom?: CustomForm;
  /** Executed by the client, which gets the raw arguments. */
  readonly asWritten?: boolean;
  readonly uncounted?: boolean;
  readonly unnarrowed?: boolean;
  /** Of a tool that is a run of its own: its share of the remaining limits. */
  readonly share?: number;
  /** Its calls get `context.run`, although it is not a run of its own. */
  readonly usesRun?: true;
  /** If the calling run has a ledger, its run draws on it instead of a share of the limits. */
  readonly drawsOnLedger?: true;
  /** The keys of the memory that it gets. `memoryKeysOf` has those of a call. */
  readonly remembers?: readonly string[] | ((input: unknown) => readonly string[]);
  /** The agent that a successful call hands the run over to. */
  readonly handsTo?: string;
  /** That agent. Absent: `agents` of the run has it. */
  readonly agent?: HandoffAgent;
  /** Of a tool that is a run of its own: the models that it may call. */
  readonly asks?: readonly Model[];
  readonly spends?: Amounts;
  readonly resources?: (input: unknown) => readonly string[];
  readonly touches?: (input: unknown) => readonly Touch[];
  readonly exposes?: Exposes | ((input: unknown) => Exposes | undefined);
  readonly permissions?: readonly string[];
  readonly sandbox?: (input: unknown) => readonly string[];
  readonly fingerprint?: string;
  readonly operation?: string | ((input: unknown) => string);
  readonly needsApproval?: boolean | ((input: unknown) => NeedsApproval);
  readonly verify?: (input: unknown, context: ToolContext) => Verification | Promise<Verification>;
  readonly recipient?: (input: unknown) => string | undefined;
  readonly execute?: (input: unknown, context: ToolContext) => unknown;
}

/** Whether people have to approve a call. `ttlMs`: how long the call waits for that; default one day. */
export type NeedsApproval = boolean | { readonly ttlMs: number };

const NO_ARGUMENTS: JsonSchema = { type: 'object', properties: {} };
const EFFECTS: readonly ToolEffect[] = ['pure', 'idempotent', 'once'];
const NAME = /^[a-zA-Z0-9_-]{1,64}$/;

/** A definition may be that of another tool with some parts replaced, so it may have all parts of a tool. */
const TOOL_OPTIONS: KnownOptions = {
  names: {
    name: 'string',
    description: 'string',
    input: '',
    parameters: 'object',
    output: '',
    effect: '',
    timeoutMs: '',
    ttlMs: 'number',
    exclusive: 'boolean',
    polling: 'boolean',
    strict: 'boolean',
    custom: 'object',
    asWritten: 'boolean',
    uncounted: 'boolean',
    unnarrowed: 'boolean',
    spends: 'object',
    resources: 'function',
    remembers: '',
    touches: 'function',
    exposes: '',
    permissions: '',
    sandbox: 'function',
    fingerprint: 'string',
    operation: '',
    needsApproval: '',
    verify: 'function',
    recipient: 'function',
    execute: 'function',
    share: 'number',
    usesRun: 'boolean',
    drawsOnLedger: 'boolean',
    handsTo: 'string',
    agent: '',
    asks: 'array',
  } satisfies OptionNames<ToolDefinition & Tool>,
  elsewhere: {
    inputSchema: 'input',
    schema: 'input',
    outputSchema: 'output',
    handler: 'execute',
    func: 'execute',
    invoke: 'execute',
    run: 'execute',
    timeout: 'timeoutMs',
  },
  code: 'invalid-tool',
};

/** Creates a tool. Throws `invalid-tool` if the definition could never work. */
export function tool<const S extends Schema = JsonSchema, Output = unknown>(
  definition: ToolDefinition<S, Output>,
): Tool {
  checkDefinition(definition as ToolDefinition<Schema>);
  const { name } = definition;
  const { remembers, resources } = definition;
  const input: Schema = definition.input ?? NO_ARGUMENTS;
  const made = {
    ...definition,
    input,
    parameters: definition.parameters ?? toJsonSchema(`The input of tool "${name}"`, input, 'invalid-tool'),
    effect: definition.effect ?? 'once',
    exclusive: definition.exclusive ?? false,
    polling: definition.polling ?? false,
    ...(remembers && {
      resources: (given: OutputOf<S>) => [...(resources?.(given) ?? []), ...memoryResources(remembers, given)],
    }),
  };
  if (definition.parameters) requireSchema(`The input of tool "${name}"`, input, 'invalid-tool');
  if ('~standard' in made.parameters) {
    throw invalidTool(name, 'has a schema object as "parameters", which is for JSON Schema', 'Give it as "input"');
  }
  const { type = 'object' } = made.parameters;
  if (type !== 'object')
    throw invalidTool(name, `takes a ${JSON.stringify(type)}`, 'Arguments are always an object: define its properties');
  // Drops the type of the input. That is safe because the input is validated against `input` before every call.
  return made as unknown as Tool;
}

const MEMORY = 'memory ';

/** The resources that stand for the keys of the memory that a call uses. */
function memoryResources<I>(remembers: readonly string[] | ((input: I) => readonly string[]), input: I): string[] {
  const keys: unknown = typeof remembers === 'function' ? remembers(input) : remembers;
  if (isKeys(keys)) return keys.map((key) => MEMORY + key);
  void Promise.resolve(keys).catch(() => {});
  throw new Error('"remembers" must return a list of keys');
}

/** The keys of the memory that a call gets: those that it shares with no other call while it runs. */
export function memoryKeysOf({ resources = [] }: CallCheck): readonly string[] {
  return resources.filter((one) => one.startsWith(MEMORY)).map((one) => one.slice(MEMORY.length));
}

function checkDefinition(definition: ToolDefinition<Schema>): void {
  const { name, description, timeoutMs, ttlMs, effect = 'once', input = NO_ARGUMENTS, remembers } = definition ?? {};
  if (typeof name !== 'string' || !NAME.test(name)) {
    throw new TreadleError(
      'invalid-tool',
      `The tool name ${JSON.stringify(name)} is not accepted by providers. Use 1 to 64 letters, digits, "_" or "-".`,
    );
  }
  checkOptions(`Tool "${name}"`, definition, TOOL_OPTIONS);
  if (typeof description !== 'string')
    throw invalidTool(name, 'has no description', 'Describe in a sentence what it does');
  if (input === null || !['object', 'function'].includes(typeof input)) {
    throw invalidTool(name, `has ${JSON.stringify(input)} as input`, 'Give a schema, or leave it out');
  }
  if (timeoutMs !== undefined && typeof timeoutMs !== 'function' && !isTime(timeoutMs)) {
    throw invalidTool(name, `has timeoutMs ${timeoutMs}`, 'Give a number above 0');
  }
  if (definition.output !== undefined) requireSchema(`The output of tool "${name}"`, definition.output, 'invalid-tool');
  if (ttlMs !== undefined && !isTime(ttlMs)) {
    throw invalidTool(name, `has ttlMs ${ttlMs}`, 'Give a number above 0');
  }
  if (ttlMs !== undefined && definition.execute) {
    throw invalidTool(name, 'has ttlMs, but is not executed by the client', 'Use timeoutMs, or park its calls');
  }
  if (!EFFECTS.includes(effect)) throw invalidTool(name, `has effect "${effect}"`, `Use ${EFFECTS.join(', ')}`);
  if (definition.asWritten && (definition.execute || definition.resources)) {
    throw invalidTool(name, 'has asWritten, but is not executed by the client alone', 'Leave out asWritten');
  }
  if (remembers !== undefined && typeof remembers !== 'function' && !(isKeys(remembers) && remembers.length > 0)) {
    throw invalidTool(name, `remembers ${JSON.stringify(remembers)}`, 'List the keys of the memory that it uses');
  }
  if (remembers && !definition.execute) {
    throw invalidTool(name, 'remembers something, but is executed by the client', 'Leave out remembers');
  }
  const { permissions = [], operation, needsApproval } = definition;
  if (!Array.isArray(permissions) || !permissions.every((one) => typeof one === 'string')) {
    throw invalidTool(name, 'has permissions that are not a list of names', 'Give names, or leave them out');
  }
  if (!['string', 'function', 'undefined'].includes(typeof operation)) {
    throw invalidTool(name, `has a ${typeof operation} as operation`, 'Give a text or a function, or leave it out');
  }
  if (!['boolean', 'function', 'undefined'].includes(typeof needsApproval)) {
    throw invalidTool(name, `has a ${typeof needsApproval} as needsApproval`, 'Give true or a function');
  }
  if (definition.spends) checkAmounts(`"spends" of tool "${name}"`, definition.spends);
}

function isTime(value: unknown): value is number {
  return typeof value === 'number' && value > 0 && Number.isFinite(value);
}

/** What the sandbox of a call promises now. Nothing if the tool fails to say. */
export function promisesOf({ sandbox }: Tool, input: unknown): readonly string[] {
  try {
    const promises: unknown = sandbox?.(input);
    if (Array.isArray(promises)) return promises;
    void Promise.resolve(promises).catch(() => {});
  } catch {}
  return [];
}

/** How long a call may take. Undefined: the tool does not say. */
export function timeoutOf({ timeoutMs }: Tool, input: unknown): number | undefined {
  if (typeof timeoutMs !== 'function') return timeoutMs;
  try {
    const asked = timeoutMs(input);
    return isTime(asked) ? asked : undefined;
  } catch {
    return undefined;
  }
}

function isKeys(value: unknown): value is readonly string[] {
  return Array.isArray(value) && value.every((key) => typeof key === 'string' && key !== '');
}

function invalidTool(name: string, what: string, remedy: string): TreadleError {
  return new TreadleError('invalid-tool', `Tool "${name}" ${what}. ${remedy}.`);
}

/** The part of a tool that is recorded in the journal. */
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
    ...(made.custom && { custom: made.custom }),
    ...(typeof made.timeoutMs === 'number' && { timeoutMs: made.timeoutMs }),
    ...(made.ttlMs !== undefined && { ttlMs: made.ttlMs }),
    ...(made.uncounted && { uncounted: true as const }),
    ...(made.unnarrowed && { unnarrowed: true as const }),
    ...(made.share !== undefined && { share: made.share }),
    ...(made.drawsOnLedger && { drawsOnLedger: true as const }),
    ...(made.needsApproval && { needsApproval: true as const }),
    ...(made.fingerprint !== undefined && { fingerprint: made.fingerprint }),
  };
}

/** The tools of a run by name. Throws `duplicate-tool` if two tools have the same name. */
export function toolsByName(tools: readonly Tool[]): ReadonlyMap<string, Tool> {
  if (!Array.isArray(tools))
    throw new TreadleError('invalid-options', '"tools" is not an array. Give an array of tools.');
  const byName = new Map<string, Tool>();
  for (const [index, value] of tools.entries()) {
    if (typeof value?.parameters !== 'object') {
      throw new TreadleError(
        'invalid-options',
        `tools[${index}] is not a tool. Make it with tool({ name, description, … }).`,
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

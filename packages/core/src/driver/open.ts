import { journalError, TreadleError } from '../errors.ts';
import type { Journal } from '../journal/port.ts';
import type { Event, RunStarted } from '../machine/events.ts';
import { inputExposure, withExposure } from '../machine/exposure.ts';
import { isNarrowing, isReadResult, lowestAutonomy, NARROWING_FORM } from '../machine/narrowing.ts';
import type { AgentRules, CompactionRules, Limits, Memory, Rules, RunFacts, ToolFacts } from '../machine/rules.ts';
import type { Carried, Grant, State } from '../machine/state.ts';
import { isKnownRules, LIMIT_NAMES, NEW } from '../machine/step.ts';
import { CURRENT_WORDING } from '../machine/wording.ts';
import {
  arePartsOf,
  contentProblem,
  described,
  userText,
  type InputMessage,
  type Message,
  type ToolResult,
  type UserMessage,
} from '../messages.ts';
import type { JsonSchema, Model } from '../model.ts';
import { copyOf, isPlain } from '../plain.ts';
import type { Policy, PolicyLimits } from '../policy/port.ts';
import type { Clock } from '../platform.ts';
import { withReadResult } from '../tools/read-result.ts';
import { toJsonSchema, type Schema } from '../tools/schema.ts';
import { checkOptions, type KnownOptions, type OptionNames } from '../known-options.ts';
import { factsOf, type Tool } from '../tools/tool.ts';
import { toolNames, withHandoffAgents } from './handoff.ts';
import type {
  Answer,
  CompactionOptions,
  Guardrails,
  KeptResource,
  LoopOptions,
  RunOptions,
  StartOrResumeOptions,
} from './options.ts';

/** The state that driving a run starts from, and the first events to apply. A new run has its rules only in the events. */
export interface Opening extends Pick<State, 'rules' | 'settings' | 'principal'> {
  readonly state: State;
  /** The number of entries that the journal has. */
  readonly seq: number;
  readonly events: readonly Event[];
  /** Answers for child runs, by the effect that is parked on each. */
  readonly childAnswers: ReadonlyMap<string, readonly Answer[]>;
  /** Effects that were issued before, and may be performed again. */
  readonly repeated: ReadonlySet<string>;
  /** What the run left when it paused, and has again. */
  readonly takenBack?: readonly KeptResource[];
}

/** Starts a new run. Throws for misuse. */
export function openRun(
  given: LoopOptions | StartOrResumeOptions,
  runId: string,
  clock: Clock,
  agent?: AgentRules,
): Opening {
  const options = given.carried ? withCarried(given, given.carried) : given;
  const { tools = [], instructions, model, parent } = options;
  // Copies, because they are pinned in the journal and the caller may change the originals.
  const settings = options.settings ? copyOf(options.settings) : {};
  const principal = options.principal && copyOf(options.principal);
  const policy = options.policy && recordedRules(options.policy);
  const grants = options.carried && grantsOption(options.carried, principal);
  const input = conversationOf(options.input, options.answered);
  // A text exposes the run to nothing.
  const seen = typeof options.input === 'string' ? undefined : inputExposure(input);
  const exposure = options.carried ? withExposure(options.carried.exposure, seen) : seen;
  const started: RunStarted = {
    type: 'run-started',
    at: clock.now(),
    runId,
    rules: rulesOf(options, agent),
    tools: tools.map(factsOf),
    model: model.id,
    settings,
    ...(instructions !== undefined && { instructions }),
    input,
    ...(options.answered && { answered: copyOf(options.answered) }),
    ...(principal && { principal }),
    ...(parent && { parent }),
    ...(options.memory && { memory: memoryOption(options.memory) }),
    ...(options.narrow && { narrow: narrowOption(options.narrow) }),
    ...(grants && { grants }),
    ...(exposure && { exposure: copyOf(exposure) }),
    ...(policy !== undefined && { policy }),
    ...(model.program !== undefined && { program: recordedProgram(model) }),
    ...(options.definition !== undefined && { definition: recordedCopy(options.definition, '"definition" is') }),
    ...runFactsOf(options),
  };
  const { rules } = started;
  if (options.compaction && model.usesTokens === false) {
    throw invalidOptions(`compaction is set, but the model "${model.id}" is a program, which reads the whole history`);
  }
  if (options.answered && (agent || rules.guardrails?.input || model.program !== undefined)) {
    throw invalidOptions(
      '"answered" is set for an agent, a program, or with guardrails of the input, which need a task',
    );
  }
  requirePrices(rules.limits, options);
  return {
    state: NEW,
    seq: 0,
    rules,
    settings,
    principal,
    events: [started],
    childAnswers: NO_CHILD_ANSWERS,
    repeated: NO_EFFECTS,
  };
}

const NO_CHILD_ANSWERS: Opening['childAnswers'] = new Map();
const NO_EFFECTS: Opening['repeated'] = new Set();

/** Throws `invalid-options` if `resume` is set and the other options do not allow it. */
export function checkAutoResume(options: RunOptions): asserts options is StartOrResumeOptions {
  const { resume, runId, journal } = options as Partial<StartOrResumeOptions>;
  if (resume !== 'auto') throw invalidOptions(`resume is ${JSON.stringify(resume)}. Use "auto", or omit it`);
  const missing = !journal ? 'journal' : runId === undefined ? 'runId' : 'input' in options ? undefined : 'input';
  if (missing === undefined) return;
  throw invalidOptions(`resume is "auto", but there is no ${missing}. Pass input, runId and journal`);
}

/** The first event of a run; undefined if the journal does not have the run. */
export async function readStart(journal: Journal, runId: string): Promise<RunStarted | undefined> {
  try {
    const [first] = await journal.read(runId);
    return first?.event as RunStarted | undefined;
  } catch (error) {
    throw journalError(runId, error);
  }
}

/** A copy of the definition of a program, as it is recorded. Throws `invalid-options` if it is not plain JSON. */
export function recordedProgram({ id, program }: Model): unknown {
  return recordedCopy(program, `The program of the model "${id}" is`);
}

function recordedCopy(value: unknown, what: string): unknown {
  if (isPlain(value)) return structuredClone(value);
  throw invalidOptions(`${what} not plain JSON, and cannot be recorded`);
}

/** The current tools as those of the run, with those that are away and the loop's own. */
export function currentTools(
  state: State,
  tools: readonly Tool[],
  away: readonly ToolFacts[] = [],
): readonly ToolFacts[] {
  return withReadResult([...tools.map(factsOf), ...away], state.tools.filter(isReadResult));
}

/* Options */

export const RUN_NAMES: OptionNames<StartOrResumeOptions> = {
  model: '',
  input: '',
  instructions: 'string',
  tools: 'array',
  maxTurns: 'number',
  maxParallel: 'number',
  parallel: 'boolean',
  maxCallsPerTurn: 'number',
  errorLimit: 'number',
  crashLimit: 'number',
  repeatLimit: 'number',
  maxResultChars: 'number',
  limits: 'object',
  toolTimeoutMs: 'number',
  closingTurn: 'boolean',
  settings: 'object',
  principal: 'object',
  toolChoice: '',
  allowedTools: 'array',
  finish: '',
  output: '',
  outputCheck: '',
  outputText: 'name',
  definition: '',
  compaction: '',
  retryLater: '',
  runId: 'name',
  memory: 'object',
  carried: 'object',
  narrow: '',
  parent: 'object',
  answered: 'array',
  resume: '',
  answers: 'array',
  acceptChangedTools: 'boolean',
  keepMissingTools: 'boolean',
  acceptChangedProgram: 'boolean',
  context: '',
  policy: '',
  verifyAnswer: 'function',
  audit: '.rejectedAnswer',
  ledger: '.reserve',
  guardrails: 'object',
  resultFilters: 'array',
  exposes: 'function',
  prepareTurn: 'function',
  agents: 'array',
  models: 'array',
  summariser: '.reply',
  journal: '',
  signal: '',
  onItem: 'function',
  onTurnStart: 'function',
  onToolCall: 'function',
  onToolResult: 'function',
  onFinish: 'function',
  durableItems: 'boolean',
  beforePause: 'function',
  canAnswer: 'boolean',
  startRun: 'function',
  holdIdleMs: 'number',
  kept: '.take',
  killProcess: 'function',
  matchPattern: 'function',
  tracing: '.follow',
  clock: '.now',
  session: 'string',
  task: 'string',
  trace: 'string',
  labels: 'object',
};

export const RUN_OPTIONS: KnownOptions = {
  names: RUN_NAMES,
  elsewhere: {
    prompt: 'input',
    messages: 'input',
    system: 'instructions',
    systemPrompt: 'instructions',
    instruction: 'instructions',
    maxTurn: 'maxTurns',
    maxSteps: 'maxTurns',
    maxIterations: 'maxTurns',
    stopWhen: 'maxTurns',
    schema: 'output',
    outputSchema: 'output',
    outputType: 'output',
    tool: 'tools',
    store: 'journal',
    prepareStep: 'prepareTurn',
    onStepFinish: 'onItem',
    abortSignal: 'signal',
    temperature: 'settings.temperature',
    maxTokens: 'settings.maxOutputTokens',
    maxOutputTokens: 'settings.maxOutputTokens',
  },
};

const NO_LIMITS: PolicyLimits = {};

/** Throws `invalid-options` for something else than a model. */
export function requireModel(model: Model | undefined): void {
  if (typeof model?.reply === 'function' && typeof model.id === 'string') return;
  const problem = typeof model?.reply === 'function' ? 'The model has no id' : 'There is no model';
  throw invalidOptions(textAsModel(model) ?? `${problem}. Pass one, such as openaiChat({ model }) of @treadle/models`);
}

/** What to do with the name of a model where a model belongs; undefined for anything else. */
export function textAsModel(model: unknown): string | undefined {
  if (typeof model !== 'string') return undefined;
  const name = JSON.stringify(model);
  return `The model is the text ${name}. Pass a model, such as openaiChat({ model: ${name} }) of @treadle/models`;
}

/** The options as rules, with defaults. Throws `invalid-options` for options that can never work. */
export function rulesOf(options: LoopOptions | StartOrResumeOptions, agent?: AgentRules): Rules {
  const { toolChoice = 'auto', allowedTools, tools = [], policy, narrow } = options;
  const { defaults } = options.model;
  const limits = limitsOf(options.limits);
  const about = { program: options.model.program !== undefined };
  const policyLimits = policy?.limits?.(lowestAutonomy(narrow), about) ?? NO_LIMITS;
  const rules: Rules = {
    wording: CURRENT_WORDING,
    finish: agent ? 'output' : (options.finish ?? 'plain'),
    maxTurns: Math.min(
      atLeast(1, 'maxTurns', options.maxTurns ?? defaults?.maxTurns ?? 20),
      policyLimits.turns ?? Infinity,
    ),
    maxParallel: atLeast(1, 'maxParallel', options.maxParallel ?? 5),
    parallel: options.parallel ?? true,
    ...(options.maxCallsPerTurn !== undefined && {
      maxCallsPerTurn: atLeast(1, 'maxCallsPerTurn', options.maxCallsPerTurn),
    }),
    errorLimit: atLeast(0, 'errorLimit', options.errorLimit ?? defaults?.errorLimit ?? 3),
    repeatLimit: atLeast(0, 'repeatLimit', options.repeatLimit ?? defaults?.repeatLimit ?? 3),
    crashLimit: atLeast(0, 'crashLimit', options.crashLimit ?? 5),
    maxResultChars: atLeast(1, 'maxResultChars', options.maxResultChars ?? 15_000),
    toolTimeoutMs: atLeast(1, 'toolTimeoutMs', options.toolTimeoutMs ?? 60_000),
    limits:
      policyLimits.calls === undefined
        ? limits
        : { ...limits, calls: Math.min(limits.calls ?? Infinity, policyLimits.calls) },
    closingTurn: options.closingTurn ?? false,
    toolChoice,
    ...(allowedTools && { allowedTools: [...allowedTools] }),
    judged: options.policy !== undefined,
    errorTypes: true,
    marks: true,
    ...(options.model.references && { references: true }),
    ...(options.ledger && { budgeted: true }),
    ...(options.retryLater && {
      retryLater: atLeast(1, 'retryLater', options.retryLater === true ? 10 : options.retryLater),
    }),
    ...(options.prepareTurn && { prepared: true }),
    ...(options.output !== undefined && { output: outputSchema(options.output) }),
    ...(options.outputCheck && { outputCheck: options.outputCheck }),
    ...(options.outputText && { outputText: options.outputText }),
    ...(options.guardrails && guardrailRules(options.guardrails)),
    ...(options.compaction && { compaction: compactionOf(options.compaction) }),
    ...(agent && { agent }),
  };
  if (toolChoice !== 'auto' && !isToolChoice(toolChoice)) {
    throw invalidOptions(`toolChoice is ${JSON.stringify(toolChoice)}. Use ${CHOICES.join(', ')} or { tool: name }`);
  }
  const required = typeof toolChoice === 'object' ? [toolChoice.tool] : [];
  const names = new Set(allowedTools && toolNames(options));
  const unknown =
    required.find((name) => !tools.some((tool) => tool.name === name)) ??
    allowedTools?.find((name) => !names.has(name));
  if (unknown !== undefined) {
    throw invalidOptions(`"${unknown}" is named in toolChoice or allowedTools, but there is no such tool`);
  }
  if (toolChoice === 'required' && (allowedTools ?? tools).length === 0) {
    throw invalidOptions('toolChoice is "required", but there is no tool to call. Add tools, or omit toolChoice');
  }
  if (required.some((name) => allowedTools && !allowedTools.includes(name))) {
    throw invalidOptions(`toolChoice requires "${required[0]}", which is not in allowedTools`);
  }
  if (!isKnownRules(rules)) throw invalidOptions(`finish is "${rules.finish}"; it can be "plain" or "confirm"`);
  return rules;
}

/** Which guardrails a run has. An empty list is none. */
function guardrailRules(guardrails: Guardrails): Pick<Rules, 'guardrails'> {
  const given = Object.entries(guardrails).filter(([, checks]) => checks !== undefined);
  for (const [stage, checks] of given) {
    const known = stage === 'input' || stage === 'output';
    if (known && Array.isArray(checks) && checks.every((check) => typeof check === 'function')) continue;
    throw invalidOptions('"guardrails" has something else than lists of functions in "input" and "output"');
  }
  const stages = given.filter(([, checks]) => checks.length > 0).map(([stage]) => [stage, true]);
  return stages.length === 0 ? {} : { guardrails: Object.fromEntries(stages) };
}

/** The options with what the run takes over of its conversation. The run may do no more than the one before. */
function withCarried<O extends LoopOptions | StartOrResumeOptions>(options: O, carried: Carried): O {
  const { memory, narrow } = options;
  return {
    ...options,
    ...(carried.memory && { memory: { ...carried.memory, ...memory } }),
    ...(carried.narrow && { narrow: [carried.narrow, narrow ?? []].flat() }),
  };
}

/** A copy of the grants that count for a run of `principal`. They are from the state of another run. */
function grantsOption(
  { grants, principal: from }: Carried,
  principal: LoopOptions['principal'],
): readonly Grant[] | undefined {
  if (!grants || from?.subject !== principal?.subject || from?.tenant !== principal?.tenant) return undefined;
  const isGranted = isPlain(grants) && Array.isArray(grants) && grants.every((one) => one?.definition);
  if (isGranted) return copyOf(grants);
  throw invalidOptions('"carried" is not what a run has left. Pass "carried" of its result');
}

export function narrowOption(narrow: NonNullable<LoopOptions['narrow']>): NonNullable<LoopOptions['narrow']> {
  if ([narrow].flat().every(isNarrowing)) return structuredClone(narrow);
  throw invalidOptions(`"narrow" is ${JSON.stringify(narrow)}. ${NARROWING_FORM}`);
}

/** A copy of the initial memory. A key with the value `null` is not set. */
function memoryOption(memory: Memory): Memory {
  if (!isPlain(memory) || typeof memory !== 'object' || Array.isArray(memory)) {
    throw invalidOptions('"memory" is not an object of plain JSON. Pass values that JSON can represent, by key');
  }
  const copy = JSON.parse(JSON.stringify(memory)) as Memory;
  return Object.fromEntries(Object.entries(copy).filter(([, value]) => value !== null));
}

/** Every model that a run may call, itself or through tools that start child runs. */
export function callableModels(options: ModelOptions): readonly Model[] {
  const { model, models = [], summariser, tools = [], agents = [] } = withHandoffAgents(options);
  const others = agents.flatMap((agent) => agent.model ?? []);
  const inside = [tools, ...agents.map((agent) => agent.tools ?? [])].flat().flatMap(({ asks = [] }) => asks);
  return [model, ...models, ...(summariser ? [summariser] : []), ...others, ...inside];
}

type ModelOptions = Pick<LoopOptions, 'model' | 'models' | 'summariser' | 'agents'> & {
  readonly tools?: readonly Tool[];
};

/** A cost limit can be enforced only if every model reports its cost. Throws `invalid-options`. */
export function requirePrices({ cost }: Rules['limits'], options: ModelOptions): void {
  if (cost === undefined) return;
  const unpriced = new Set(callableModels(options).flatMap(unpricedOf));
  if (unpriced.size === 0) return;
  const names = [...unpriced].join(', ');
  throw invalidOptions(
    `limits.cost is set, but the run may call ${names} without a known price, so the limit cannot be enforced. ` +
      'Set a "price" for the model, or limit tokens instead',
  );
}

/** For a model that calls other models: those of them without a price. */
function unpricedOf({ id, priced, asks, usesTokens }: Model): readonly string[] {
  if (priced === true || usesTokens === false) return [];
  const others = asks?.flatMap(unpricedOf) ?? [];
  return others.length > 0 ? others : [`"${id}"`];
}

/** Whether a value is a valid tool choice. */
export function isToolChoice(choice: unknown): boolean {
  if (typeof choice === 'string') return CHOICES.includes(choice);
  return typeof (choice as { tool?: unknown } | undefined)?.tool === 'string';
}

const CHOICES: readonly string[] = ['auto', 'required', 'none'];

const FACTS = ['session', 'task', 'trace'] as const;

/** What the run belongs to, copied. Throws `invalid-options` for values that a journal cannot represent. */
function runFactsOf(options: RunFacts): RunFacts {
  const { labels } = options;
  const facts: { -readonly [Name in keyof RunFacts]: RunFacts[Name] } = {};
  for (const name of FACTS) {
    const { [name]: value } = options;
    if (value !== undefined) facts[name] = value;
  }
  if (facts.trace !== undefined && !TRACE.test(facts.trace)) {
    throw invalidOptions(`trace is "${facts.trace}". Use a traceparent, such as 00-<32 hex digits>-<16 hex digits>-01`);
  }
  if (labels === undefined) return facts;
  return {
    ...facts,
    labels: Object.fromEntries(
      Object.entries(labels).map(([name, value]) => [name, checkedText(`labels.${name}`, value)]),
    ),
  };
}

const TRACE = /^[\da-f]{2}-[\da-f]{32}-[\da-f]{16}-[\da-f]{2}$/;

/** Throws `invalid-options` for something else than a text. */
function checkedText(name: string, value: unknown): string {
  if (typeof value === 'string') return value;
  throw invalidOptions(`${name} is ${JSON.stringify(value) ?? typeof value}. Use a text`);
}

/** An empty schema would accept everything. */
function outputSchema(output: Schema): JsonSchema {
  const schema = toJsonSchema('The output', output, 'invalid-options');
  if (schema !== output || Object.keys(schema).length > 0) return schema;
  throw invalidOptions('The output is an empty schema, which accepts everything. Describe the answer, or omit it');
}

const COMPACTION: KnownOptions = {
  names: { tokens: 'number', keepTurns: 'number' } satisfies OptionNames<CompactionOptions>,
};

function compactionOf(compaction: true | CompactionOptions): CompactionRules {
  if (compaction !== true) checkOptions('"compaction"', compaction, COMPACTION);
  const { tokens, keepTurns = 3 } = compaction === true ? {} : compaction;
  return {
    ...(tokens !== undefined && { tokens: atLeast(1, 'compaction.tokens', tokens) }),
    keepTurns: atLeast(1, 'compaction.keepTurns', keepTurns),
  };
}

function limitsOf(limits: Limits | undefined): Limits {
  if (limits === undefined) return {};
  const set = Object.entries(limits).filter(([, value]) => value !== undefined);
  for (const [name, value] of set) {
    if (!(LIMIT_NAMES as readonly string[]).includes(name)) {
      const remedy = /turn|step/i.test(name) ? 'Use the option "maxTurns"' : `The limits are ${LIMIT_NAMES.join(', ')}`;
      throw invalidOptions(`limits.${name} is not a limit. ${remedy}`);
    }
    if (!(typeof value === 'number' && value >= 0 && Number.isFinite(value))) {
      throw invalidOptions(
        `limits.${name} is ${described(value)}. Use a number of at least 0, or omit it for no limit`,
      );
    }
  }
  return Object.fromEntries(set);
}

/** The value of an option that is a whole number. Throws `invalid-options` for one below `least`. */
export function atLeast(least: number, name: string, value: number): number {
  if (Number.isSafeInteger(value) && value >= least) return value;
  throw invalidOptions(`${name} is ${described(value)}. Use a whole number of at least ${least}`);
}

function invalidOptions(what: string): TreadleError {
  return new TreadleError('invalid-options', `${what}.`);
}

/* Input */

/**
 * The input of a run as messages. Throws `invalid-input` for a conversation that no provider accepts. With `answered`, the
 * last message has calls, and these are the results that some of them have.
 */
export function conversationOf(
  input: string | readonly InputMessage[],
  answered?: readonly ToolResult[],
): readonly Message[] {
  if (typeof input === 'string' && input.trim() !== '') {
    if (answered) checkAnswered(answered, []);
    return [userText(input)];
  }
  if (!Array.isArray(input) || input.length === 0) {
    const problem = input?.length === undefined ? described(input) : 'empty';
    throw invalidInput(`it is ${problem}. Pass a text, or an array of messages`);
  }
  const messages = (input as readonly InputMessage[]).map(withBlocks);
  let open: readonly string[] = [];
  for (const [index, message] of messages.entries()) {
    const problem = messageProblem(message);
    if (problem !== undefined) throw invalidInput(`message ${index}${problem}`);
    if (message.role === 'tool') {
      const answered = message.content.map(({ callId }) => callId);
      if (open.length === 0 || answered.join('\n') !== open.join('\n')) {
        throw invalidInput(
          `message ${index} answers the calls [${answered.join(', ')}], but the open calls are [${open.join(', ')}]`,
        );
      }
      open = [];
      continue;
    }
    if (open.length > 0)
      throw invalidInput(`message ${index} comes before the results of the calls [${open.join(', ')}]`);
    if (message.role === 'assistant')
      open = message.content.flatMap((part) => (part.type === 'tool-call' ? part.id : []));
  }
  if (answered) checkAnswered(answered, open);
  else if (open.length > 0) throw invalidInput(`the calls [${open.join(', ')}] of its last message have no results`);
  // A copy, because it is pinned in the journal and the caller may change the original.
  return copyOf(messages);
}

function checkAnswered(answered: readonly ToolResult[], open: readonly string[]): void {
  if (open.length === 0) throw invalidInput('"answered" is set, but its last message has no calls');
  const isComplete = arePartsOf('tool', answered);
  if (isComplete && answered.every(({ callId }) => open.includes(callId))) return;
  throw invalidInput('"answered" has something else than complete results of the calls in its last message');
}

/** Input for a run in progress, as messages. Throws `invalid-input` unless it is a user message. */
export function inputMessages(input: string | InputMessage): readonly UserMessage[] {
  const [message] = conversationOf(typeof input === 'string' ? input : [input]);
  if (message?.role === 'user') return [message];
  throw new TreadleError(
    'invalid-input',
    `Input for a running run must be a user message, not one of role "${message!.role}".`,
  );
}

const ROLES: readonly string[] = ['user', 'assistant', 'tool'];

/** A message whose content is a plain text, with that text as its only block. */
function withBlocks(message: InputMessage): Message {
  if (typeof message?.content !== 'string' || !['user', 'assistant'].includes(message.role)) return message as Message;
  return { ...message, content: [{ type: 'text', text: message.content }] } as Message;
}

/** What is wrong with a message from outside; undefined: nothing. */
function messageProblem(
  message: { readonly role?: unknown; readonly content?: unknown } | undefined,
): string | undefined {
  if (typeof message !== 'object' || message === null) return ` is ${described(message)}, not an object`;
  const { role, content } = message;
  if (role === 'system' || role === 'developer') {
    return `.role is "${role}". Pass its text as the option "instructions"`;
  }
  if (!ROLES.includes(role as string)) return `.role is ${described(role)}. Use ${ROLES.join(', ')}`;
  return contentProblem(role as Message['role'], content);
}

function invalidInput(what: string): TreadleError {
  return new TreadleError('invalid-input', `The input is not a valid conversation: ${what}.`);
}

/** A copy of the rules of a policy, as they are recorded. Throws `invalid-options` if they are not plain JSON. */
export function recordedRules({ rules }: Policy): unknown {
  if (rules === undefined) return undefined;
  return Object.freeze(recordedCopy(rules, 'The rules of the policy are'));
}

import { journalError, TreadleError } from '../errors.ts';
import { childRunId } from '../journal/family.ts';
import type { Journal, JournalEntry, Lease } from '../journal/port.ts';
import { walkInSlices, type Start } from '../journal/replay.ts';
import { restoredState } from '../journal/snapshot.ts';
import { outstanding, slotEffect, toolEffectId, waiting } from '../machine/effects.ts';
import type { Event } from '../machine/events.ts';
import { stableJson } from '../machine/history.ts';
import { isNarrowing, isReadResult, type Narrowing } from '../machine/narrowing.ts';
import { isAskedAgain } from '../machine/parking.ts';
import { findQuestion } from '../machine/questions.ts';
import type { AgentRules, CompactionRules, Limits, Memory, Rules, RunFacts, ToolFacts } from '../machine/rules.ts';
import type { Call, State } from '../machine/state.ts';
import { canResume, isKnownRules, LIMIT_NAMES, NEW, step } from '../machine/step.ts';
import { CURRENT_WORDING } from '../machine/wording.ts';
import { arePartsOf, userText, type Message, type UserMessage } from '../messages.ts';
import type { Model } from '../model.ts';
import { isPlain } from '../plain.ts';
import type { PolicyLimits } from '../policy/port.ts';
import type { Clock } from '../platform.ts';
import type { Checked } from '../tools/execute.ts';
import { withReadResult } from '../tools/read-result.ts';
import { toJsonSchema } from '../tools/schema.ts';
import { factsOf, toolsByName, type Tool } from '../tools/tool.ts';
import { answerEvents } from './answer.ts';
import { blobsOf } from './call-model.ts';
import { agentNamed, toolNames } from './handoff.ts';
import { policyChange, recheckedCall, recordedRules } from './judge.ts';
import type {
  Answer,
  CompactionOptions,
  ContinueOptions,
  Guardrails,
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
}

type RunStarted = Extract<Event, { type: 'run-started' }>;
type EffectLost = Extract<Event, { type: 'effect-lost' }>;

/** Starts a new run. Throws for misuse. */
export function openRun(
  options: LoopOptions | StartOrResumeOptions,
  runId: string,
  clock: Clock,
  agent?: AgentRules,
): Opening {
  const { tools = [], instructions, model, parent } = options;
  // Copies, because they are pinned in the journal and the caller may change the originals.
  const settings = options.settings ? structuredClone(options.settings) : {};
  const principal = options.principal && structuredClone(options.principal);
  const policy = options.policy && recordedRules(options.policy);
  const started: RunStarted = {
    type: 'run-started',
    at: clock.now(),
    runId,
    rules: rulesOf(options, agent),
    tools: tools.map(factsOf),
    model: model.id,
    settings,
    ...(instructions !== undefined && { instructions }),
    input: conversationOf(options.input),
    ...(principal && { principal }),
    ...(parent && { parent }),
    ...(options.memory && { memory: memoryOption(options.memory) }),
    ...(options.narrow && { narrow: narrowOption(options.narrow) }),
    ...(policy !== undefined && { policy }),
    ...(model.program !== undefined && { program: recordedProgram(model) }),
    ...runFactsOf(options),
  };
  const { rules } = started;
  if (options.compaction && model.usesTokens === false) {
    throw invalidOptions(`compaction is set, but the model "${model.id}" is a program, which reads the whole history`);
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

/**
 * Whether the journal has the run that `opening` would start. Throws `run-exists` if it was started with another input,
 * and `answer-unfit` if there are answers for a run that does not exist.
 */
export async function hasStarted(options: StartOrResumeOptions, opening: Opening, clock: Clock): Promise<boolean> {
  const { runId, journal, answers = [] } = options;
  const stored = await readStart(journal, runId);
  const [started] = opening.events as readonly [RunStarted];
  if (stored) checkSameStart(stored, started);
  else await answerEvents({ ...NEW, runId }, answers, { ...options, clock });
  return stored !== undefined;
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

/** Throws `run-exists` if two starts differ in the input or the agent. The prompts of an agent may differ. */
export function checkSameStart(
  stored: RunStarted,
  { rules, input }: { readonly rules: Pick<Rules, 'agent'>; readonly input?: RunStarted['input'] },
): void {
  const { agent } = stored.rules;
  const runExists = (what: string): TreadleError =>
    new TreadleError('run-exists', `There is already a run "${stored.runId}" ${what}. Give another runId.`);
  if (agent?.name !== rules.agent?.name) {
    throw runExists(agent ? `of the agent "${agent.name}"` : 'that is not a run of an agent');
  }
  const isSame = agent ? agent.input === rules.agent?.input : stableJson(stored.input) === stableJson(input);
  if (!isSame) throw runExists('that was started with another input');
}

/**
 * Resumes a run: replays it, then judges by the current policy, reports the effects that were in progress as lost, applies
 * the answers, calls tools with parked calls again, and reports deadlines that have passed.
 */
export async function reopenRun(
  options: ContinueOptions,
  { clock, agent, lease, signal }: Reopening,
): Promise<Opening> {
  const { runId, journal, answers = [], acceptChangedTools = false } = options;
  const { state, seq } = await readState(journal, runId);
  const { tools = [] } = agentNamed(options, state.handoff?.agent ?? state.handedTo) ?? {};
  const at = clock.now();
  // A run that failed with a model error can be resumed too. A run that is only cancelled needs no code.
  const resumable = canResume(state);
  if (resumable && !options.signal?.aborted) {
    const missing = missingCode(state, options, agent);
    if (missing !== undefined) throw new TreadleError('invalid-options', `Run "${runId}" ${missing}`);
    requirePrices(state.rules.limits, options);
  }
  const had = state.nextTools ?? state.tools;
  const away = options.keepMissingTools ? missingTools(had, tools) : [];
  const changes = resumable ? toolChanges(had, tools).filter(({ facts }) => !away.includes(facts)) : [];
  if (changes.length > 0 && !acceptChangedTools) {
    const remedy =
      'Pass the original tools, or set acceptChangedTools to resume with the current ones. With keepMissingTools, calls ' +
      'of missing tools fail until they are back.';
    const what = changes.map(({ change }) => change).join('; ');
    throw new TreadleError('tools-changed', `The tools of run "${runId}" changed: ${what}. ${remedy}`);
  }
  const program = resumable && !options.signal?.aborted ? changedProgram(state, options) : undefined;
  // At the time of the last event: only `effect-lost` marks the time since then as inactive.
  const accepted = changes.length > 0 ? acceptedTools(state, currentTools(state, tools, away)) : [];
  const stricter = resumable && changes.length === 0 ? newlyNeedingApproval(had, tools) : undefined;
  if (stricter) accepted.push(...acceptedTools(state, stricter));
  if (program) accepted.push(program);
  if (state.resources) accepted.push(...(await killSurvivors(state, options)));
  const died = lease?.takenOver && !(await haveChildrenProgressed(journal, state, state.at)) && { died: true as const };
  const started = startedEffects(state);
  const lost = started.map((effect): Event => ({
    type: 'effect-lost',
    at,
    effect,
    cause: 'restart',
    ...died,
  }));
  const rejudged = resumable && !options.signal?.aborted ? await newPolicy(state, { options, signal }, at) : undefined;
  if (rejudged) accepted.push(rejudged);
  const current = rejudged ? step(state, rejudged).state : state;
  const { events: answered, childAnswers } = await answerEvents(current, answers, { ...options, clock });
  const parked = parkedEffects(state);
  const repeated = parked
    .filter(({ effect }) => !childAnswers.has(effect))
    .map((call): Event => ({ type: 'effect-lost', at, ...call }));
  const expired = waiting(current).map(({ effect: id }): Event => {
    const { effect = id, question } = findQuestion(current, id) ?? {};
    return { type: 'deadline-passed', at, effect, ...(question !== undefined && { question }) };
  });
  const { rules, settings, principal } = state;
  return {
    state,
    seq,
    rules,
    settings,
    principal,
    events: [...accepted, ...lost, ...answered, ...repeated, ...expired],
    childAnswers,
    repeated: new Set([...started, ...parked.map(({ effect }) => effect)]),
  };
}

/** A copy of the definition of a program, as it is recorded. Throws `invalid-options` if it is not plain JSON. */
function recordedProgram({ id, program }: Model): unknown {
  if (isPlain(program)) return structuredClone(program);
  throw invalidOptions(`The program of the model "${id}" is not plain JSON, so it cannot be recorded`);
}

/** The event that the run is resumed with another program. Throws `program-changed` unless the options accept that. */
function changedProgram({ runId, program: had, at }: State, options: ContinueOptions): Event | undefined {
  const { model, acceptChangedProgram = false } = options;
  const program = model.program === undefined ? undefined : recordedProgram(model);
  if (stableJson(program) === stableJson(had)) return undefined;
  if (acceptChangedProgram) return { type: 'program-changed', at, ...(program !== undefined && { program }) };
  const named = (one: unknown): string => (one === undefined ? 'no program' : stableJson(one).slice(0, 200));
  const remedy =
    'Pass the program that it was started with, or set acceptChangedProgram to resume with the current one.';
  throw new TreadleError(
    'program-changed',
    `Run "${runId}" was started with ${named(had)} as its model, and is resumed with ${named(program)}. ${remedy}`,
  );
}

/** Ends the processes that the last driver of the run left behind. Those of the original of a fork are not its own. */
async function killSurvivors(
  { resources = [], runId, at }: State,
  { killProcess }: ContinueOptions,
): Promise<readonly Event[]> {
  const gone: Event[] = [];
  for (const { runId: owner, name, process } of resources) {
    if (owner === runId && (await killProcess?.(process))) gone.push({ type: 'resource-closed', at, name });
  }
  return gone;
}

/** The current tools, also in place of a change that waits for the next turn. */
function acceptedTools({ at, nextTools }: State, tools: readonly ToolFacts[]): Event[] {
  const accepted: Event = { type: 'tools-changed', at, tools };
  return nextTools ? [accepted, { ...accepted, from: 'next-turn' }] : [accepted];
}

interface Reopening {
  readonly clock: Clock;
  readonly agent: AgentRules | undefined;
  readonly lease: Lease | undefined;
  /** Aborts when the run is cancelled or detached meanwhile. */
  readonly signal: AbortSignal;
}

/** The event that the run is resumed with another policy. Its calls are checked again with the code of this process. */
function newPolicy(
  state: State,
  { options, signal }: { readonly options: ContinueOptions; readonly signal: AbortSignal },
  at: number,
): Promise<Event | undefined> {
  const tools = toolsByName(agentNamed(options, state.handedTo)?.tools ?? []);
  const executor = ({ name }: Call): Tool | undefined => tools.get(name);
  const run = { runId: state.runId, blobs: blobsOf(options.journal) };
  const checked = (call: Call): Checked | Promise<Checked> => recheckedCall(executor(call), call, run);
  return policyChange({ state, options, executor, checked, signal }, at);
}

/** Whether a child run of a call in progress has an entry since time `since` that is not only a lost effect. */
async function haveChildrenProgressed(journal: Journal, { runId, phase }: State, since: number): Promise<boolean> {
  if (phase.type !== 'tools') return false;
  for (const { type, call } of phase.slots) {
    if (type !== 'running' || call.limits === undefined) continue;
    const entries = await journal.read(childRunId(runId, toolEffectId(call)));
    if (entries.some(({ event }) => event.at >= since && event.type !== 'effect-lost')) return true;
    if (await haveChildrenProgressed(journal, (await walkInSlices(entries)).state, since)) return true;
  }
  return false;
}

/** Replays a run from its snapshot, or from the beginning if it has none. */
async function readState(journal: Journal | undefined, runId: string): Promise<{ state: State; seq: number }> {
  if (!journal) {
    throw new TreadleError('invalid-options', 'To resume a run, pass the journal that contains it, and its runId.');
  }
  try {
    const { start, entries } = await readEntries(journal, runId);
    if (start.seq + entries.length === 0) throw new TreadleError('unknown-run', unknownRun(runId));
    const replayed = await walkInSlices(entries, undefined, start);
    if (replayed.type === 'replayed') return { state: replayed.state, seq: start.seq + entries.length };
    const where = `at entry ${replayed.seq}, ${replayed.difference}`;
    throw new TreadleError('journal-damaged', `Run "${runId}" cannot be resumed: ${where}.`);
  } catch (error) {
    throw journalError(runId, error);
  }
}

/** Uses the snapshot only if the journal still has the last entry that the snapshot covers. */
async function readEntries(
  journal: Journal,
  runId: string,
): Promise<{ readonly start: Start; readonly entries: readonly JournalEntry[] }> {
  const snapshot = await journal.readSnapshot?.(runId);
  const state = snapshot && restoredState(snapshot);
  if (state) {
    const [last, ...entries] = await journal.read(runId, snapshot.seq - 1);
    if (last) return { start: { state, seq: snapshot.seq }, entries };
  }
  return { start: { state: NEW, seq: 0 }, entries: await journal.read(runId) };
}

function unknownRun(runId: string): string {
  return `The journal has no run "${runId}". Check the id, and that this is the journal the run was started with.`;
}

/** What resuming the run requires and the options lack. */
function missingCode(
  { rules, handedTo, handoff }: State,
  options: ContinueOptions,
  agent: AgentRules | undefined,
): string | undefined {
  if (rules.prepared && !options.prepareTurn) return 'was started with prepareTurn. Pass prepareTurn to resume it.';
  if (rules.budgeted && !options.ledger) return 'was started with a ledger. Pass the ledger to resume it.';
  for (const name of [handedTo, handoff?.agent]) {
    if (!agentNamed(options, name)) return `is with the agent "${name}". Pass it in "agents" to resume it.`;
  }
  for (const stage of ['input', 'output'] as const) {
    if (!rules.guardrails?.[stage] || options.guardrails?.[stage]?.length) continue;
    return `was started with guardrails for its ${stage}. Pass guardrails to resume it.`;
  }
  if (rules.agent?.name === agent?.name) return undefined;
  if (!rules.agent) return 'is not a run of a typed agent. Resume it with runLoop.';
  return `belongs to the agent "${rules.agent.name}". Resume it with executeAgent and that agent.`;
}

/** Effects in progress, without those that wait for an answer; or the model call whose failure ended the run. */
function startedEffects(state: State): readonly string[] {
  const { phase } = state;
  if (phase.type === 'ended') return phase.effect === undefined ? [] : [phase.effect];
  if (phase.type !== 'tools') return outstanding(state).map(({ id }) => id);
  const started = phase.slots.filter(({ type }) => type === 'running' || type === 'verifying');
  return started.map((slot) => slotEffect(slot)!.id);
}

/** Parked calls whose tools are asked what became of them: they are called again, or verified if they must not be. */
function parkedEffects({ phase }: State): readonly Pick<EffectLost, 'effect' | 'cause'>[] {
  if (phase.type !== 'tools') return [];
  return phase.slots.filter(isAskedAgain).map((slot) => {
    return { effect: slotEffect(slot)!.id, cause: slot.call.effect === 'once' ? 'parked' : 'device' };
  });
}

/** The current tools as those of the run, with those that are away and the loop's own. */
export function currentTools(
  state: State,
  tools: readonly Tool[],
  away: readonly ToolFacts[] = [],
): readonly ToolFacts[] {
  return withReadResult([...tools.map(factsOf), ...away], state.tools.filter(isReadResult));
}

function missingTools(had: readonly ToolFacts[], tools: readonly Tool[]): readonly ToolFacts[] {
  return had.filter((facts) => !isReadResult(facts) && !tools.some(({ name }) => name === facts.name));
}

/** The tools of the run, if the current code requires approvals for some that it did not record. */
function newlyNeedingApproval(had: readonly ToolFacts[], tools: readonly Tool[]): readonly ToolFacts[] | undefined {
  const names = new Set(tools.flatMap(({ name, needsApproval }) => (needsApproval ? name : [])));
  const isNew = ({ name, needsApproval }: ToolFacts): boolean => !needsApproval && names.has(name);
  if (!had.some(isNew)) return undefined;
  return had.map((facts) => (isNew(facts) ? { ...facts, needsApproval: true } : facts));
}

/** How the current tools differ from those of the run. New tools do not count. */
function toolChanges(
  had: readonly ToolFacts[],
  tools: readonly Tool[],
): readonly { readonly facts: ToolFacts; readonly change: string }[] {
  const now = new Map(tools.map((tool) => [tool.name, factsOf(tool)]));
  return had
    .filter((facts) => !isReadResult(facts))
    .flatMap((facts) => {
      const current = now.get(facts.name);
      if (!current) return { facts, change: `"${facts.name}" is missing` };
      const changed = COMPARED.filter((key) => JSON.stringify(facts[key]) !== JSON.stringify(current[key]));
      const change = `"${facts.name}" has a different ${changed.join(' and ')}`;
      return changed.length === 0 ? [] : { facts, change };
    });
}

const COMPARED = ['parameters', 'effect', 'client'] as const;

/* Options */

const NO_LIMITS: PolicyLimits = {};

/** The options as rules, with defaults. Throws `invalid-options` for options that can never work. */
function rulesOf(options: LoopOptions | StartOrResumeOptions, agent?: AgentRules): Rules {
  const { toolChoice = 'auto', allowedTools, tools = [], policy, narrow } = options;
  const { defaults } = options.model;
  const limits = limitsOf(options.limits);
  const policyLimits = policy?.limits?.(narrow?.autonomy) ?? NO_LIMITS;
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
    ...(options.model.references && { references: true }),
    ...(options.ledger && { budgeted: true }),
    ...(options.retryLater && {
      retryLater: atLeast(1, 'retryLater', options.retryLater === true ? 10 : options.retryLater),
    }),
    ...(options.prepareTurn && { prepared: true }),
    ...(options.output && { output: toJsonSchema('The output', options.output, 'invalid-options') }),
    ...(options.guardrails && guardrailRules(options.guardrails)),
    ...(options.compaction && { compaction: compactionOf(options.compaction) }),
    ...(agent && { agent }),
  };
  if (!isToolChoice(toolChoice)) {
    throw invalidOptions(`toolChoice is ${JSON.stringify(toolChoice)}. Use ${CHOICES.join(', ')} or { tool: name }`);
  }
  const required = typeof toolChoice === 'object' ? [toolChoice.tool] : [];
  const unknown =
    required.find((name) => !tools.some((tool) => tool.name === name)) ??
    allowedTools?.find((name) => !toolNames(options).includes(name));
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

export function narrowOption(narrow: Narrowing): Narrowing {
  if (isNarrowing(narrow)) return structuredClone(narrow);
  throw invalidOptions(
    `"narrow" is ${JSON.stringify(narrow)}. Use { tools: [names], autonomy: 0 to 3 }, or one of the two`,
  );
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
  const { model, models = [], summariser, tools = [], agents = [] } = options;
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
    if (value !== undefined) facts[name] = checkedText(name, value);
  }
  if (facts.trace !== undefined && !TRACE.test(facts.trace)) {
    throw invalidOptions(`trace is "${facts.trace}". Use a traceparent, such as 00-<32 hex digits>-<16 hex digits>-01`);
  }
  if (labels === undefined) return facts;
  if (typeof labels !== 'object' || labels === null || Array.isArray(labels)) {
    throw invalidOptions('labels is not an object. Use an object of texts, such as { team: "sales" }');
  }
  return {
    ...facts,
    labels: Object.fromEntries(
      Object.entries(labels).map(([name, value]) => [name, checkedText(`labels.${name}`, value)]),
    ),
  };
}

const TRACE = /^[\da-f]{2}-[\da-f]{32}-[\da-f]{16}-[\da-f]{2}$/;

function checkedText(name: string, value: unknown): string {
  if (typeof value === 'string') return value;
  throw invalidOptions(`${name} is ${JSON.stringify(value) ?? typeof value}. Use a text`);
}

function compactionOf(compaction: true | CompactionOptions): CompactionRules {
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
      throw invalidOptions(`limits.${name} is not a limit. The limits are ${LIMIT_NAMES.join(', ')}`);
    }
    if (!(typeof value === 'number' && value >= 0 && Number.isFinite(value))) {
      throw invalidOptions(`limits.${name} is ${String(value)}. Use a number of at least 0, or omit it for no limit`);
    }
  }
  return Object.fromEntries(set);
}

function atLeast(least: number, name: string, value: number): number {
  if (Number.isSafeInteger(value) && value >= least) return value;
  throw invalidOptions(`${name} is ${String(value)}. Use a whole number of at least ${least}`);
}

function invalidOptions(what: string): TreadleError {
  return new TreadleError('invalid-options', `${what}.`);
}

/* Input */

/** The input of a run as messages. Throws `invalid-input` for a conversation that no provider accepts. */
export function conversationOf(input: string | readonly Message[]): readonly Message[] {
  if (typeof input === 'string' && input.trim() !== '') return [userText(input)];
  if (!Array.isArray(input) || input.length === 0)
    throw invalidInput('it is empty. Pass a text, or at least one message');
  let open: readonly string[] = [];
  for (const [index, message] of (input as readonly Message[]).entries()) {
    if (!isMessage(message)) {
      throw invalidInput(
        `message ${index} does not have a role of ${ROLES.join(', ')} and an array of complete content blocks`,
      );
    }
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
  if (open.length > 0) throw invalidInput(`the calls [${open.join(', ')}] of its last message have no results`);
  // A copy, because it is pinned in the journal and the caller may change the original.
  return structuredClone(input as readonly Message[]);
}

/** Input for a run in progress, as messages. Throws `invalid-input` unless it is a user message. */
export function inputMessages(input: string | UserMessage): readonly UserMessage[] {
  const [message] = conversationOf(typeof input === 'string' ? input : [input]);
  if (message?.role === 'user') return [message];
  throw new TreadleError(
    'invalid-input',
    `Input for a running run must be a user message, not one of role "${message!.role}".`,
  );
}

const ROLES: readonly string[] = ['user', 'assistant', 'tool'];

function isMessage(message: { readonly role?: unknown; readonly content?: unknown } | undefined): boolean {
  const role = message?.role as 'user' | 'assistant' | 'tool';
  return ROLES.includes(role) && arePartsOf(role, message?.content);
}

function invalidInput(what: string): TreadleError {
  return new TreadleError('invalid-input', `The input is not a valid conversation: ${what}.`);
}

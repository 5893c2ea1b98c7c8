import { journalError, TreadleError } from '../errors.ts';
import { childRunId, childRuns } from '../journal/family.ts';
import type { Journal, JournalEntry, Lease, RunStore } from '../journal/port.ts';
import { walkInSlices, type Start } from '../journal/replay.ts';
import { restoredState } from '../journal/snapshot.ts';
import { outstanding, slotEffect, slotFor, toolEffectId, waiting } from '../machine/effects.ts';
import type { Event, RunStarted } from '../machine/events.ts';
import { stableJson } from '../machine/history.ts';
import { isReadResult } from '../machine/narrowing.ts';
import { isAskedAgain } from '../machine/parking.ts';
import { findQuestion } from '../machine/questions.ts';
import type { OpenResource } from '../machine/resources.ts';
import type { AgentRules, Rules, ToolFacts } from '../machine/rules.ts';
import type { Call, State } from '../machine/state.ts';
import { canResume, NEW, step } from '../machine/step.ts';
import type { Clock } from '../platform.ts';
import type { Checked } from '../tools/execute.ts';
import { factsOf, toolsByName, type Tool, type ToolContext } from '../tools/tool.ts';
import type { Admission } from './answer.ts';
import { answerEvents } from './answer-paused.ts';
import { blobsOf, executorOf, ignore, recheckedCall } from './call-model.ts';
import { agentNamed } from './handoff.ts';
import { examineAnswer } from './examine.ts';
import { policyChange, rejudgedAsks, type Judging } from './judge.ts';
import { currentTools, readStart, recordedProgram, requirePrices, type Opening } from './open.ts';
import type { ContinueOptions, KeptResource, StartOrResumeOptions } from './options.ts';
import { callingRun, checkedCall, needsExamining, type CallEffect, type RunContext } from './perform.ts';
import type { runLoop } from './run.ts';
import type { Orphan } from './shell.ts';

/* Resuming a run. Loaded when a run is resumed, may have to be (`resume: 'auto'`), or is stopped with its child runs. */

type EffectLost = Extract<Event, { type: 'effect-lost' }>;

/**
 * Whether the journal has the run that `opening` would start. Throws `run-exists` if it was started with another input,
 * and `answer-unfit` if there are answers for a run that does not exist.
 */
export async function hasStarted(options: StartOrResumeOptions, opening: Opening, clock: Clock): Promise<boolean> {
  const { runId, journal, answers = [] } = options;
  const stored = await readStart(journal, runId);
  const [started] = opening.events as readonly [RunStarted];
  if (stored) checkSameStart(stored, started);
  else if (answers.length > 0) await answerEvents({ ...NEW, runId }, answers, { ...options, clock });
  return stored !== undefined;
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
export async function reopenRun(options: ContinueOptions, reopening: Reopening): Promise<Opening> {
  const { runId, journal, kept } = options;
  const read = await readState(journal, runId);
  const takenBack = kept?.takeBack?.(runId, (resource) => isRecordedAs(read.state, resource)) ?? [];
  if (takenBack.length === 0) return openingOf(read, takenBack, options, reopening);
  try {
    return await openingOf(read, takenBack, options, reopening);
  } catch (error) {
    await kept!.keep(runId, takenBack, true);
    throw error;
  }
}

/** Whether the journal says that the process of a resource runs. */
function isRecordedAs({ resources = [], runId }: State, { name, process }: KeptResource): boolean {
  const isSame = (one: OpenResource): boolean =>
    one.runId === runId && one.name === name && stableJson(one.process) === stableJson(process);
  return process !== undefined && resources.some(isSame);
}

async function openingOf(
  { state, seq }: { readonly state: State; readonly seq: number },
  takenBack: readonly KeptResource[],
  options: ContinueOptions,
  { clock, agent, lease, signal }: Reopening,
): Promise<Opening> {
  const { runId, journal, answers = [], acceptChangedTools = false } = options;
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
  const newer = resumable && changes.length === 0 ? newerTools(had, tools) : undefined;
  if (newer) accepted.push(...acceptedTools(state, newer));
  if (program) accepted.push(program);
  if (state.resources) accepted.push(...(await killSurvivors(state, takenBack, options)));
  const died = lease?.takenOver && !(await haveChildrenProgressed(journal, state, state.at)) && { died: true as const };
  const started = startedEffects(state);
  const lost = started.map((effect): Event => ({
    type: 'effect-lost',
    at,
    effect,
    cause: 'restart',
    ...died,
  }));
  const rejudged = resumable && !options.signal?.aborted ? await judgedHere(state, { options, signal }, at) : [];
  accepted.push(...rejudged);
  const current = rejudged.reduce((before, event) => step(before, event).state, state);
  const examine = answers.length === 0 ? undefined : answerExaminer(options, clock, signal);
  const { events: answered, childAnswers } = await answerEvents(current, answers, {
    ...options,
    clock,
    ...(examine && { examine }),
  });
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
    takenBack,
  };
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

/** Ends the processes that the last driver of the run left behind, except those that were kept for it. Those of the original of a fork are not its own. */
async function killSurvivors(
  { resources = [], runId, at }: State,
  takenBack: readonly KeptResource[],
  { killProcess }: ContinueOptions,
): Promise<readonly Event[]> {
  const gone: Event[] = [];
  for (const { runId: owner, name, process } of resources) {
    if (takenBack.some((one) => one.name === name)) continue;
    if (owner === runId && (await killProcess?.(process))) gone.push({ type: 'resource-closed', at, name });
  }
  return gone;
}

/**
 * Cancels the open child runs of a run that was stopped, at every depth. They may still be open if the process died right
 * after the cancel. If one cannot be cancelled, the others are, and then the first error is thrown.
 */
export async function cancelDescendants(
  parent: string,
  parts: Pick<ContinueOptions, 'journal' | 'model' | 'clock' | 'killProcess'>,
  run: typeof runLoop,
  visited: Set<string> = new Set([parent]),
): Promise<void> {
  const { journal } = parts;
  if (!('list' in journal)) return;
  const errors: unknown[] = [];
  for (const { runId, status } of await childRuns(journal as RunStore, parent)) {
    if (visited.has(runId)) continue;
    visited.add(runId);
    const open = status === 'running' || status === 'paused';
    try {
      // Reopening a run that was stopped also cancels its own child runs.
      if (open) await run({ ...parts, runId, acceptChangedTools: true, signal: AbortSignal.abort() });
      else await cancelDescendants(runId, parts, run, visited);
    } catch (error) {
      errors.push(error);
    }
  }
  if (errors.length > 0) throw errors[0];
}

/** Tells the tools of these calls that their run has ended: each is called again with an aborted signal. */
export async function cancelOrphans(context: RunContext, orphans: readonly Orphan[]): Promise<void> {
  await Promise.allSettled(orphans.map((orphan) => cancelOrphan(context, orphan)));
}

async function cancelOrphan(context: RunContext, { call, parked }: Orphan): Promise<void> {
  const tool = executorOf(context, call.name, call.turn);
  const verify = parked && tool?.verify;
  if (tool?.share === undefined && !verify) return;
  const { runId, options, opening, clock } = context;
  const effect: CallEffect = { type: 'call-tool', id: toolEffectId(call), call };
  const { input, check } = await checkedCall(context, call);
  if (check.problem !== undefined) return;
  const told: ToolContext = {
    signal: AbortSignal.abort(),
    key: `${runId}/${effect.id}`,
    lease: context.lease?.token,
    report: ignore,
    context: options.context,
    principal: opening.principal,
    ask: refuseUse,
    hold: refuseUse,
    offer: refuseUse,
  };
  await Promise.allSettled([
    tool!.share !== undefined &&
      tool!.execute!(input, { ...told, run: { ...callingRun(context, effect), child: 'unknown' } }),
    verify && atMost(CANCEL_MS, clock, async () => verify(input, { ...told, parked })),
  ]);
}

/** The run does not wait longer for a tool that does not notice the signal. */
const CANCEL_MS = 10_000;

async function atMost(ms: number, clock: Clock, work: () => Promise<unknown>): Promise<void> {
  const over = Promise.withResolvers<void>();
  const cancelTimer = clock.timer(ms, over.resolve);
  try {
    await Promise.race([work(), over.promise]);
  } finally {
    cancelTimer();
  }
}

function refuseUse(): Promise<never> {
  return Promise.reject(new Error('A call that is cancelled can neither ask, hold a resource nor offer tools.'));
}

/** The current tools, also in place of a change that waits for the next turn. */
function acceptedTools({ at, nextTools }: State, tools: readonly ToolFacts[]): Event[] {
  const accepted: Event = { type: 'tools-changed', at, tools };
  return nextTools ? [accepted, { ...accepted, from: 'next-turn' }] : [accepted];
}

export interface Reopening {
  readonly clock: Clock;
  readonly agent: AgentRules | undefined;
  readonly lease: Lease | undefined;
  /** Aborts when the run is cancelled or detached meanwhile. */
  readonly signal: AbortSignal;
}

/**
 * The events that the run is resumed with another policy, and that open approvals count on promises of a sandbox which do not
 * hold here. Its calls are checked again with the code of this process.
 */
async function judgedHere(
  state: State,
  { options, signal }: { readonly options: ContinueOptions; readonly signal: AbortSignal },
  at: number,
): Promise<readonly Event[]> {
  const judging = { state, options, ...codeOf(state, options), signal };
  const changed = await policyChange(judging, at);
  if (!changed) return rejudgedAsks(judging);
  return [changed, ...(await rejudgedAsks({ ...judging, state: step(state, changed).state }))];
}

/** The tools of this process, for calls of another one. */
function codeOf(state: State, options: ContinueOptions): Pick<Judging, 'executor' | 'checked'> {
  const tools = toolsByName(agentNamed(options, state.handedTo)?.tools ?? []);
  const executor = ({ name }: Call): Tool | undefined => tools.get(name);
  const run = { runId: state.runId, blobs: blobsOf(options.journal), options };
  const checked = (call: Call): Checked | Promise<Checked> => recheckedCall(executor(call), call, run);
  return { executor, checked };
}

/** Examines the answers to a paused run. */
function answerExaminer(
  options: ContinueOptions,
  clock: Clock,
  signal: AbortSignal,
): NonNullable<Admission['examine']> {
  return (state, event) => {
    const { executor, checked } = codeOf(state, options);
    if (!needsExamining(options, executor(slotFor(state, event.effect)!.call))) return undefined;
    const { runId, principal, rules } = state;
    const run = { runId, options, principal, clock, timeoutMs: rules.toolTimeoutMs, signal };
    return examineAnswer(run, { state, executor, checked }, event);
  };
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
    const remedy = 'Pass it to start a run, or pass runId and journal to resume one.';
    throw new TreadleError('invalid-options', `There is no input. ${remedy}`);
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

function missingTools(had: readonly ToolFacts[], tools: readonly Tool[]): readonly ToolFacts[] {
  return had.filter((facts) => !isReadResult(facts) && !tools.some(({ name }) => name === facts.name));
}

/**
 * The tools of the run, if the current code requires approvals for some that it did not record, or if some have another
 * fingerprint or other parameters that allow the same calls. Those are recorded as they are now.
 */
function newerTools(had: readonly ToolFacts[], tools: readonly Tool[]): readonly ToolFacts[] | undefined {
  const now = new Map(tools.map((tool) => [tool.name, factsOf(tool)]));
  const current = had.map((facts): ToolFacts => {
    const tool = now.get(facts.name);
    if (!tool) return facts;
    const isOther =
      tool.fingerprint !== facts.fingerprint || stableJson(tool.parameters) !== stableJson(facts.parameters);
    if (isOther) return tool;
    return tool.needsApproval && !facts.needsApproval ? { ...facts, needsApproval: true } : facts;
  });
  return current.some((facts, index) => facts !== had[index]) ? current : undefined;
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
      const changed = [
        ...(allowsAsBefore(facts.parameters, current.parameters) ? [] : ['parameters']),
        ...(facts.effect === current.effect ? [] : ['effect']),
        ...(facts.client === current.client ? [] : ['client']),
      ];
      const change = `"${facts.name}" has a different ${changed.join(' and ')}`;
      return changed.length === 0 ? [] : { facts, change };
    });
}

/**
 * Whether a schema allows every value that an earlier one allowed, with the same meaning. Texts for people and models do not count.
 * A property may be new if nobody could give it before, and if no default says what its absence means now.
 */
function allowsAsBefore(had: unknown, now: unknown): boolean {
  if (!isRecord(had) || !isRecord(now)) return stableJson(had) === stableJson(now);
  const [before, after] = [partsOf(had), partsOf(now)];
  if (stableJson(before.rest) !== stableJson(after.rest)) return false;
  const isClosed = had.additionalProperties === false && had.patternProperties === undefined;
  const mayBeNew = (schema: unknown): boolean => isClosed && isRecord(schema) && schema.default === undefined;
  return (
    allowsAsBefore(before.items, after.items) &&
    Object.keys(before.properties).every((name) => Object.hasOwn(after.properties, name)) &&
    Object.entries(after.properties).every(([name, schema]) =>
      Object.hasOwn(before.properties, name) ? allowsAsBefore(before.properties[name], schema) : mayBeNew(schema),
    )
  );
}

/** Keywords that say nothing about values. */
const NOTES = new Set(['description', 'title', 'examples', '$comment']);

/** What is compared by itself, and the rest of a schema without notes. */
function partsOf({ properties, items, required, ...others }: Readonly<Record<string, unknown>>): {
  readonly properties: Readonly<Record<string, unknown>>;
  readonly items: unknown;
  readonly rest: unknown;
} {
  const rest = Object.entries(others).filter(([keyword]) => !NOTES.has(keyword));
  return {
    properties: isRecord(properties) ? properties : {},
    items,
    rest: { ...Object.fromEntries(rest), required: Array.isArray(required) ? required.toSorted() : required },
  };
}

function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

import { messageOf } from '../errors.ts';
import type { Journal, Blobs, Lease } from '../journal/port.ts';
import { partOf, type Item } from '../journal/items.ts';
import { arePromised } from '../machine/approvals.ts';
import { memoryOf, slotFor, toolEffectId, type Effect } from '../machine/effects.ts';
import type { CallCheck, Event, RecordedVerdict, SettledResult } from '../machine/events.ts';
import type { CheckedOutput } from '../machine/finish/finish.ts';
import { isReadResult, isWithinNarrowing, narrowingSource, rulesOfNarrowings } from '../machine/narrowing.ts';
import { parkingOf } from '../machine/parking.ts';
import type { AgentRules, Handoff, Memory } from '../machine/rules.ts';
import type { Call, State } from '../machine/state.ts';
import { isPlain } from '../plain.ts';
import type { Clock } from '../platform.ts';
import { Broken, Parked, errorResult, truncateResult, isTooLong } from '../tools/result.ts';
import {
  executeTool,
  verifyTool,
  type CallHost,
  type Checked,
  type Execution,
  type Remembered,
  type Running,
  type Settled,
  checkWithin,
} from '../tools/execute.ts';
import {
  factsOf,
  memoryKeysOf,
  promisesOf,
  timeoutOf,
  toolsByName,
  type CallingRun,
  type Tool,
} from '../tools/tool.ts';
import { callModel, changeExecutors, executorOf, ignore, recheckedCall, withExecutor } from './call-model.ts';
import { agentNamed, handoffFacts } from './handoff.ts';
import { currentTools, readStart, type Opening } from './open.ts';
import type { Answer, KeptResources, RunOptions } from './options.ts';
import type { performWithinBudget } from './spend.ts';
import type { TracedRun } from './tracing.ts';

/** What the effects of one run are performed with. */
export interface RunContext {
  readonly runId: string;
  readonly options: RunOptions;
  readonly opening: Opening;
  /** The executors of the tools. `executorOf` finds the one for a call. */
  tools: ReadonlyMap<string, Tool>;
  /** The executors for the turns after `turn`, if the tools were changed. */
  changedTools: { readonly tools: ReadonlyMap<string, Tool>; readonly turn: number } | undefined;
  readonly journal: Journal;
  readonly lease: Lease | undefined;
  /** Undefined: results that are too long are cut. */
  readonly blobs: Blobs | undefined;
  /** Pages through long results; one of `tools`. Present if there are blobs. */
  readonly readResult: Tool | undefined;
  readonly clock: Clock;
  readonly agent: AgentCode | undefined;
  /** Present if the run has a ledger. */
  readonly withinBudget: typeof performWithinBudget | undefined;
  /** Present if spans are made of the run. */
  readonly traced: TracedRun | undefined;
  /** Undefined if the run has no listener. */
  readonly emit: ((item: Item) => unknown) | undefined;
  /** Aborts everything in progress. */
  readonly controller: AbortController;
  /** Child runs in progress. */
  readonly children: Set<Promise<unknown>>;
  /** Called once, when the first entries that this process appends are durable. No effect starts before it resolves. */
  readonly onStored: (() => Promise<unknown>) | undefined;
  /** How to abort each running tool, and each tool that is a child run. */
  readonly runningTools: Set<(reason?: unknown) => void>;
  readonly runningChildren: Set<(reason?: unknown) => void>;
  /** What the tools of the run may use while they run. */
  readonly host: CallHost;
  /** Tools that have asked questions, by the id of their effect. Undefined: none has. */
  asking: Map<string, AskingTool> | undefined;
  /** The resources that tools hold. Undefined: none does. */
  held: HeldResources | undefined;
  /** The checked calls of the last reply, with the inputs that their tools get. After a restart they are checked again. */
  lastReply: { readonly turn: number; readonly checked: readonly Checked[] };
  readonly state: () => State;
  /** How long the run has been active by now. */
  readonly activeMs: () => number;
  /** Applies an event, if it applies. Resolves when it is durable. */
  readonly record: (event: Event) => Promise<unknown>;
  /** Stops driving the run, because something it depends on failed. */
  readonly fail: (error: unknown) => void;
}

/** A running tool that has asked questions. */
export interface AskingTool {
  /** Gives the tool the answers. */
  readonly continue: () => void;
  /** The tool has ended. */
  readonly end: () => void;
}

/** The resources of a run. */
export interface HeldResources {
  /** A call does not use them any more. */
  readonly callEnded: (execution: Execution) => void;
  /** Passes them on, or closes them. Never rejects. */
  readonly endRun: (kept: KeptResources | undefined, isPaused: boolean) => Promise<void>;
}

/** The code of a typed agent. */
export interface AgentCode {
  readonly rules: AgentRules;
  /** Validates an output against the schema and the validators. Never rejects. */
  readonly check: (proposed: ProposedOutput) => Promise<CheckedOutput>;
}

/** An output to be checked. */
export interface ProposedOutput {
  /** As JSON. */
  readonly text: string;
  readonly attempt: number;
  /** The rules that the run was started with. */
  readonly rules: AgentRules;
  readonly signal: AbortSignal;
}

/** Passes the event that settles an effect to the shell. */
export type Settle = (event: Event) => void;

export type EffectOf<Type extends Effect['type']> = Extract<Effect, { type: Type }>;

type EventOf<Type extends Event['type']> = Extract<Event, { type: Type }>;

/**
 * Starts an effect. Calls `settle` with the event that settles it, synchronously or later, unless it is aborted.
 * Approvals and calls of client tools are settled by answers, so there is nothing to start.
 */
export function performEffect(context: RunContext, effect: Effect, settle: Settle): void {
  switch (effect.type) {
    case 'call-model':
      return callModel(context, effect, settle);
    case 'prepare-turn':
    case 'compact-history':
    case 'check-guardrails':
    case 'validate-output':
      return performBetweenTurns(context, effect, settle);
    case 'judge-calls':
      return judgeTurn(context, effect, settle);
    case 'call-tool':
    case 'verify-tool':
      return runTool(context, effect, settle);
    case 'ask-approval':
    case 'await-client':
      return;
    default:
      effect satisfies never;
  }
}

/** Code that few runs need is loaded when it is first called. That call does nothing if the run is stopped meanwhile. */
function loadedLater<Args extends readonly unknown[]>(
  load: () => Promise<(context: RunContext, ...args: Args) => void>,
): (context: RunContext, ...args: Args) => void {
  let loaded: Awaited<ReturnType<typeof load>> | undefined;
  return (context, ...args) => {
    if (loaded) return loaded(context, ...args);
    const callLoaded = (made: NonNullable<typeof loaded>): void => {
      loaded = made;
      if (!context.controller.signal.aborted) made(context, ...args);
    };
    load().then(callLoaded).catch(context.fail);
  };
}

const performBetweenTurns = loadedLater(async () => (await import('./between-turns.ts')).performBetweenTurns);

/** Aborts everything in progress, except child runs. */
export function abortEffects({ controller, runningTools }: RunContext, reason?: unknown): void {
  controller.abort(reason);
  for (const abort of runningTools) abort(reason);
}

export function abortChildren({ runningChildren }: RunContext, reason?: unknown): void {
  for (const abort of runningChildren) abort(reason);
}

export function checkedCall(context: RunContext, call: Call): Checked | Promise<Checked> {
  const { lastReply } = context;
  if (lastReply.turn === call.turn) return lastReply.checked[call.index]!;
  const tool = executorOf(context, call.name, call.turn);
  const check = recheckedCall(tool, call, context);
  const { clock, opening } = context;
  const { toolTimeoutMs } = opening.rules;
  return check instanceof Promise ? checkWithin(check, tool!, { clock, toolTimeoutMs }) : check;
}

/* Tools */

export type CallEffect = EffectOf<'call-tool' | 'verify-tool'>;

/** Runs a tool, or verifies a call that was lost. A tool that waits for answers in this process continues. */
function runTool(context: RunContext, effect: CallEffect, settle: Settle): void {
  const asking = context.asking?.get(effect.id);
  if (asking) return asking.continue();
  const tool = executorOf(context, effect.call.name, effect.call.turn);
  if (!tool?.execute) {
    const problem = `The tool "${effect.call.name}" is not available in this process.`;
    return settleUncallable(context, effect, errorResult(problem, { errorType: 'not_found' }), settle);
  }
  if (context.state().narrowed && !mayStart(context, tool)) {
    const problem = `The run is narrowed, and may not call "${tool.name}".`;
    return settleUncallable(context, effect, errorResult(problem, { errorType: 'permission_denied' }), settle);
  }
  const checked = checkedCall(context, effect.call);
  if (!(checked instanceof Promise)) return runCheckedTool(context, effect, tool, checked, settle);
  // The check may have taken long, so the lease is confirmed again.
  void checked
    .then(async (done) => {
      await context.lease?.confirm?.();
      runCheckedTool(context, effect, tool, done, settle);
    })
    .catch(context.fail);
}

/** Checks the narrowing again where the tool starts, for what this process has. Only the loop's own tool pages through results. */
function mayStart(context: RunContext, tool: Tool): boolean {
  const facts = factsOf(tool);
  const tools = isReadResult(facts) && tool !== context.readResult ? [] : [facts];
  return isWithinNarrowing({ ...context.state(), tools }, tool.name);
}

function runCheckedTool(
  context: RunContext,
  effect: CallEffect,
  tool: Tool,
  { check, input }: Checked,
  settle: Settle,
): void {
  const { runId, clock, emit, options, opening } = context;
  const { call } = effect;
  if (context.controller.signal.aborted) return;
  if (check.problem !== undefined) {
    const problem = `The tool "${tool.name}" was not called. ${check.problem}`;
    return settleUncallable(context, effect, errorResult(problem, { errorType: 'invalid_params' }), settle);
  }
  // It does not start by a verdict that counts on what does not hold here.
  if (call.sandbox && effect.type === 'call-tool' && !arePromised(call.sandbox, promisesOf(tool, input))) {
    return judgeAgain(context, effect, settle);
  }
  const remembered = tool.remembers && rememberedFor(tool.remembers, check, context.state());
  const execution: Execution = {
    tool,
    input,
    key: `${runId}/${effect.type === 'call-tool' ? effect.id : toolEffectId(call)}`,
    matchPattern: options.matchPattern,
    host: context.host,
    resumedAt: undefined,
    lease: context.lease?.token,
    timeoutMs: timeoutOf(tool, input) ?? opening.rules.toolTimeoutMs,
    clock,
    // Filters see only results, so progress is held back.
    report: emit && !options.resultFilters?.length ? reportTo(emit, call) : ignore,
    context: options.context,
    principal: opening.principal,
    run: tool.share === undefined && !tool.usesRun ? undefined : callingRun(context, effect),
    remembered,
    memory: remembered && copyMemory(remembered.before),
    narrowedBy: context.state().narrowed?.map(narrowingSource),
    narrowedRules: rulesOfNarrowings(context.state().narrowed),
    parked: opening.seq > 0 ? parkingFor(context, effect) : undefined,
    recipient: call.recipient,
  };
  const running = effect.type === 'verify-tool' ? verifyTool(execution) : executeTool(execution);
  if (running.result instanceof Promise) settleLater(context, effect, execution, running, settle);
  else settleTool(context, effect, running.result, settle, execution);
}

/*
 * `runCheckedTool` itself has no closures: V8 would allocate the variables that they use for every call, also for calls that
 * need none of them.
 */

function judgeAgain(context: RunContext, { id, call }: CallEffect, settle: Settle): void {
  judgeTogether(context, [call], ([verdict]) =>
    settle({ type: 'call-rejudged', at: context.clock.now(), effect: id, ...(verdict && { verdict }) }),
  );
}

function reportTo(emit: NonNullable<RunContext['emit']>, call: Call): Execution['report'] {
  return (progress) => emit({ type: 'tool-report', call: partOf(call), progress });
}

function settleLater(
  context: RunContext,
  effect: CallEffect,
  execution: Execution,
  { result, abort }: Running,
  settle: Settle,
): void {
  const { controller, runningTools, runningChildren } = context;
  if (controller.signal.aborted) abort(controller.signal.reason);
  const running = execution.tool.share === undefined ? runningTools : runningChildren;
  running.add(abort);
  void (result as Promise<Settled>).then((settled) => {
    running.delete(abort);
    context.asking?.get(effect.id)?.end();
    context.held?.callEnded(execution);
    settleTool(context, effect, settled, settle, execution);
  });
}

/** Adds the agent that a successful call hands the run over to. */
function withHandoffTo(context: RunContext, tool: Tool, result: Settled): Settled {
  const { options } = context;
  const { handsTo } = tool;
  if (handsTo === undefined || !('type' in result) || result.type !== 'result' || result.isError) return result;
  const { tools = [] } = agentNamed(options, handsTo)!;
  try {
    return { ...result, handoff: handoffFacts(options, handsTo, currentTools(context.state(), tools)) };
  } catch (thrown) {
    return errorResult(`The tool "${tool.name}" failed: ${messageOf(thrown)}`);
  }
}

/** Uses the tools of the agent that an event hands the run over to, after this turn. */
export function changeToAgent(context: RunContext, { agent }: Pick<Handoff, 'agent'>, turn: number): void {
  const { tools = [] } = agentNamed(context.options, agent) ?? {};
  changeExecutors(context, withExecutor(toolsByName(tools), context.readResult), turn);
}

/** `executed`: the tool, if it was called. Its result has the memory that it changed, and the agent that it hands over to. */
function settleTool(
  context: RunContext,
  effect: CallEffect,
  returned: Settled,
  settle: Settle,
  executed?: Execution,
): void {
  let result = returned;
  if (executed?.remembered) result = withChangedMemory(executed.remembered, executed, result);
  if (executed?.tool.handsTo) result = withHandoffTo(context, executed.tool, result);
  if (result instanceof Broken) return context.fail(result.error);
  if (result instanceof Parked) {
    const { id } = effect;
    const at = context.clock.now();
    const { on, waiting } = result;
    return settle({ type: 'tool-parked', at, effect: id, on, waiting, ...timesOf(context, id, result, at) });
  }
  if (result.type === 'result' && (result.exposes || needsExamining(context.options, executed?.tool))) {
    return recordExamined(context, effect, result, settle, executed);
  }
  recordResult(context, effect.id, result, settle);
}

/** Whether the result of a call is examined before it is recorded. */
export function needsExamining({ resultFilters }: Pick<RunOptions, 'resultFilters'>, tool?: Tool): unknown {
  return resultFilters?.length || tool?.touches || tool?.exposes;
}

function recordExamined(
  context: RunContext,
  { id, call }: CallEffect,
  result: Extract<SettledResult, { type: 'result' }>,
  settle: Settle,
  executed: Execution | undefined,
): void {
  examineLater(context, call, executed, result, (examined) => recordResult(context, id, examined, settle));
}

/** A program whose tools touch nothing, and without filters, does not load it. */
const examineLater = loadedLater(async () => (await import('./examine.ts')).examineCall);

/** Records a result. One that is too long is stored, or cut. */
function recordResult(context: RunContext, id: string, result: SettledResult, settle: Settle): void {
  const { clock, opening, blobs } = context;
  const { maxResultChars } = opening.rules;
  const at = clock.now();
  const cut = truncateResult(result, maxResultChars);
  if (cut !== result && (opening.rules.references || blobs) && isTooLong(result, maxResultChars)) {
    return recordLong(context, id, result, settle);
  }
  settle({ type: 'tool-settled', at, effect: id, result: cut });
}

const recordLong = loadedLater(async () => {
  const long = await import('./long-results.ts');
  return (context, ...given: [id: string, result: SettledResult, settle: Settle]) =>
    void long.recordLong(context, ...given).catch(context.fail);
});

/** What the call was parked with before this process. */
function parkingFor({ state }: RunContext, { id }: Pick<CallEffect, 'id'>): Execution['parked'] {
  const slot = slotFor(state(), id);
  return slot && parkingOf(slot).parked;
}

/** When a parked call fails and when its tool is asked again, for the journal. */
function timesOf(
  context: RunContext,
  id: string,
  { until: { expiresAt, ttlMs, wakeAt } }: Parked,
  at: number,
): Pick<EventOf<'tool-parked'>, 'expiresAt' | 'wakeAt'> {
  const first = ttlMs === undefined ? undefined : (parkingFor(context, { id })?.expiresAt ?? at + ttlMs);
  const deadline = expiresAt ?? first;
  return { ...(deadline !== undefined && { expiresAt: deadline }), ...(wakeAt !== undefined && { wakeAt }) };
}

/** A call that cannot be made is an error; a verification that cannot be made leaves the effect unknown. */
function settleUncallable(context: RunContext, effect: CallEffect, error: SettledResult, settle: Settle): void {
  settleTool(context, effect, effect.type === 'verify-tool' ? { type: 'unknown' } : error, settle);
}

const NO_ANSWERS: readonly Answer[] = [];

export function callingRun(context: RunContext, { id, call }: CallEffect): CallingRun {
  const { runId, journal, clock, opening, options, children } = context;
  const slot = slotFor(context.state(), id);
  const { narrowed } = context.state();
  const begun = slot?.type === 'running' && slot.begun === true;
  return {
    runId,
    effect: toolEffectId(call),
    journal,
    clock,
    limits: call.limits ?? {},
    narrowed,
    options,
    state: context.state,
    started: () => {
      const [first] = opening.events;
      return first?.type === 'run-started' ? first : readStart(context.journal, context.runId);
    },
    traceparent: () => context.traced?.traceparent(id),
    answers: opening.childAnswers.get(id) ?? NO_ANSWERS,
    child: begun ? 'begun' : opening.repeated.has(id) ? 'unknown' : 'new',
    childStarted: () => context.record({ type: 'child-started', at: clock.now(), effect: id }),
    waitFor(child) {
      children.add(child);
      void child.finally(() => children.delete(child));
    },
  };
}

/** The part of the memory that a call gets: the keys that its tool remembers. */
function rememberedFor(remembers: NonNullable<Tool['remembers']>, check: CallCheck, state: State): Remembered {
  const keys = typeof remembers === 'function' ? memoryKeysOf(check) : remembers;
  const memory = memoryOf(state) ?? {};
  const before = keys.flatMap((key) => (Object.hasOwn(memory, key) ? [[key, memory[key]]] : []));
  return { keys, before: Object.fromEntries(before) };
}

/** A copy, which the tool edits. */
function copyMemory(memory: Memory): Record<string, unknown> {
  return JSON.parse(JSON.stringify(memory)) as Record<string, unknown>;
}

/**
 * Adds the keys of the memory that a call changed to its result, as plain JSON, so that they survive a crash. Keys that it
 * did not change are left out, because another call may have changed them in the meantime.
 */
function withChangedMemory({ keys, before }: Remembered, { tool, memory }: Execution, result: Settled): Settled {
  if (!memory || !('type' in result) || result.type !== 'result' || result.isError) return result;
  try {
    if (!isPlain(memory)) throw new Error('it contains a value that JSON cannot represent, such as a Date or a Set');
    const unknown = Object.keys(memory).find((key) => !keys.includes(key));
    if (unknown !== undefined) throw new Error(`the tool does not remember "${unknown}". Add the key to "remembers"`);
    const changed = keys.flatMap((key): [string, unknown][] => {
      const now = JSON.stringify(memory[key] ?? null);
      return now === JSON.stringify(before[key] ?? null) ? [] : [[key, JSON.parse(now)]];
    });
    return changed.length === 0 ? result : { ...result, memory: Object.fromEntries(changed) };
  } catch (thrown) {
    return errorResult(`What the tool "${tool.name}" remembers cannot be stored: ${messageOf(thrown)}`);
  }
}

/* Policy */

function judgeTurn(context: RunContext, { id, calls }: EffectOf<'judge-calls'>, settle: Settle): void {
  judgeTogether(context, calls, (verdicts) =>
    settle({ type: 'calls-judged', at: context.clock.now(), effect: id, verdicts }),
  );
}

/** A program without a policy and approvals does not load it. */
const judgeTogether = loadedLater(async () => {
  const { judgeInRun } = await import('./judge.ts');
  return (context, calls: readonly Call[], settle: (verdicts: readonly RecordedVerdict[]) => void) =>
    judgeInRun(context, calls, { checkedCall, settle });
});

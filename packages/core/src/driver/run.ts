import { messageOf, outcomeProblem, pauseProblem, RunError, TreadleError } from '../errors.ts';
import type { Item } from '../journal/items.ts';
import { memoryJournal } from '../journal/memory.ts';
import type { Lease } from '../journal/port.ts';
import { carriedFrom, isPaused, slotFor, waiting } from '../machine/effects.ts';
import type { Event } from '../machine/events.ts';
import { messagesOf } from '../machine/history.ts';
import { wakeAtOf } from '../machine/parking.ts';
import { questionsOf } from '../machine/questions.ts';
import { exposureElsewhere, inputExposure } from '../machine/exposure.ts';
import type { State } from '../machine/state.ts';
import { fits, NEW, toolsUsed } from '../machine/step.ts';
import { textOf } from '../messages.ts';
import { newRunId, systemClock, type Clock } from '../platform.ts';
import { readResultName, readResultTool } from '../tools/read-result.ts';
import { checkOptions, checkSettings } from '../known-options.ts';
import { duplicateTool, toolsByName, type Tool } from '../tools/tool.ts';
import type { OutputOf, Schema } from '../tools/schema.ts';
import { answerEvent, malformedAnswer, recordedAnswer, type Admission } from './answer.ts';
import { blobsOf, changeExecutors, executorOf, withExecutor } from './call-model.ts';
import { agentNamed, checkAgents, toolNames, withHandoffAgents } from './handoff.ts';
import {
  checkAutoResume,
  currentTools,
  inputMessages,
  openRun,
  requireModel,
  requirePrices,
  RUN_OPTIONS,
  type Opening,
} from './open.ts';
import type { Reopening } from './reopen.ts';
import type {
  Answer,
  CompletedRun,
  ContinueOptions,
  KeptResources,
  LiveRun,
  LoopOptions,
  LoopResult,
  RunOptions,
  StartedRun,
} from './options.ts';
import {
  changeToAgent,
  checkedCall,
  needsExamining,
  type AgentCode,
  type HeldResources,
  type RunContext,
} from './perform.ts';
import { DETACHED, startShell, type Listener, type Shell } from './shell.ts';
import { itemStream } from './stream.ts';

/** Drives a run until it ends or pauses. Rejects for misuse and if the journal fails; other failures are in the result. */
export async function runLoop<const S extends Schema>(options: RunOptions<S>): Promise<LoopResult<OutputOf<S>>> {
  return driveRun(options, listenerOf(options)).result as Promise<LoopResult<OutputOf<S>>>;
}

/** The same run, with its items as they happen. Throws for misuse; a run that cannot be resumed rejects `result`. */
export function streamLoop(options: RunOptions): LiveRun {
  const items = itemStream(() => live.cancel());
  const listener = listenerOf(options);
  const live = driveRun(options, (item) => {
    items.push(item);
    return listener?.(item);
  });
  live.result.then(() => items.close(), items.close);
  return { ...live, [Symbol.asyncIterator]: () => items[Symbol.asyncIterator]() };
}

/** The same run for callers that use only `onItem`: it accepts input and answers, and stores no items. Throws for misuse. */
export function startLoop(options: RunOptions): StartedRun {
  return driveRun(options, listenerOf(options));
}

/** Ignores errors thrown by a listener, so that they do not reach the loop. */
export function guardListener(listener: NonNullable<LoopOptions['onItem']>): (item: Item) => unknown {
  return (item) => {
    try {
      const returned: unknown = listener(item);
      if (returned instanceof Promise) return returned.then(ignoreSettled, ignoreSettled);
    } catch {}
    return undefined;
  };
}

function ignoreSettled(): void {}

type Hooks = Pick<LoopOptions, 'onItem' | 'onTurnStart' | 'onToolCall' | 'onToolResult'>;

/** `onItem` and the hooks as one listener; undefined if there are none. */
export function listenerOf(options: Hooks | undefined): ((item: Item) => unknown) | undefined {
  const { onItem, onTurnStart, onToolCall, onToolResult } = options ?? {};
  const listener = onItem && guardListener(onItem);
  if (!onTurnStart && !onToolCall && !onToolResult) return listener;
  const hook = guardListener((item) => {
    if (item.type === 'turn-started') return onTurnStart?.(item);
    if (item.type === 'call-started') return onToolCall?.(item);
    return item.type === 'call-answered' ? onToolResult?.(item) : undefined;
  });
  return (item) => {
    void hook(item);
    return listener?.(item);
  };
}

/** Throws if a value passed as a signal is not an AbortSignal. */
export function checkSignal(signal: AbortSignal | undefined): void {
  if (signal === undefined || typeof signal?.addEventListener === 'function') return;
  throw new TreadleError('invalid-options', 'The signal is not an AbortSignal. Pass the signal of an AbortController.');
}

/** What only other parts of the core pass to a run. */
interface DriveOptions {
  /** The code of the typed agent whose run it is. */
  readonly agent?: AgentCode;
  readonly onStored?: RunContext['onStored'];
}

/** Starts to drive a run. Throws for misuse. */
export function driveRun(
  given: RunOptions,
  listener: Listener | undefined,
  { agent, onStored }: DriveOptions = {},
): StartedRun {
  checkOptions('A run', given ?? {}, RUN_OPTIONS);
  requireModel(given?.model);
  given.models?.forEach(requireModel);
  checkSettings('A run', (given as LoopOptions).settings);
  const { agents, tools: offered = [] } = given;
  const isHandedOver = agents !== undefined || (Array.isArray(offered) && offered.some((one) => one?.handsTo));
  const options = isHandedOver ? withHandoffAgents(given) : given;
  const { signal, clock = systemClock } = options;
  checkSignal(signal);
  if (options.journal && !options.journal.append) {
    throw new TreadleError('invalid-options', 'The journal is not one. Pass memoryJournal() or sqliteStore(path).');
  }
  if (options.policy && typeof options.policy.judge !== 'function') {
    throw new TreadleError('invalid-options', 'The policy has no "judge". Pass policy(rules) of @treadle/core/policy.');
  }
  if (options.resultFilters?.some((one) => !one?.name || typeof one.filter !== 'function')) {
    throw new TreadleError('invalid-options', 'A result filter lacks "name" or "filter".');
  }
  if (options.holdIdleMs !== undefined && !(options.holdIdleMs >= 0)) {
    const given = String(options.holdIdleMs);
    throw new TreadleError('invalid-options', `holdIdleMs is ${given}. Use a number of at least 0, or omit it.`);
  }
  const tools = toolsByName(options.tools ?? []);
  const isAuto = options.resume !== undefined;
  if (isAuto) checkAutoResume(options);
  if (isHandedOver) checkAgents(options);
  const runId = options.runId ?? newRunId();
  let opened = 'input' in options ? openRun(options, runId, clock, agent?.rules) : undefined;
  /** Aborts everything in progress. */
  const controller = new AbortController();
  let shell: Shell | undefined;
  let ended = false;
  let detached = false;
  let context: RunContext | undefined;
  /** What was asked for before the run has started. It is done when the run starts, before any effect. */
  const early: (() => void)[] = [];
  /** Does something with a run that has started; resolves to false if it never starts, or rejects if it cannot. */
  const whenStarted = async (act: (started: Shell) => Promise<boolean>): Promise<boolean> => {
    if (shell) return act(shell);
    if (ended || detached) return false;
    let done: Promise<boolean> | undefined;
    const started = new Promise<void>((resolve) => early.push(() => resolve(void (done = act(shell!)))));
    await Promise.race([started, result]);
    return done ?? false;
  };
  /** Applies a fact from outside; false if it does not apply. Resolves when it is durable. */
  const record = (event: Event): Promise<boolean> => whenStarted((started) => started.record(event));
  const changeTools = async (changed: readonly Tool[]): Promise<boolean> => {
    const byName = toolsByName(changed);
    return whenStarted(async (started) => {
      const before = started.state();
      const recorded = started.record(toolsChanged(context!, byName, before));
      if (started.state() !== before) changeExecutors(context!, withExecutor(byName, context!.readResult), before.turn);
      return recorded;
    });
  };
  const examine: Admission['examine'] = (state, event) => {
    const { name, turn } = slotFor(state, event.effect)!.call;
    if (!needsExamining(options, executorOf(context!, name, turn))) return undefined;
    return import('./examine.ts').then(({ examineGiven }) => examineGiven(context!, checkedCall, { state, event }));
  };
  const recordAnswer = async (answer: Answer): Promise<void> => {
    const { verifyAnswer } = options;
    const reject = async (error: unknown): Promise<TreadleError> =>
      (await import('./answer-problem.ts')).rejectAnswer(runId, answer, error as TreadleError, { ...options, clock });
    const recorded = await whenStarted(async ({ state, record }) => {
      let event: Event | undefined;
      try {
        const malformed = malformedAnswer(answer);
        if (malformed) throw await malformed;
        const admitted = verifyAnswer
          ? await (await import('./answer-problem.ts')).verifiedAnswer(state(), answer, verifyAnswer)
          : answer;
        const given = answerEvent(state(), admitted, clock.now(), options.matchPattern);
        const examined = given && recordedAnswer(state(), given, examine);
        event = examined instanceof Promise ? await examined : examined;
        // It may have been answered while it was examined.
        if (!event || !fits(state(), event)) throw (await import('./answer-problem.ts')).unfitAnswer(state(), admitted);
      } catch (error) {
        throw await reject(error);
      }
      return record(event);
    });
    if (recorded) return;
    const remedy = 'To resume it, call runLoop with its runId, its journal and the answers.';
    throw await reject(new TreadleError('answer-unfit', `Run "${runId}" is not driven here any more. ${remedy}`));
  };
  const cancel = (): void => {
    const event: Event = { type: 'cancel-requested', at: clock.now() };
    if (shell) return void shell.feed(event);
    controller.abort();
    early.push(() => shell!.feed(event));
  };
  const detach = (): void => {
    detached = true;
    if (shell) shell.detach();
    else controller.abort(DETACHED);
  };
  const onAbort = (): void => (signal!.reason === DETACHED ? detach() : cancel());
  if (signal?.aborted) onAbort();
  signal?.addEventListener('abort', onAbort, { once: true });
  const emit: Listener | undefined =
    listener && ((item, before, after) => (ended ? undefined : listener(item, before, after)));

  async function reopen(reopening: Reopening): Promise<Opening> {
    const { reopenRun } = await import('./reopen.ts');
    return reopenRun(options as ContinueOptions, reopening);
  }

  async function reportPause({ waiting, wakeAt }: LoopResult): Promise<void> {
    void emit?.({ type: 'waiting', waiting, ...(wakeAt !== undefined && { wakeAt }) });
    if (!options.journal) (await import('./pause-warning.ts')).warnOfLostPause(waiting);
  }

  async function drive(): Promise<LoopResult> {
    let cancelDeadline: (() => void) | undefined;
    let lease: Lease | undefined;
    let last: State | undefined;
    try {
      if (detached) return loopResult(runId, NEW);
      // A journal created here is not shared, so it needs no lease.
      lease = await options.journal?.acquire?.(runId);
      // With the lease, so that no other driver can start the run in between.
      if (isAuto && (await (await import('./reopen.ts')).hasStarted(options, opened!, clock))) opened = undefined;
      const schema = opened?.rules.output;
      // Other schemas have code of their own that checks answers.
      if (schema && schema === options.output) {
        const { schemaProblem } = await import('../tools/schema-problem.ts');
        const problem = schemaProblem(schema);
        if (problem) throw new TreadleError('invalid-options', `The output is not a valid JSON Schema: ${problem}.`);
      }
      let opening = opened ?? (await reopen({ clock, agent: agent?.rules, lease, signal: controller.signal }));
      const traced =
        options.tracing &&
        (await (await import('./tracing.ts')).traceRun(options, opening, { runId, journal: options.journal, clock }));
      if (traced && opened) opening = opened = traced.recordTrace(opened);
      const blobs = blobsOf(options.journal);
      const readResult =
        blobs && readResultTool(readResultName(opening.state.tools, toolNames(options)), runId, opening.rules, blobs);
      const withinBudget = options.ledger && (await import('./spend.ts')).performWithinBudget;
      const { handedTo, handoff } = opening.state;
      context = {
        runId,
        options,
        opening,
        tools: withExecutor(handedTo === undefined ? tools : toolsOfAgent(options, handedTo), readResult),
        changedTools: undefined,
        readResult,
        journal: options.journal ?? memoryJournal(),
        lease,
        blobs,
        clock,
        agent,
        withinBudget,
        traced,
        emit,
        controller,
        host: {
          async ask(call, question) {
            const { askPeople } = await import('./questions.ts');
            return askPeople({ context: context!, slotFor }, call, question);
          },
          asked: (key) => questionsOf(slotFor(shell!.state(), key.slice(runId.length + 1))),
          async hold(call, request) {
            const { holdResource } = await import('./resources.ts');
            return holdResource({ context: context!, slotFor, messageOf }, call, request);
          },
          traceparent: traced?.traceparentOfKey,
          offer: async (offered, used) => (await import('./offer.ts')).offerTools(context!, offered, used),
          startRun:
            options.startRun &&
            (async (call, run) =>
              (await import('./start-run.ts')).startRunOfCall(context!, call, run, exposureElsewhere(shell!.state()))),
        },
        asking: undefined,
        held: undefined,
        runningTools: new Set(),
        runningChildren: new Set(),
        children: new Set(),
        onStored,
        lastReply: NO_REPLY,
        state: () => shell!.state(),
        activeMs: () => shell!.activeMs(),
        record: (event) => shell!.record(event),
        fail: (error) => shell!.fail(error),
      };
      let { events } = opening;
      const taken = opened ? options.kept?.take() : opening.takenBack;
      if (taken?.length) {
        const { adoptKept, takeKept } = await import('./resources.ts');
        const run = { context, slotFor, messageOf };
        if (opened) events = takeKept(run, events, taken);
        else adoptKept(run, taken);
      }
      if (handoff) changeToAgent(context, handoff, opening.state.turn);
      shell = startShell(context, emit);
      if (detached) shell.detach();
      shell.begin(events, early);
      const { durationMs } = opening.rules.limits;
      if (durationMs !== undefined) cancelDeadline = watchDeadline(shell, durationMs, clock);
      last = await shell.done;
      // They were aborted, and their cancellation has to be durable before the process may end.
      if (context.children.size > 0) await Promise.allSettled(context.children);
      const { orphans } = shell;
      if (orphans.length > 0) await (await import('./reopen.ts')).cancelOrphans(context, orphans);
      // Also those whose cancellation could not be stored.
      if (wasStopped(last) && (!opened || orphans.length > 0)) {
        const { model, killProcess } = options;
        const parts = { journal: context.journal, model, clock, ...(killProcess && { killProcess }) };
        await (await import('./reopen.ts')).cancelDescendants(runId, parts, runLoop);
      }
      const result = loopResult(runId, last);
      if (isPaused(last)) await reportPause(result);
      return result;
    } finally {
      cancelDeadline?.();
      signal?.removeEventListener('abort', onAbort);
      if (context?.held) await endResources(context.held, options.kept, last);
      context?.traced?.end();
      ended = true;
      if (lease) await lease.release();
    }
  }

  const { onFinish } = options;
  const result = onFinish ? drive().then((ended) => notifyFinish(onFinish, ended)) : drive();
  // The caller may ignore the result; its rejection must not end the process.
  result.catch(() => {});
  return {
    runId,
    result,
    cancel,
    async detach() {
      detach();
      await result.catch(() => {});
    },
    send: (input) =>
      handled(async () => {
        const messages = inputMessages(input);
        const exposes = inputExposure(messages);
        return record({ type: 'input-added', at: clock.now(), messages, ...(exposes && { exposes }) });
      }),
    changeTools: (changed) => handled(async () => changeTools(changed)),
    liftNarrowing: (by, source) =>
      handled(async () => {
        const named = { ...(by !== undefined && { by }), ...(source !== undefined && { source }) };
        return record({ type: 'narrowing-lifted', at: clock.now(), ...named });
      }),
    answer: (answer) => handled(async () => recordAnswer(answer)),
  };
}

/** Errors of the hook are ignored. */
async function notifyFinish(onFinish: NonNullable<LoopOptions['onFinish']>, result: LoopResult): Promise<LoopResult> {
  try {
    await onFinish(result);
  } catch {}
  return result;
}

/** The caller may ignore the promise; its rejection must not end the process. */
function handled<T>(act: () => Promise<T>): Promise<T> {
  const promise = act();
  promise.catch(() => {});
  return promise;
}

function toolsOfAgent(options: RunOptions, name: string): ReadonlyMap<string, Tool> {
  return toolsByName(agentNamed(options, name)?.tools ?? []);
}

/** The event that changes the tools from the next turn on. Throws for misuse. */
function toolsChanged(context: RunContext, tools: ReadonlyMap<string, Tool>, state: State): Event {
  const { opening, options, readResult, clock } = context;
  if (readResult && tools.has(readResult.name))
    throw duplicateTool(readResult.name, 'tools', 'the run itself', 'changeTools');
  const changed = [...tools.values()];
  checkAgents({ ...options, tools: changed });
  const { choice } = state;
  if (typeof choice === 'object' ? !tools.has(choice.tool) : choice === 'required' && tools.size === 0) {
    const what = `The toolChoice of run "${context.runId}" is ${JSON.stringify(choice)}, and no call has satisfied it yet`;
    throw new TreadleError('invalid-options', `${what}. Keep a tool that does.`);
  }
  requirePrices(opening.rules.limits, { ...options, tools: changed });
  return { type: 'tools-changed', at: clock.now(), tools: currentTools(state, changed), from: 'next-turn' };
}

/** Calls at the end of the input are those of turn 0. */
const NO_REPLY: RunContext['lastReply'] = { turn: -1, checked: [] };

/**
 * Whether a cancel, the deadline, a refused budget or a crash loop ended the run. They can end a run whose child runs are in
 * progress.
 */
function wasStopped({ phase }: State): boolean {
  if (phase.type !== 'ended') return false;
  const { outcome } = phase;
  if (outcome.type === 'exhausted') return outcome.limit === 'duration' || outcome.limit === 'budget';
  return outcome.type === 'cancelled' || (outcome.type === 'failed' && outcome.error.code === 'crash-loop');
}

/** Feeds `deadline-passed` when the active time is used up. `step` decides: paused time does not count. */
function watchDeadline({ feed, activeMs }: Shell, durationMs: number, clock: Clock): () => void {
  let cancelTimer = (): void => {};
  const watch = (): void => {
    cancelTimer = clock.timer(Math.max(1, durationMs - activeMs()), () => {
      if (!feed({ type: 'deadline-passed', at: clock.now() })) watch();
    });
  };
  watch();
  return () => cancelTimer();
}

/** The method of results. On their prototype, so that a result is still plain data for copies and comparisons. */
export const RESULT: Pick<LoopResult, 'orThrow'> = {
  orThrow(this: LoopResult) {
    const { runId, outcome } = this;
    const problem = outcome ? outcomeProblem(outcome) : pauseProblem(runId, this.waiting);
    if (problem) throw new RunError(runId, problem, outcome);
    return this as CompletedRun;
  },
};

/** Passes on what tools hold, if the run has ended, or has paused and gets it back. Otherwise closes it. */
function endResources(held: HeldResources, kept: KeptResources | undefined, last: State | undefined): Promise<void> {
  const paused = last !== undefined && isPaused(last) && kept?.takeBack !== undefined;
  return held.endRun(paused || last?.phase.type === 'ended' ? kept : undefined, paused);
}

function loopResult(runId: string, state: State): LoopResult {
  const { phase, usage, turn, calls, activeMs, inputLength, output, agent, memory, handedTo, model } = state;
  const messages = messagesOf(state.history);
  const wakeAt = phase.type === 'ended' ? phase.wakeAt : wakeAtOf(state);
  const carried = carriedFrom(state);
  const last = messages.findLast(({ role }, index) => role === 'assistant' && index >= inputLength);
  // Assigned one by one, which takes a third of the time of `Object.assign`.
  const result = Object.create(RESULT) as { -readonly [Field in keyof LoopResult]: LoopResult[Field] };
  result.runId = runId;
  if (phase.type === 'ended') result.outcome = phase.outcome;
  else if (!isPaused(state)) result.detached = true;
  result.waiting = waiting(state);
  if (wakeAt !== undefined) result.wakeAt = wakeAt;
  result.text = last ? textOf(last.content) : '';
  if (output !== undefined) result.output = output;
  result.messages = messages;
  if (memory) result.memory = memory;
  if (carried) result.carried = carried;
  if (handedTo !== undefined) result.handedTo = handedTo;
  if (agent) result.agent = agent;
  result.model = model;
  result.toolsUsed = toolsUsed(state);
  result.usage = usage;
  result.turns = turn;
  result.calls = calls;
  result.durationMs = activeMs;
  return result;
}

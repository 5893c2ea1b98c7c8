import { systemClock, type Clock } from '../clock.ts';
import { TreadleError } from '../errors.ts';
import { newRunId } from '../ids.ts';
import { memoryJournal } from '../journal/memory.ts';
import type { Lease, RunStore } from '../journal/port.ts';
import { textOf } from '../messages.ts';
import type { OutputOf, Schema } from '../tools/schema.ts';
import { toolsByName } from '../tools/tool.ts';
import { answerEvent } from './answer.ts';
import { saidBy } from './conversation.ts';
import { DETACHED } from './detach.ts';
import { activeMsAt } from './fits.ts';
import { messagesOf } from './history.ts';
import { open, reopen, type Opening } from './opening.ts';
import type { ContinueOptions, LiveRun, LoopOptions, LoopResult, StartedRun } from './options.ts';
import { isPaused, waiting } from './outstanding.ts';
import { readResultTool } from './perform/blobs.ts';
import type { AgentCode, Stage } from './perform/stage.ts';
import { performer } from './perform.ts';
import { shell, type Listener, type Shell } from './shell.ts';
import { NEW } from './step.ts';
import { stream, type Stream } from './stream.ts';
import type { Event } from './events.ts';
import type { Rules } from './pinned.ts';
import type { State } from './state.ts';

/** Runs until the run ends or pauses. Rejects for misuse and if the journal fails; all else is in the result. */
export async function runLoop<const S extends Schema>(
  options: (LoopOptions | ContinueOptions) & { readonly output: S },
): Promise<LoopResult & { readonly output?: OutputOf<S> }>;
export async function runLoop(options: LoopOptions | ContinueOptions): Promise<LoopResult>;
export async function runLoop(options: LoopOptions | ContinueOptions): Promise<LoopResult> {
  return start(options, options?.onItem && guarded(options.onItem)).result;
}

/** The same run, with its items as they happen. Throws for misuse; continuing a run says so by rejecting `result`. */
export function streamLoop(options: LoopOptions | ContinueOptions): LiveRun {
  const items: Stream = stream(() => live.cancel());
  const listener = options?.onItem && guarded(options.onItem);
  const live = start(options, (item) => {
    items.push(item);
    return listener?.(item);
  });
  live.result.then(() => items.close(), items.close);
  return { ...live, [Symbol.asyncIterator]: () => items[Symbol.asyncIterator]() };
}

/** The same run for whoever listens by `onItem` alone: it can be talked to, and keeps no items. Throws for misuse. */
export function startLoop(options: LoopOptions | ContinueOptions): StartedRun {
  return start(options, options?.onItem && guarded(options.onItem));
}

/** What a listener throws is its own affair, and must not reach the loop. */
export function guarded(listener: NonNullable<LoopOptions['onItem']>): NonNullable<LoopOptions['onItem']> {
  return (item) => {
    try {
      const returned: unknown = listener(item);
      if (returned instanceof Promise) return returned.then(ignore, ignore);
    } catch {}
    return undefined;
  };
}

function ignore(): void {}

/** Throws for what a program took for a signal. */
export function checkSignal(signal: AbortSignal | undefined): void {
  if (signal === undefined || typeof signal?.addEventListener === 'function') return;
  throw new TreadleError('invalid-options', 'The signal is no AbortSignal. Give the signal of an AbortController.');
}

/** Begins to drive a run, of a typed agent if its code is given. Throws for misuse. */
export function start(
  options: LoopOptions | ContinueOptions,
  listener: Listener | undefined,
  agent?: AgentCode,
): StartedRun {
  if (typeof options?.model?.reply !== 'function') {
    throw new TreadleError(
      'invalid-options',
      'There is no model. Give one, such as openaiChat({ model }) of @treadle/models.',
    );
  }
  const { signal, clock = systemClock } = options;
  const journal = options.journal ?? memoryJournal();
  checkSignal(signal);
  const tools = toolsByName(options.tools ?? []);
  const runId = options.runId ?? newRunId();
  const opened = 'input' in options ? open(options, runId, clock, agent?.rules) : undefined;

  let driven: Shell | undefined;
  let ended = false;
  let left = false;
  /** What is said to the run before it has begun. */
  const early: Event[] = [];
  const feed = (event: Event): boolean => {
    if (driven) return driven.feed(event);
    return !ended && !left && early.push(event) > 0;
  };
  const cancel = (): void => void feed(cancelRequest(clock));
  const leave = (): void => {
    left = true;
    driven?.detach();
  };
  const stop = (): void => (signal!.reason === DETACHED ? leave() : cancel());
  if (signal?.aborted) stop();
  signal?.addEventListener('abort', stop, { once: true });
  const emit: Listener | undefined =
    listener && ((item, before, after) => (ended ? undefined : listener(item, before, after)));

  async function drive(): Promise<LoopResult> {
    let callOff: (() => void) | undefined;
    let lease: Lease | undefined;
    try {
      if (left) return resultOf(runId, NEW);
      // Nobody else has the journal that was made here, so nobody else could drive the run.
      lease = await options.journal?.acquire?.(runId);
      const opening = opened ?? (await reopen(options as ContinueOptions, clock, agent?.rules));
      const controller = new AbortController();
      const stage = stageOf(options, {
        runId,
        journal,
        clock,
        tools,
        agent,
        emit,
        signal: controller.signal,
        opening,
        state: () => driven!.state(),
        fail: (error) => driven!.fail(error),
      });
      const performing = performer(stage, controller);
      const { state, seq } = opening;
      driven = shell({ state, seq, runId, journal, lease, performer: performing, emit });
      if (left) driven.detach();
      else driven.begin([...opening.events, ...early]);
      callOff = watchDeadline(driven, opening.pinned.rules, clock);
      const last = await driven.done;
      const orphans = driven.orphans();
      if (orphans.length > 0) await performing.cancelChildren(orphans);
      if (!opened && isCancelled(opening.state)) await cancelLeft(runId, { journal, clock, model: options.model });
      return resultOf(runId, last);
    } finally {
      callOff?.();
      signal?.removeEventListener('abort', stop);
      ended = true;
      await lease?.release();
    }
  }

  const result = drive();
  // A result that nobody looks at must not bring the process down.
  result.catch(() => {});
  return {
    runId,
    result,
    cancel,
    async detach() {
      leave();
      await result.catch(() => {});
    },
    send: (input) => feed({ type: 'input-added', at: clock.now(), messages: saidBy(input) }),
    answer(answer) {
      if (feed(answerEvent(driven?.state() ?? { ...NEW, runId }, answer, clock.now()))) return;
      throw new TreadleError(
        'answer-unfit',
        `Run "${runId}" is paused. To go on with it, call runLoop with its runId and journal, and answers.`,
      );
    },
  };
}

function isCancelled({ phase }: State): boolean {
  return phase.type === 'ended' && phase.outcome.type === 'cancelled';
}

/** Cancels what works for a run that was cancelled, if the process died in between: theirs is to follow. */
async function cancelLeft(parent: string, around: Pick<ContinueOptions, 'journal' | 'clock' | 'model'>): Promise<void> {
  const { journal } = around;
  if (!('list' in journal)) return;
  const left = await (journal as RunStore).list({ parent, status: ['running', 'paused'] });
  for (const { runId } of left) {
    const [first] = await journal.read(runId);
    if (first?.event.type !== 'run-started' || first.event.parent?.effect === undefined) continue; // a fork
    await runLoop({ ...around, runId, acceptChangedTools: true, signal: AbortSignal.abort() });
    await cancelLeft(runId, around);
  }
}

function cancelRequest(clock: Clock): Event {
  return { type: 'cancel-requested', at: clock.now() };
}

interface Around extends Pick<
  Stage,
  'runId' | 'journal' | 'clock' | 'tools' | 'agent' | 'emit' | 'signal' | 'state' | 'fail'
> {
  readonly opening: Opening;
}

const NO_MODELS: Stage['models'] = new Map();

function stageOf(options: LoopOptions | ContinueOptions, around: Around): Stage {
  const { model, models, summariser = model, policy, prepareTurn, output, context } = options;
  const { runId, tools, opening } = around;
  const { pinned, nested, parked } = opening;
  // Only where somebody wanted a journal: in one that is gone with the run they would merely fill the memory.
  const blobs = options.journal && 'blobs' in options.journal ? (options.journal as RunStore).blobs : undefined;
  const own = blobs ? readResultTool({ runId, rules: pinned.rules, blobs }) : undefined;
  return {
    runId,
    rules: pinned.rules,
    settings: pinned.settings,
    principal: pinned.principal,
    journal: around.journal,
    clock: around.clock,
    agent: around.agent,
    emit: around.emit,
    signal: around.signal,
    state: around.state,
    fail: around.fail,
    model,
    models: models ? new Map(models.map((other) => [other.id, other])) : NO_MODELS,
    summariser,
    tools: own && !tools.has(own.name) ? new Map([...tools, [own.name, own]]) : tools,
    policy,
    prepareTurn,
    output,
    context,
    blobs,
    nested,
    parked,
    acceptChangedTools: 'acceptChangedTools' in options && options.acceptChangedTools === true,
  };
}

/** Wakes the run when its time is up. `step` decides whether it is: time that it was paused does not count. */
function watchDeadline({ feed, state }: Shell, rules: Rules, clock: Clock): () => void {
  const { durationMs } = rules.limits;
  if (durationMs === undefined) return () => {};
  let callOff = (): void => {};
  const watch = (): void => {
    const left = durationMs - activeMsAt(state(), clock.now());
    callOff = clock.timer(Math.max(1, left), () => {
      if (!feed({ type: 'deadline-passed', at: clock.now() })) watch();
    });
  };
  watch();
  return () => callOff();
}

function resultOf(runId: string, state: State): LoopResult {
  const { phase, usage, turn, calls, activeMs, given, output, agent } = state;
  const messages = messagesOf(state.history);
  const last = messages.findLast(({ role }, index) => role === 'assistant' && index >= given);
  return {
    runId,
    ...(phase.type === 'ended' ? { outcome: phase.outcome } : !isPaused(state) && { detached: true }),
    waiting: waiting(state),
    text: last ? textOf(last.content) : '',
    ...(output !== undefined && { output }),
    messages,
    ...(agent && { agent }),
    usage,
    turns: turn,
    calls,
    durationMs: activeMs,
  };
}

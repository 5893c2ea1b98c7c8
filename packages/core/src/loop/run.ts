import { systemClock, type Clock } from '../clock.ts';
import { TreadleError } from '../errors.ts';
import { newRunId } from '../ids.ts';
import { memoryJournal } from '../journal/memory.ts';
import type { Journal } from '../journal/port.ts';
import { textOf } from '../messages.ts';
import { toolsByName } from '../tools/registry.ts';
import { factsOf } from '../tools/tool.ts';
import { answerEvent } from './answer.ts';
import { conversationOf, saidBy } from './conversation.ts';
import { activeMsAt } from './fits.ts';
import { messagesOf } from './history.ts';
import type { ContinueOptions, Item, LiveRun, LoopOptions, LoopResult } from './options.ts';
import { outstanding, waiting } from './outstanding.ts';
import { performer } from './perform.ts';
import { replay } from './replay.ts';
import { rulesOf } from './rules.ts';
import { journalError, shell, type Shell } from './shell.ts';
import { NEW } from './step.ts';
import { stream, type Stream } from './stream.ts';
import type { Event, State } from './types.ts';

/** Runs until the run ends or pauses. Rejects for misuse and if the journal fails; all else is in the result. */
export async function runLoop(options: LoopOptions | ContinueOptions): Promise<LoopResult> {
  return start(options, options.onItem && guarded(options.onItem)).result;
}

/** The same run, with its items as they happen. Throws for misuse; continuing a run says so by rejecting `result`. */
export function streamLoop(options: LoopOptions | ContinueOptions): LiveRun {
  const items: Stream = stream(() => live.cancel());
  const listener = options.onItem && guarded(options.onItem);
  const live = start(options, (item) => {
    items.push(item);
    listener?.(item);
  });
  live.result.then(() => items.close(), items.close);
  return { ...live, [Symbol.asyncIterator]: () => items[Symbol.asyncIterator]() };
}

/** What a listener throws is its own affair, and must not reach the loop. */
function guarded(listener: (item: Item) => void): (item: Item) => void {
  return (item) => {
    try {
      const returned: unknown = listener(item);
      if (returned instanceof Promise) returned.catch(() => {});
    } catch {}
  };
}

/** Where a run begins or goes on, and the facts to begin with. */
interface Opening {
  readonly state: State;
  readonly seq: number;
  readonly started: RunStarted;
  readonly events: readonly Event[];
}

type RunStarted = Extract<Event, { type: 'run-started' }>;

function start(
  options: LoopOptions | ContinueOptions,
  listener: ((item: Item) => void) | undefined,
): Omit<LiveRun, typeof Symbol.asyncIterator> {
  const { model, policy, context, signal, journal = memoryJournal(), clock = systemClock } = options;
  if (typeof model?.reply !== 'function') {
    throw new TreadleError(
      'invalid-options',
      'There is no model. Give one, such as openaiChat({ model }) of @treadle/models.',
    );
  }
  const tools = toolsByName(options.tools ?? []);
  const runId = options.runId ?? newRunId();
  const opening = 'input' in options ? open(options, runId, clock) : reopen(options, clock);

  let driven: Shell | undefined;
  let ended = false;
  /** What is said to the run before it has begun. */
  const early: Event[] = signal?.aborted ? [cancelRequest(clock)] : [];
  const feed = (event: Event): boolean => {
    if (driven) return driven.feed(event);
    return !ended && early.push(event) > 0;
  };
  const cancel = (): void => void feed(cancelRequest(clock));
  signal?.addEventListener('abort', cancel, { once: true });
  const emit = listener && ((item: Item): void => (ended ? undefined : listener(item)));

  async function drive(): Promise<LoopResult> {
    let callOff: (() => void) | undefined;
    try {
      const { state, seq, started, events } = await opening;
      const performing = performer({ started, model, tools, policy, context, clock, emit });
      driven = shell({ state, seq, runId, journal, performer: performing, emit });
      driven.begin([...events, ...early]);
      callOff = watchDeadline(driven, started, clock);
      return resultOf(await driven.done, started.input.length);
    } finally {
      callOff?.();
      signal?.removeEventListener('abort', cancel);
      ended = true;
    }
  }

  const result = drive();
  // A result that nobody looks at must not bring the process down.
  result.catch(() => {});
  return {
    runId,
    result,
    cancel,
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

function cancelRequest(clock: Clock): Event {
  return { type: 'cancel-requested', at: clock.now() };
}

function open(options: LoopOptions, runId: string, clock: Clock): Opening {
  const { tools = [], settings = {}, instructions, principal, model } = options;
  const started: RunStarted = {
    type: 'run-started',
    at: clock.now(),
    runId,
    rules: rulesOf(options),
    tools: tools.map(factsOf),
    model: model.id,
    settings,
    ...(instructions !== undefined && { instructions }),
    input: conversationOf(options.input),
    ...(principal && { principal }),
  };
  return { state: NEW, seq: 0, started, events: [started] };
}

/** Replays the run; then what was under way is lost, what ran out of time is told so, and the answers are given. */
async function reopen({ runId, journal, answers = [] }: ContinueOptions, clock: Clock): Promise<Opening> {
  const entries = await readRun(journal, runId);
  const replayed = replay(entries);
  if (replayed.type === 'diverged') {
    const { seq, difference } = replayed;
    throw new TreadleError('journal-damaged', `Run "${runId}" cannot go on: at entry ${seq}, ${difference}.`);
  }
  const at = clock.now();
  const lost = begunEffects(replayed.state).map((effect): Event => ({
    type: 'effect-lost',
    at,
    effect,
    cause: 'restart',
  }));
  const given = answers.map((answer, index) => {
    if (answers.findIndex(({ effect }) => effect === answer.effect) === index)
      return answerEvent(replayed.state, answer, at);
    throw new TreadleError('answer-unfit', `"${answer.effect}" is answered twice. An answer counts once.`);
  });
  const expired = waiting(replayed.state).map(({ effect }): Event => ({ type: 'deadline-passed', at, effect }));
  return {
    state: replayed.state,
    seq: entries.length,
    started: entries[0]!.event as RunStarted,
    events: [...lost, ...given, ...expired],
  };
}

/** What was under way and waits for nobody outside; and the model call whose failure ended the run, to be tried again. */
function begunEffects(state: State): readonly string[] {
  if (state.phase.type === 'ended') return state.phase.effect === undefined ? [] : [state.phase.effect];
  const waits = new Set(waiting(state).map(({ effect }) => effect));
  return outstanding(state).flatMap(({ id }) => (waits.has(id) ? [] : id));
}

async function readRun(journal: Journal | undefined, runId: string): ReturnType<Journal['read']> {
  if (!journal) {
    throw new TreadleError('invalid-options', 'To go on with a run, give the journal that it is in, and its runId.');
  }
  const entries = await journal.read(runId).catch((error: unknown) => {
    throw journalError(runId, error);
  });
  if (entries.length > 0) return entries;
  throw new TreadleError(
    'unknown-run',
    `The journal has no run "${runId}". Check the id, and that it is the journal it was started with.`,
  );
}

/** Wakes the run when its time is up. `step` decides whether it is: time that it was paused does not count. */
function watchDeadline({ feed, state }: Shell, { rules }: RunStarted, clock: Clock): () => void {
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

/** `given`: how many messages were there before the run. */
function resultOf(state: State, given: number): LoopResult {
  const { phase, runId, usage, turn, calls, activeMs } = state;
  const messages = messagesOf(state.history);
  const last = messages.findLast(({ role }, index) => role === 'assistant' && index >= given);
  return {
    runId,
    ...(phase.type === 'ended' && { outcome: phase.outcome }),
    waiting: waiting(state),
    text: last ? textOf(last.content) : '',
    messages,
    usage,
    turns: turn,
    calls,
    durationMs: activeMs,
  };
}

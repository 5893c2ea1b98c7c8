import { TreadleError } from '../errors.ts';
import { outstanding, slotFor, waiting, type Effect } from '../machine/effects.ts';
import type { Event, SettledResult } from '../machine/events.ts';
import { isReadResult, READ_RESULT } from '../machine/narrowing.ts';
import type { Rules, ToolFacts } from '../machine/rules.ts';
import type { State } from '../machine/state.ts';
import { fits, NEW, step } from '../machine/step.ts';
import type { UserMessage } from '../messages.ts';
import { newRunId, nextLoopTurn, systemClock } from '../platform.ts';
import { withReadResult } from '../tools/read-result.ts';
import { truncateContent } from '../tools/result.ts';
import { checkOptions, type KnownOptions, type OptionNames } from '../known-options.ts';
import { factsOf } from '../tools/tool.ts';
import { traceOfFork } from './family.ts';
import type { Blobs, JournalEntry, RunStore } from './port.ts';
import { entryOf, SLICE_ENTRIES, walkInSlices } from './replay.ts';
import type { ForkChanges, ForkOptions, PlannedFork } from './fork.ts';

const FORK_OPTIONS: KnownOptions = {
  names: {
    journal: '.append',
    runId: 'name',
    at: 'number',
    changes: 'object',
    newRunId: 'name',
    clock: '.now',
  } satisfies OptionNames<ForkOptions>,
};

const CHANGES: KnownOptions = {
  names: {
    model: 'name',
    instructions: 'string',
    tools: 'array',
    input: 'string',
    limits: 'object',
    results: 'object',
    definition: '',
    program: '',
  } satisfies OptionNames<ForkChanges>,
  noun: 'change',
};

/** See `forkRun`. */
export async function makeFork(options: ForkOptions): Promise<string> {
  const newId = options?.newRunId ?? newRunId();
  const { entries } = await forkedEntries({ ...options, newRunId: newId });
  const { journal, runId } = options;
  await journal.append(newId, entries);
  if ('blobs' in journal) await copyBlobs((journal as RunStore).blobs, runId, newId);
  return newId;
}

/** The entries of a fork and the state that they lead to. Stores nothing. Rejects if the run cannot be forked so. */
export async function forkedEntries(options: ForkOptions): Promise<PlannedFork> {
  checkOptions('A fork', options, FORK_OPTIONS);
  const { journal, runId, at, changes = {}, newRunId: newId = '' } = options;
  checkOptions('A fork', changes, CHANGES);
  const entries = await journal.read(runId);
  const shared = await sharedEntries(entries, options);
  // They were applied once, and are applied again.
  await nextLoopTurn();
  const fork: JournalEntry[] = [];
  let state = NEW;
  const appendEvent = (event: Event): void => {
    const next = step(state, event);
    if (next.state === state) throw unforkable(runId, `after that change, its event "${event.type}" no longer applies`);
    fork.push(entryOf(fork.length, event, next));
    state = next.state;
  };

  // 1. The shared entries, with changed results.
  const asked = changes.input === undefined ? undefined : shared.findLast(hasUserInput);
  if (changes.input !== undefined && !asked) throw unforkable(runId, `nobody has said anything up to entry ${at}`);
  for (const { event, seq } of shared) {
    const { maxResultChars = Infinity, references } = state.rules ?? {};
    const forked = forkedEvent(event, newId, options, references ? Infinity : maxResultChars);
    appendEvent(seq === asked?.seq ? withInput(forked, changes.input!) : forked);
    if (fork.length % SLICE_ENTRIES === 0) await nextLoopTurn();
  }
  // 2. The changes.
  const { model, instructions, tools } = changes;
  const changed = model !== undefined || instructions !== undefined || tools !== undefined;
  if (changed && state.phase.type === 'ended')
    throw unforkable(runId, 'it has ended there. Fork it before its last entry');
  if (changed) {
    const facts = tools && {
      tools: withReadResult(
        tools.map((tool) => (typeof tool === 'string' ? toolOfRun(state, tool) : factsOf(tool))),
        state.tools.filter(isReadResult),
      ),
    };
    const values = {
      ...(model !== undefined && { model }),
      ...(instructions !== undefined && { instructions }),
      ...facts,
    };
    // At the time of the last shared event: the time until the fork is resumed does not count as active.
    appendEvent({ type: 'run-forked', at: state.at, ...values });
  }
  // 3. What settled later: effects that were outstanding at the fork point, and the other calls of that turn.
  const started = new Set(outstanding(state).flatMap(({ id }) => [id, id.replace('.tool.', '.verify.')]));
  const settled = entries.slice(at + 1).filter(copiedEvents(state, isChanged(changes)));
  const copied: number[] = [];
  // In the fork a call may start later than in the original, so each event is tried until none applies.
  for (let next = nextCopied(settled, state); next; next = nextCopied(settled, state)) {
    const [{ event, seq }] = settled.splice(settled.indexOf(next), 1) as [JournalEntry];
    if (isPagedResult(event)) readResultOffers(entries.slice(at + 1, seq), state).forEach(appendEvent);
    appendEvent(event);
    copied.push(seq);
  }
  // 4. A call that the original has started must not run twice, and one that never started is not "interrupted".
  const open = outstanding(state);
  const repeated = open.find((effect) => started.has(effect.id) && wouldRunTwice(effect));
  if (repeated) throw unforkable(runId, whyRunTwice(repeated.id, shared));
  const issued = new Set(entries.flatMap((entry) => entry.issued));
  const unstarted = open.find((effect) => !issued.has(effect.id) && wouldBeInterrupted(effect));
  if (unstarted)
    throw unforkable(runId, `"${unstarted.id}" has not started there yet. Resume the run until it has a result`);
  return { entries: fork, state, copied };
}

/** Whether what follows the fork point may differ from the original. Lower limits do not make replies obsolete. */
function isChanged({ limits: _, ...changes }: ForkChanges): boolean {
  return Object.values(changes).some((change) => change !== undefined);
}

/** The facts about a tool that the run has. */
function toolOfRun({ runId, tools }: State, name: string): ToolFacts {
  const found = tools.find((tool) => tool.name === name);
  if (found) return found;
  throw unforkable(runId, `it has no tool "${name}" there`);
}

function hasUserInput({ event }: JournalEntry): boolean {
  if (event.type === 'input-added') return true;
  return event.type === 'run-started' && event.input.some(({ role }) => role === 'user');
}

/** The event with another text in its last message of a user. Images and files stay. */
function withInput(event: Event, text: string): Event {
  if (event.type === 'input-added') {
    const { messages } = event;
    return { ...event, messages: [...messages.slice(0, -1), withText(messages.at(-1)!, text)] };
  }
  if (event.type !== 'run-started') return event;
  const index = event.input.findLastIndex(({ role }) => role === 'user');
  return { ...event, input: event.input.with(index, withText(event.input[index] as UserMessage, text)) };
}

function withText({ content }: UserMessage, text: string): UserMessage {
  return { role: 'user', content: [{ type: 'text', text }, ...content.filter(({ type }) => type !== 'text')] };
}

/** The rules with other limits. */
function withLimits(rules: Rules, { turns, ...limits }: NonNullable<ForkChanges['limits']>): Rules {
  return { ...rules, ...(turns !== undefined && { maxTurns: turns }), limits: { ...rules.limits, ...limits } };
}

/** Whether an event is the result of a call that was cut and can be paged through: it has the note of `partialResultNote`. */
function isPagedResult(event: Event): boolean {
  if (event.type !== 'tool-settled' || event.result.type !== 'result') return false;
  const note = event.result.content.at(-1);
  return note?.type === 'text' && note.text.includes(`Read on with ${READ_RESULT}`);
}

/** The events that offered `read_result` for a cut result, if the fork does not have the tool yet. */
function readResultOffers(since: readonly JournalEntry[], { tools, nextTools }: State): readonly Event[] {
  for (const { event } of since) {
    if (event.type !== 'tools-changed') continue;
    const { type, at } = event;
    const own = event.tools.filter(isReadResult);
    if (own.length === 0) continue;
    const lacks = (some: readonly ToolFacts[]): boolean => !some.some(isReadResult);
    const offer = lacks(tools) ? [{ type, at, tools: withReadResult(tools, own) }] : [];
    if (!nextTools || !lacks(nextTools)) return offer;
    return [...offer, { type, at, tools: withReadResult(nextTools, own), from: 'next-turn' }];
  }
  return [];
}

/** The fork may page through results that were stored for the original run. */
async function copyBlobs(blobs: Blobs, from: string, to: string): Promise<void> {
  for (const id of await blobs.list(from)) {
    const blob = await blobs.read(from, id, 0, Infinity);
    if (blob) await blobs.put(to, blob.text ?? blob);
  }
}

async function sharedEntries(
  entries: readonly JournalEntry[],
  { runId, at, changes }: ForkOptions,
): Promise<readonly JournalEntry[]> {
  if (entries.length === 0) throw new TreadleError('unknown-run', `The journal has no run "${runId}" to fork.`);
  if (!Number.isInteger(at) || at < 0 || at >= entries.length) {
    throw unforkable(runId, `it has the entries 0 to ${entries.length - 1}, not ${at}`);
  }
  const replayed = await walkInSlices(entries);
  if (replayed.type === 'diverged') throw unforkable(runId, `at entry ${replayed.seq}, ${replayed.difference}`);
  const shared = entries.slice(0, at + 1);
  const settled = new Set(shared.flatMap(({ event }) => (isResult(event) ? event.effect : [])));
  for (const effect of Object.keys(changes?.results ?? {})) {
    if (settled.has(effect)) continue;
    const more = settled.size > 20 ? ` and ${settled.size - 20} more` : '';
    const names = [...settled].slice(0, 20).join(', ');
    const others = settled.size === 0 ? 'No call has one' : `Calls that have one: ${names}${more}`;
    throw unforkable(runId, `no call "${effect}" has a result up to entry ${at}. ${others}`);
  }
  return shared;
}

function forkedEvent(event: Event, newId: string, options: ForkOptions, maxChars: number): Event {
  const { runId, at, changes, clock = systemClock } = options;
  if (event.type === 'run-started') {
    const rules = changes?.limits ? withLimits(event.rules, changes.limits) : event.rules;
    const trace = event.trace === undefined && { trace: traceOfFork(event) };
    const { definition, program } = changes ?? {};
    return {
      ...event,
      ...(definition !== undefined && { definition }),
      ...(program !== undefined && { program }),
      rules,
      runId: newId,
      parent: { runId, seq: at, at: clock.now(), ...trace },
    };
  }
  const replacement = isResult(event) ? changes?.results?.[event.effect] : undefined;
  if (replacement === undefined || !isResult(event)) return event;
  const content = truncateContent(
    typeof replacement === 'string' ? [{ type: 'text', text: replacement }] : replacement,
    maxChars,
  );
  if (event.type === 'client-result-given') {
    const { filtered: _, ...given } = event;
    return { ...given, content, isError: false };
  }
  const { blob: _, filtered: __, ...result } = event.result as Extract<SettledResult, { type: 'result' }>;
  return { ...event, result: { ...result, type: 'result', content, isError: false } };
}

type ResultEvent = Extract<Event, { type: 'tool-settled' | 'client-result-given' }>;

function isResult(event: Event): event is ResultEvent {
  return event.type === 'tool-settled' || event.type === 'client-result-given';
}

const SETTLING: ReadonlySet<Event['type']> = new Set<Event['type']>([
  'model-replied',
  'calls-judged',
  'tool-settled',
  'turn-prepared',
  'history-compacted',
  'output-checked',
  'guardrails-checked',
]);

/**
 * Selects the events to copy: those that settle an outstanding effect, except those that wait for an answer, and after a
 * change those that have to be performed again; and all that settle a call of the turn, because its reply is copied too.
 */
function copiedEvents(state: State, changed: boolean): (entry: JournalEntry) => boolean {
  const waits = new Set(waiting(state).map(({ effect }) => effect));
  const started = outstanding(state).filter(({ id, type }) => !waits.has(id) && !(changed && REPEATED.has(type)));
  const settled = new Set(started.map(({ id }) => id));
  const ofTurn = CALL_EFFECTS.map((kind) => `t${state.turn}.${kind}.`);
  return ({ event }) => {
    if (!('effect' in event) || event.effect === undefined) return false;
    if (settled.has(event.effect) && SETTLING.has(event.type)) return true;
    return COPIED_OF_CALLS.has(event.type) && ofTurn.some((prefix) => event.effect!.startsWith(prefix));
  };
}

const CALL_EFFECTS = ['judge', 'tool', 'verify'];

const COPIED_OF_CALLS: ReadonlySet<Event['type']> = new Set<Event['type']>([
  'calls-judged',
  'tool-settled',
  'effect-lost',
]);

/** The first event that applies now. A lost call is copied only if it is verified or answered because of that. */
function nextCopied(settled: readonly JournalEntry[], state: State): JournalEntry | undefined {
  return settled.find(({ event }) => {
    if (!fits(state, event)) return false;
    if (event.type !== 'effect-lost') return true;
    const slot = slotFor(state, event.effect);
    return slot?.type === 'running' && slot.call.effect === 'once';
  });
}

/**
 * Whether the fork would repeat a call that the original run has started. The fork has another idempotency key, so
 * neither the tool nor its `verify` could detect it. A `once` tool without `verify` is answered "interrupted" in the fork,
 * and a `pure` tool may run again.
 */
function wouldRunTwice(effect: Effect): boolean {
  if (effect.type === 'verify-tool') return true;
  return effect.type === 'call-tool' && (effect.call.effect === 'idempotent' || effect.call.verifiable);
}

/** Whether resuming would answer a call "interrupted". That is wrong if neither run has started it. */
function wouldBeInterrupted(effect: Effect): boolean {
  return effect.type === 'call-tool' && effect.call.effect === 'once' && !effect.call.verifiable;
}

function whyRunTwice(effect: string, shared: readonly JournalEntry[]): string {
  const started = shared.findIndex(({ issued }) => issued.includes(effect));
  const advice = `Resume the run until it has one, or fork before entry ${started}`;
  return `"${effect}" is outstanding and has no result that the fork could use. ${advice}`;
}

const REPEATED: ReadonlySet<string> = new Set(['call-model', 'prepare-turn', 'compact-history']);

function unforkable(runId: string, why: string): TreadleError {
  return new TreadleError('invalid-options', `Run "${runId}" cannot be forked: ${why}.`);
}

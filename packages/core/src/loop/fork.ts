import { systemClock, type Clock } from '../clock.ts';
import { TreadleError } from '../errors.ts';
import { newRunId } from '../ids.ts';
import type { Blobs, Journal, JournalEntry, RunStore } from '../journal/port.ts';
import type { ResultBlock } from '../messages.ts';
import { fittedContent } from '../tools/result.ts';
import { factsOf, type Tool } from '../tools/tool.ts';
import { fits } from './fits.ts';
import { outstanding, waiting } from './outstanding.ts';
import { isOwn, isPaged } from './perform/blobs.ts';
import { entryOf, replay } from './replay.ts';
import { NEW, step } from './step.ts';
import type { Effect } from './effects.ts';
import type { Event } from './events.ts';
import type { State } from './state.ts';

export interface ForkOptions {
  readonly journal: Journal;
  readonly runId: string;
  /** The last entry that both have in common. */
  readonly at: number;
  readonly changes?: ForkChanges;
  /** The fork's own name. */
  readonly newRunId?: string;
  readonly clock?: Clock;
}

/** What shall be otherwise in the fork. */
export interface ForkChanges {
  /** The id of the model that it goes on with; the model itself is given when it goes on. */
  readonly model?: string;
  readonly instructions?: string;
  /** All tools that it has from then on. */
  readonly tools?: readonly Tool[];
  /** Other results for calls before the cut, by the effect that gave them. */
  readonly results?: Readonly<Record<string, string | readonly ResultBlock[]>>;
}

/**
 * Branches a run: a new one with the same beginning, which goes on with `runLoop({ runId, journal, … })`. What was under
 * way at the cut and has settled since is taken over, so that nothing is executed twice; except the model's reply, if a
 * change makes it moot. Returns the new run's id.
 */
export async function forkRun(options: ForkOptions): Promise<string> {
  const { journal, runId, at, changes = {}, clock = systemClock } = options;
  const entries = await journal.read(runId);
  const kept = beginning(entries, options);
  const fork: JournalEntry[] = [];
  let state = NEW;
  const take = (event: Event): void => {
    const next = step(state, event);
    if (next.state === state)
      throw misfit(runId, `after that change, its event "${event.type}" does not apply any more`);
    fork.push(entryOf(fork.length, event, next));
    state = next.state;
  };

  const newId = options.newRunId ?? newRunId();
  for (const { event } of kept) take(inFork(event, newId, options, state.rules?.maxResultChars ?? Infinity));
  const { model, instructions, tools } = changes;
  const changed = model !== undefined || instructions !== undefined || tools !== undefined;
  if (changed && state.phase.type === 'ended') throw misfit(runId, 'it has ended there. Fork it before its last entry');
  if (changed) {
    const facts = tools && { tools: [...tools.map(factsOf), ...state.tools.filter(isOwn)] };
    const values = {
      ...(model !== undefined && { model }),
      ...(instructions !== undefined && { instructions }),
      ...facts,
    };
    take({ type: 'run-forked', at: clock.now(), ...values });
  }
  const begun = new Set(outstanding(state).map(({ id }) => id));
  const open = inFlight(state, changed || changes.results !== undefined);
  for (const { event, seq } of entries.slice(at + 1)) {
    if (!('effect' in event) || !SETTLING.has(event.type) || !open.delete(event.effect!) || !fits(state, event))
      continue;
    const offer = isPaged(event) ? offered(entries.slice(at + 1, seq), state) : undefined;
    if (offer) take(offer);
    take(event);
  }
  const twice = outstanding(state).find((effect) => begun.has(effect.id) && wouldActTwice(effect));
  if (twice) throw misfit(runId, whyTwice(twice.id, kept));
  await journal.append(newId, fork);
  if ('blobs' in journal) await keepToo((journal as RunStore).blobs, runId, newId);
  return newId;
}

/** The fact by which the loop offered a tool of its own for a result, if the fork does not have it yet. */
function offered(since: readonly JournalEntry[], { tools }: State): Event | undefined {
  if (tools.some(isOwn)) return undefined;
  for (const { event } of since) {
    if (event.type !== 'tools-changed') continue;
    const own = event.tools.filter(isOwn);
    if (own.length > 0) return { ...event, tools: [...tools, ...own] };
  }
  return undefined;
}

/** What was kept whole for the run is there for the fork too, which may still page through it. */
async function keepToo(blobs: Blobs, from: string, to: string): Promise<void> {
  for (const id of await blobs.list(from)) {
    const blob = await blobs.read(from, id, 0, Infinity);
    if (blob) await blobs.put(to, blob.text);
  }
}

function beginning(entries: readonly JournalEntry[], { runId, at, changes }: ForkOptions): readonly JournalEntry[] {
  if (entries.length === 0) throw new TreadleError('unknown-run', `The journal has no run "${runId}" to fork.`);
  if (!Number.isInteger(at) || at < 0 || at >= entries.length) {
    throw misfit(runId, `it has the entries 0 to ${entries.length - 1}, and not ${at}`);
  }
  const replayed = replay(entries);
  if (replayed.type === 'diverged') throw misfit(runId, `at entry ${replayed.seq}, ${replayed.difference}`);
  const kept = entries.slice(0, at + 1);
  const settled = new Set(kept.flatMap(({ event }) => (isResult(event) ? event.effect : [])));
  for (const effect of Object.keys(changes?.results ?? {})) {
    if (!settled.has(effect)) throw misfit(runId, `up to entry ${at} no tool gave a result as "${effect}"`);
  }
  return kept;
}

function inFork(event: Event, newId: string, { runId, at, changes }: ForkOptions, most: number): Event {
  if (event.type === 'run-started') return { ...event, runId: newId, parent: { runId, seq: at } };
  const given = isResult(event) ? changes?.results?.[event.effect] : undefined;
  if (given === undefined || !isResult(event)) return event;
  const content = fittedContent(typeof given === 'string' ? [{ type: 'text', text: given }] : given, most);
  if (event.type === 'client-result-given') return { ...event, content, isError: false };
  return { ...event, result: { ...event.result, type: 'result', content, isError: false } };
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
]);

/** What had begun and waits for nobody outside. After any change the model has to be asked anew. */
function inFlight(state: State, changed: boolean): Set<string> {
  const waits = new Set(waiting(state).map(({ effect }) => effect));
  const begun = outstanding(state).filter(({ id, type }) => !waits.has(id) && !(changed && ANEW.has(type)));
  return new Set(begun.map(({ id }) => id));
}

/**
 * Whether the fork would do again what the run has begun: it does so under a key of its own, so neither the tool nor its
 * `verify` could know. A `once` tool that cannot verify is answered "interrupted" in the fork, and a `pure` one may run.
 */
function wouldActTwice(effect: Effect): boolean {
  if (effect.type === 'verify-tool') return true;
  return effect.type === 'call-tool' && (effect.call.effect === 'idempotent' || effect.call.verifiable);
}

function whyTwice(effect: string, kept: readonly JournalEntry[]): string {
  const begun = kept.findIndex(({ issued }) => issued.includes(effect));
  const instead = 'Go on with the run until it has one';
  return `"${effect}" was under way and has no result that could be taken over. ${instead}, or fork before entry ${begun}`;
}

const ANEW: ReadonlySet<string> = new Set(['call-model', 'prepare-turn', 'compact-history']);

function misfit(runId: string, why: string): TreadleError {
  return new TreadleError('invalid-options', `Run "${runId}" cannot be forked so: ${why}.`);
}

import type { Clock } from '../clock.ts';
import { TreadleError } from '../errors.ts';
import type { Journal, JournalEntry } from '../journal/port.ts';
import type { Tool } from '../tools/tool.ts';
import { factsOf } from '../tools/tool.ts';
import { answerEvents } from './answer.ts';
import { canGoOn } from './fits.ts';
import { conversationOf } from './conversation.ts';
import type { Answer, ContinueOptions, LoopOptions } from './options.ts';
import { effectOf, outstanding, waiting } from './outstanding.ts';
import { isOwn } from './perform/blobs.ts';
import { replay, type Start } from './replay.ts';
import { demandPrices, rulesOf } from './rules.ts';
import { journalError } from './shell.ts';
import { restored } from './snapshot.ts';
import { NEW } from './step.ts';
import type { Event } from './events.ts';
import type { AgentRules, ToolFacts } from './pinned.ts';
import type { State } from './state.ts';

/** Where a run begins or goes on, and the facts to begin with. */
export interface Opening {
  readonly state: State;
  readonly seq: number;
  readonly pinned: Pick<State, 'rules' | 'settings' | 'principal'>;
  readonly events: readonly Event[];
  /** Answers for what children wait for, by the effect that is parked on them. */
  readonly nested: ReadonlyMap<string, readonly Answer[]>;
  /** Effects that were parked. */
  readonly parked: ReadonlySet<string>;
}

type RunStarted = Extract<Event, { type: 'run-started' }>;

/** Begins a new run. Throws for misuse. */
export function open(options: LoopOptions, runId: string, clock: Clock, agent?: AgentRules): Opening {
  const { tools = [], settings = {}, instructions, principal, model, parent } = options;
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
  };
  const { rules } = started;
  demandPrices(rules.limits, options);
  return {
    state: NEW,
    seq: 0,
    pinned: { rules, settings, principal },
    events: [started],
    nested: NOTHING_NESTED,
    parked: NOTHING_PARKED,
  };
}

const NOTHING_NESTED: Opening['nested'] = new Map();
const NOTHING_PARKED: Opening['parked'] = new Set();

/**
 * Goes on with a run: it is replayed, then what was under way is lost, the answers are given, what goes on elsewhere is
 * taken up, and what ran out of time is told so.
 */
export async function reopen(options: ContinueOptions, clock: Clock, agent?: AgentRules): Promise<Opening> {
  const { runId, journal, answers = [], tools = [], acceptChangedTools = false } = options;
  const { state, seq } = await readState(journal, runId);
  const at = clock.now();
  // A run that failed because the model did goes on too: it asks again. One that is cancelled at once needs no code.
  const goesOn = canGoOn(state);
  if (goesOn && !options.signal?.aborted) {
    const missing = missingCode(state, options, agent);
    if (missing !== undefined) throw new TreadleError('invalid-options', `Run "${runId}" ${missing}`);
    demandPrices(state.rules.limits, options);
  }
  const changes = goesOn ? toolChanges(state.tools, tools) : [];
  if (changes.length > 0 && !acceptChangedTools) {
    const remedy = 'Give the tools as they were, or set acceptChangedTools to go on with those that are there now.';
    throw new TreadleError('tools-changed', `Run "${runId}" had other tools: ${changes.join('; ')}. ${remedy}`);
  }
  // As of the last fact: only a loss says that nobody worked since.
  const accepted: Event[] =
    changes.length > 0
      ? [{ type: 'tools-changed', at: state.at, tools: [...tools.map(factsOf), ...state.tools.filter(isOwn)] }]
      : [];
  const lost = begunEffects(state).map((effect): Event => ({ type: 'effect-lost', at, effect, cause: 'restart' }));
  const { events: given, nested } = answerEvents(state, answers, at);
  const taken = parkedEffects(state)
    .filter((effect) => !nested.has(effect))
    .map((effect): Event => ({ type: 'effect-lost', at, effect, cause: 'device' }));
  const expired = waiting(state).map(({ effect }): Event => ({ type: 'deadline-passed', at, effect }));
  const { rules, settings, principal } = state;
  return {
    state,
    seq,
    pinned: { rules, settings, principal },
    events: [...accepted, ...lost, ...given, ...taken, ...expired],
    nested,
    parked: new Set(parkedEffects(state)),
  };
}

/** The state of a run that is in a journal, from its snapshot on if there is one. */
async function readState(journal: Journal | undefined, runId: string): Promise<{ state: State; seq: number }> {
  if (!journal) {
    throw new TreadleError('invalid-options', 'To go on with a run, give the journal that it is in, and its runId.');
  }
  try {
    const { start, entries } = await readEntries(journal, runId);
    if (start.seq + entries.length === 0) throw new TreadleError('unknown-run', unknownRun(runId));
    const replayed = replay(entries, start);
    if (replayed.type === 'replayed') return { state: replayed.state, seq: start.seq + entries.length };
    const where = `at entry ${replayed.seq}, ${replayed.difference}`;
    throw new TreadleError('journal-damaged', `Run "${runId}" cannot go on: ${where}.`);
  } catch (error) {
    throw journalError(runId, error);
  }
}

/** With the entries after the snapshot, if there is one, and if the journal still has the last entry it stands for. */
async function readEntries(
  journal: Journal,
  runId: string,
): Promise<{ readonly start: Start; readonly entries: readonly JournalEntry[] }> {
  const snapshot = await journal.readSnapshot?.(runId);
  const state = snapshot && restored(snapshot);
  if (state) {
    const [last, ...entries] = await journal.read(runId, snapshot.seq - 1);
    if (last) return { start: { state, seq: snapshot.seq }, entries };
  }
  return { start: { state: NEW, seq: 0 }, entries: await journal.read(runId) };
}

function unknownRun(runId: string): string {
  return `The journal has no run "${runId}". Check the id, and that it is the journal it was started with.`;
}

/** What a run needs to go on and was not given, in words. */
function missingCode({ rules }: State, options: ContinueOptions, agent: AgentRules | undefined): string | undefined {
  if (rules.prepared && !options.prepareTurn) return 'was started with prepareTurn. Give that to go on with it.';
  if (rules.agent?.name === agent?.name) return undefined;
  if (!rules.agent) return 'is no run of a typed agent. Go on with it by runLoop.';
  return `is one of the agent "${rules.agent.name}". Go on with it by executeAgent and that agent.`;
}

/** What was under way and waits for nobody outside; and the model call whose failure ended the run, to be tried again. */
function begunEffects(state: State): readonly string[] {
  const { phase } = state;
  if (phase.type === 'ended') return phase.effect === undefined ? [] : [phase.effect];
  if (phase.type !== 'tools') return outstanding(state).map(({ id }) => id);
  const begun = phase.slots.filter(({ type }) => type === 'running' || type === 'verifying');
  return begun.map((slot) => effectOf(slot)!.id);
}

/** Calls that go on elsewhere, and may have got further or run out of time there: they run again to find out, if they may. */
function parkedEffects({ phase }: State): readonly string[] {
  if (phase.type !== 'tools') return [];
  const parked = phase.slots.filter(({ type, call }) => type === 'parked' && call.effect !== 'once');
  return parked.map((slot) => effectOf(slot)!.id);
}

/** In words, how the tools at hand differ from those that a run has. Tools that it does not know yet do not count. */
function toolChanges(had: readonly ToolFacts[], tools: readonly Tool[]): readonly string[] {
  const now = new Map(tools.map((tool) => [tool.name, factsOf(tool)]));
  return had
    .filter((facts) => !isOwn(facts))
    .flatMap((facts) => {
      const current = now.get(facts.name);
      if (!current) return `"${facts.name}" is gone`;
      const changed = COMPARED.filter((key) => JSON.stringify(facts[key]) !== JSON.stringify(current[key]));
      return changed.length === 0 ? [] : `"${facts.name}" has another ${changed.join(' and ')}`;
    });
}

const COMPARED = ['parameters', 'effect', 'client'] as const;

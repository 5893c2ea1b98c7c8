import type {
  Answer,
  ContinueOptions,
  Item,
  JournalEntry,
  LoopOptions,
  LoopResult,
  Snapshot,
  TreadleError,
} from '@treadle/core';
import {
  answerTo,
  modelOf,
  optionsOf,
  outputOf,
  policyOf,
  prepareTurnOf,
  summariserOf,
  toolsOf,
  agentOf,
  type Begin,
  type Performed,
} from './live-world.ts';
import type { Core } from './core.ts';
import { slowJournal, type Durability, type SlowJournal } from './slow-journal.ts';
import { stage } from './stage.ts';
import { AT_REST, type World } from './world.ts';

/** What was seen of a run in the real shell, through all of its crashes and pauses. */
export interface LiveTrace {
  readonly world: World;
  /** What was durable at the end. */
  readonly entries: readonly JournalEntry[];
  readonly result: LoopResult | undefined;
  readonly sightings: readonly Sighting[];
}

/** Something that must not be before its time. `durable`: how many entries a crash would have left then. */
export type Sighting =
  | {
      readonly type: Performed;
      readonly id: string;
      readonly once: boolean;
      /** The entry that issued it. */
      readonly issued: number;
      readonly durable: number;
      /** The run had been cancelled or left. */
      readonly over: boolean;
    }
  | { readonly type: 'fact' | 'snapshot'; readonly seq: number; readonly durable: number }
  | { readonly type: 'result'; readonly appended: number; readonly durable: number }
  /** After a cancel, or when the run was left: signals that were not told. */
  | { readonly type: 'stop'; readonly deaf: number }
  /** It neither ended nor paused. */
  | { readonly type: 'stuck'; readonly why: string };

/** Longer than any world needs. */
const LONGEST = 1_500;

/**
 * Runs a world in the real shell, over a journal that is durable when it likes. A crash leaves what was durable, and
 * the run goes on from there; so it does after a pause, with what the world answers.
 */
export async function live(core: Core, world: World): Promise<LiveTrace> {
  const sightings: Sighting[] = [];
  const on = stage();
  const { moves } = world;
  let kept: readonly JournalEntry[] = [];
  let snapshot: Snapshot | undefined;
  let [appends, failures, opening] = [0, 0, 0];
  let journal!: SlowJournal;
  let settled: { readonly result?: LoopResult } | undefined;
  /** Nothing may begin any more. */
  let over = false;
  let run!: Begun;

  function durability(): Durability {
    const pick = moves[appends++ % Math.max(1, moves.length)]?.pick ?? 0;
    if (pick % 37 === 0 && failures++ < 2) return 'never';
    return pick % 3 === 0 ? 'now' : 'later';
  }

  const begin: Begin = (type, id, once = false) => {
    const issued = journal.appended.findLastIndex((entry) => entry.issued.includes(id));
    sightings.push({ type, id, once, issued, durable: journal.durable(), over });
  };
  const latest = (): string =>
    journal.appended.flatMap(({ issued }) => issued.filter((id) => id.includes('.validate.'))).at(-1)!;
  const { judged, prepared, output } = world.rules;
  const given = {
    model: modelOf(world, on, begin, 'live'),
    models: [modelOf(world, on, begin, 'other')],
    summariser: summariserOf(world, on, begin),
    tools: toolsOf(core, world, on, begin),
    ...(judged && { policy: policyOf(world, on, begin) }),
    ...(prepared && { prepareTurn: prepareTurnOf(world, on, begin) }),
    ...(output && { output: outputOf(world, on, begin, latest) }),
  };

  const agent = agentOf(world, on, begin, latest);

  function open(answers: readonly Answer[] | undefined): void {
    const mine = ++opening;
    settled = undefined;
    over = false;
    journal = slowJournal({
      kept,
      snapshot,
      next: durability,
      wait: (settle) => on.jobs.push({ settle }),
      keep(kept) {
        snapshot = kept;
        sightings.push({ type: 'snapshot', seq: kept.seq - 1, durable: durable() });
      },
    });
    const { durable } = journal;
    const onItem = (item: Item): void => {
      if (item.type === 'fact') sightings.push({ type: 'fact', seq: item.seq, durable: durable() });
    };
    const around = { ...given, journal, runId: 'run', clock: on.clock, onItem };
    const options = answers ? { ...around, answers } : { ...around, ...optionsOf(world) };
    const began = agent ? core.start(options, onItem, agent) : begun(core, options, moves.length % 2 === 0);
    run = began;
    began.result.then(
      (result) => {
        if (mine !== opening) return;
        sightings.push({ type: 'result', appended: journal.appended.length, durable: durable() });
        settled = { result };
      },
      (error: unknown) => {
        if (mine !== opening) return;
        settled = {};
        const { code, message } = error as TreadleError;
        if (code !== 'journal-failed') sightings.push({ type: 'stuck', why: message });
      },
    );
  }

  /** What a crash leaves, and the run goes on from there. */
  function reopen(answers: readonly Answer[]): void {
    opening++;
    kept = journal.appended.slice(0, journal.durable());
    on.clear();
    open(kept.length > 0 ? answers : undefined);
  }

  /** Ends the run, or merely leaves it: either way nothing goes on. */
  function stop(how: 'cancel' | 'detach'): void {
    run[how]();
    over = true;
    const deaf = on.jobs.filter(({ signal }) => signal && !signal.aborted).length;
    sightings.push({ type: 'stop', deaf });
  }

  open(undefined);
  for (let count = 0; ; count++) {
    if (count > LONGEST) throw new Error('the run goes on for ever');
    await nothingMoves();
    if (settled) {
      const { result } = settled;
      const answers = result?.waiting.flatMap((waiting) => answerTo(world, waiting, on) ?? []) ?? [];
      if ((result && !result.detached && answers.length === 0) || sightings.at(-1)?.type === 'stuck') break;
      reopen(answers);
      continue;
    }
    const { act, pick, delay } = moves[count] ?? AT_REST;
    on.advance(delay);
    if (act === 'cancel') stop('cancel');
    else if (act === 'fork') stop('detach');
    else if (act === 'input') run.send(`input ${pick}`);
    else if (act === 'restart' || act === 'lose' || act === 'tools') reopen([]);
    else if (act === 'deadline') on.skip();
    else if (!on.settle(pick) && count >= moves.length && !on.skip()) {
      sightings.push({ type: 'stuck', why: 'nothing goes on' });
      break;
    }
  }
  return { world, entries: journal.appended.slice(0, journal.durable()), result: settled?.result, sightings };
}

interface Begun {
  readonly result: Promise<LoopResult>;
  readonly cancel: () => void;
  readonly detach: () => unknown;
  readonly send: (text: string) => unknown;
}

/** By either door; only a run that is streamed can be left, so the other one is cancelled instead. */
function begun({ runLoop, streamLoop }: Core, options: LoopOptions | ContinueOptions, streamed: boolean): Begun {
  if (streamed) return streamLoop(options);
  const controller = new AbortController();
  const cancel = (): void => controller.abort();
  return { result: runLoop({ ...options, signal: controller.signal }), cancel, detach: cancel, send: () => {} };
}

/** A macrotask from now: until then every promise that can go on has gone on. */
function nothingMoves(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

import type {
  Answer,
  ContinueOptions,
  Item,
  JournalEntry,
  LoopOptions,
  LoopResult,
  Snapshot,
  Tool,
  TreadleError,
} from '@treadle/core';
import {
  answerTo,
  modelOf,
  optionsOf,
  outputOf,
  guardrailsOf,
  policyOf,
  prepareTurnOf,
  summariserOf,
  toolsOf,
  agentOf,
  type OnStart,
  type Performed,
} from './live-world.ts';
import type { Core } from './core.ts';
import { slowJournal, type Durability, type SlowJournal } from './slow-journal.ts';
import { manualScheduler } from './manual-scheduler.ts';
import { SETTLE_FIRST, type World } from './world.ts';

/** What was observed of a run in the real driver, over all of its crashes and pauses. */
export interface LiveTrace {
  readonly world: World;
  /** The entries that were durable at the end. */
  readonly entries: readonly JournalEntry[];
  readonly result: LoopResult | undefined;
  readonly observations: readonly Observation[];
}

/** Something that must not happen too early. `durable`: how many entries were durable at that time. */
export type Observation =
  | {
      readonly type: Performed;
      readonly id: string;
      readonly once: boolean;
      /** The entry that issued it. */
      readonly issued: number;
      readonly durable: number;
      /** The run had been cancelled or detached. */
      readonly over: boolean;
      /** The active time of the run was used up. */
      readonly late: boolean;
    }
  | { readonly type: 'fact' | 'snapshot'; readonly seq: number; readonly durable: number }
  | { readonly type: 'result'; readonly appended: number; readonly durable: number }
  /** After a cancellation or a detach: how many signals were not aborted. */
  | { readonly type: 'stop'; readonly notAborted: number }
  /** The run neither ended nor paused. */
  | { readonly type: 'stuck'; readonly why: string };

/** More moves than any world needs. */
const MOST_MOVES = 1_500;

/**
 * Runs a world in the real driver, on a journal that becomes durable at any time. After a crash the run is resumed from
 * the durable entries, and after a pause with the answers of the world.
 */
export async function live(core: Core, world: World): Promise<LiveTrace> {
  const observations: Observation[] = [];
  const scheduler = manualScheduler();
  const { moves } = world;
  let stored: readonly JournalEntry[] = [];
  let snapshot: Snapshot | undefined;
  let [appends, failures, opening] = [0, 0, 0];
  let journal!: SlowJournal;
  let settled: { readonly result?: LoopResult } | undefined;
  /** No effect may start any more. */
  let over = false;
  let run!: StartedRun;

  function durability(): Durability {
    const pick = moves[appends++ % Math.max(1, moves.length)]?.pick ?? 0;
    if (pick % 37 === 0 && failures++ < 2) return 'never';
    return pick % 3 === 0 ? 'now' : 'later';
  }

  const onStart: OnStart = (type, id, once = false) => {
    const issued = journal.appended.findLastIndex((entry) => entry.issued.includes(id));
    observations.push({ type, id, once, issued, durable: journal.durable(), over, late: isLate() });
  };
  const { durationMs } = world.rules.limits;
  const isLate = (): boolean => {
    if (durationMs === undefined) return false;
    return core.activeMsAt(core.replay(journal.appended).state, scheduler.clock.now()) >= durationMs;
  };
  const latestOf = (kind: string) => (): string =>
    journal.appended.flatMap(({ issued }) => issued.filter((id) => id.includes(`.${kind}.`))).at(-1)!;
  const latest = latestOf('validate');
  const { judged, prepared, output, guardrails } = world.rules;
  const other = modelOf(world, scheduler, onStart, 'other');
  const tools = toolsOf(core, world, scheduler, onStart, () => opening);
  const code = {
    model: modelOf(world, scheduler, onStart, 'live'),
    models: [other],
    summariser: summariserOf(world, scheduler, onStart),
    tools,
    ...(!world.rules.agent && { agents: [{ name: 'clerk', instructions: 'be a clerk', model: other, tools }] }),
    ...(guardrails && { guardrails: guardrailsOf(world, scheduler, onStart, latestOf('guard')) }),
    ...(judged && { policy: policyOf(world, scheduler, onStart) }),
    ...(prepared && { prepareTurn: prepareTurnOf(world, scheduler, onStart) }),
    ...(output && { output: outputOf(world, scheduler, onStart, latest) }),
  };

  /** Without one of the tools. Those of a typed agent itself and one that must be called stay. */
  const someTools = (pick: number): readonly Tool[] => {
    const { agent: given, toolChoice } = world.rules;
    const required = [given?.output, given?.submit, typeof toolChoice === 'object' && toolChoice.tool];
    const out = code.tools[pick % code.tools.length]!.name;
    const some = code.tools.filter(({ name }) => required.includes(name) || name !== out);
    return some.length > 0 ? some : code.tools;
  };

  const agent = agentOf(world, scheduler, onStart, latest);

  function open(answers: readonly Answer[] | undefined): void {
    const thisOpening = ++opening;
    settled = undefined;
    over = false;
    journal = slowJournal({
      kept: stored,
      snapshot,
      next: durability,
      wait: (settle) => scheduler.jobs.push({ settle }),
      keep(stored) {
        snapshot = stored;
        observations.push({ type: 'snapshot', seq: stored.seq - 1, durable: durable() });
      },
    });
    const { durable } = journal;
    const onItem = (item: Item): void => {
      if (item.type === 'fact') observations.push({ type: 'fact', seq: item.seq, durable: durable() });
    };
    const shared = { ...code, journal, runId: 'run', clock: scheduler.clock, onItem };
    const options = answers ? { ...shared, answers } : { ...shared, ...optionsOf(world) };
    const started = agent ? core.driveRun(options, onItem, { agent }) : startRun(core, options, moves.length % 2 === 0);
    run = started;
    started.result.then(
      (result) => {
        if (thisOpening !== opening) return;
        observations.push({ type: 'result', appended: journal.appended.length, durable: durable() });
        settled = { result };
      },
      (error: unknown) => {
        if (thisOpening !== opening) return;
        settled = {};
        const { code, message } = error as TreadleError;
        if (code !== 'journal-failed') observations.push({ type: 'stuck', why: message });
      },
    );
  }

  /** Crashes, and resumes the run from the durable entries. */
  function reopen(answers: readonly Answer[]): void {
    opening++;
    stored = journal.appended.slice(0, journal.durable());
    scheduler.clear();
    open(stored.length > 0 ? answers : undefined);
  }

  /** Cancels or detaches the run: both abort all effects. */
  function stop(how: 'cancel' | 'detach'): void {
    run[how]();
    over = true;
    const notAborted = scheduler.jobs.filter(({ signal }) => signal && !signal.aborted).length;
    observations.push({ type: 'stop', notAborted });
  }

  open(undefined);
  for (let count = 0; ; count++) {
    if (count > MOST_MOVES) throw new Error('the run never ends');
    await promisesSettled();
    if (settled) {
      const { result } = settled;
      const answers = result?.waiting.flatMap((waiting) => answerTo(world, waiting, scheduler) ?? []) ?? [];
      if ((result && !result.detached && answers.length === 0) || observations.at(-1)?.type === 'stuck') break;
      reopen(answers);
      continue;
    }
    const { act, pick, delay } = moves[count] ?? SETTLE_FIRST;
    scheduler.advance(delay);
    if (act === 'cancel') stop('cancel');
    else if (act === 'fork') stop('detach');
    else if (act === 'input') run.send(`input ${pick}`);
    else if (act === 'lift') run.liftNarrowing?.();
    else if (act === 'tools' && run.changeTools && pick % 2 === 0) run.changeTools(someTools(pick));
    else if (act === 'restart' || act === 'lose' || act === 'tools') reopen([]);
    else if (act === 'deadline') scheduler.skip();
    else if (!scheduler.settle(pick) && count >= moves.length && !scheduler.skip()) {
      observations.push({ type: 'stuck', why: 'nothing is in progress' });
      break;
    }
  }
  return { world, entries: journal.appended.slice(0, journal.durable()), result: settled?.result, observations };
}

interface StartedRun {
  readonly result: Promise<LoopResult>;
  readonly cancel: () => void;
  readonly detach: () => unknown;
  readonly send: (text: string) => unknown;
  readonly liftNarrowing?: () => unknown;
  readonly changeTools?: (tools: readonly Tool[]) => unknown;
}

/** Starts by `streamLoop` or by `runLoop`, whose runs cannot be detached and are cancelled instead. */
function startRun(
  { runLoop, streamLoop }: Core,
  options: LoopOptions | ContinueOptions,
  streamed: boolean,
): StartedRun {
  if (streamed) return streamLoop(options);
  const controller = new AbortController();
  const cancel = (): void => controller.abort();
  return { result: runLoop({ ...options, signal: controller.signal }), cancel, detach: cancel, send: () => {} };
}

/** Resolves in a macrotask, after all promises that can settle have settled. */
function promisesSettled(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

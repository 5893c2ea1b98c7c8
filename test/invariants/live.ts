import type {
  Answer,
  Autonomy,
  ContinueOptions,
  Exposure,
  Item,
  JournalEntry,
  LoopOptions,
  LoopResult,
  Policy,
  Snapshot,
  Tool,
  TreadleError,
} from '@treadle/core';
import {
  answersTo,
  filtersOf,
  modelOf,
  optionsOf,
  outputOf,
  guardrailsOf,
  policyOf,
  prepareTurnOf,
  rulePolicyOf,
  summariserOf,
  toolsOf,
  agentOf,
  type OnStart,
  type Performed,
} from './live-world.ts';
import type { Core } from './core.ts';
import { SOURCES } from './generate/rules.ts';
import { liveBudget } from './live-budget.ts';
import { slowJournal, type Durability, type SlowJournal } from './slow-journal.ts';
import { manualScheduler } from './manual-scheduler.ts';
import { same } from './trace.ts';
import { hasRules, isFiltered, SETTLE_FIRST, type World } from './world.ts';

/** What was observed of a run in the real driver, over all of its crashes and pauses. */
export interface LiveTrace {
  readonly world: World;
  /** The entries that were durable at the end. */
  readonly entries: readonly JournalEntry[];
  readonly result: LoopResult | undefined;
  readonly observations: readonly Observation[];
}

/** Something that must not happen too early. `accepted`, `durable`: how many entries were so at that time. */
export type Observation =
  | {
      readonly type: Performed;
      readonly id: string;
      readonly once: boolean;
      /** It calls a tool, or verifies a call, that is not `pure`. */
      readonly acts: boolean;
      /** The entry that issued it. */
      readonly issued: number;
      readonly accepted: number;
      readonly durable: number;
      /** The run had been cancelled or detached. */
      readonly over: boolean;
      /** The active time of the run was used up. */
      readonly late: boolean;
      /** A tool was called although this process has a policy, and the run is not judged by one. */
      readonly unjudged: boolean;
    }
  /** `sent`: the listener sends it out of the process. */
  | {
      readonly type: 'fact';
      readonly seq: number;
      readonly sent: boolean;
      readonly accepted: number;
      readonly durable: number;
    }
  | { readonly type: 'snapshot'; readonly seq: number; readonly accepted: number }
  /** Input that was acknowledged to its sender. */
  | { readonly type: 'acknowledged'; readonly seq: number; readonly durable: number }
  | { readonly type: 'result'; readonly appended: number; readonly durable: number }
  /** After a cancellation or a detach: how many signals were not aborted. */
  | { readonly type: 'stop'; readonly notAborted: number }
  /** What was settled and reserved differs from what was used, or exceeds the budget. */
  | { readonly type: 'budget'; readonly problem: string }
  /** The run neither ended nor paused. */
  | { readonly type: 'stuck'; readonly why: string };

/** More moves than any world needs. */
const MOST_MOVES = 1_500;

/**
 * Runs a world in the real driver, on a journal that is written at any time. After a crash the run is resumed from the
 * durable entries; all others are lost, and after a pause with the answers of the world.
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
  /** By the monotonic clock. */
  let appendedAt = 0;

  /** Called at each append. */
  function durability(): Durability {
    appendedAt = scheduler.clock.monotonic();
    const pick = moves[appends++ % Math.max(1, moves.length)]?.pick ?? 0;
    if (pick % 37 === 0 && failures++ < 2) return 'never';
    return pick % 3 === 0 ? 'now' : 'later';
  }

  const budget = world.rules.budgeted && liveBudget(core, world, scheduler);

  const issuedAt = (id: string): number => journal.appended.findLastIndex((entry) => entry.issued.includes(id));

  const onStart: OnStart = (type, id, effect = 'pure') => {
    budget?.onStart(type, id);
    const verify = id.replace('.tool.', '.verify.');
    // A call that was aborted with its process is verified by an effect of its own.
    if (type === 'verify-timeout' && issuedAt(verify) > issuedAt(id)) return onStart('verify-tool', verify, effect);
    const issued = issuedAt(id);
    const stored = { accepted: journal.accepted(), durable: journal.durable() };
    const [once, acts] = [effect === 'once', effect !== 'pure'];
    const unjudged = type === 'call-tool' && policy() !== undefined && !isJudged();
    observations.push({ type, id, once, acts, issued, ...stored, over, late: isLate(), unjudged });
  };
  const { durationMs } = world.rules.limits;
  const isLate = (): boolean => {
    if (durationMs === undefined) return false;
    const { now, monotonic } = scheduler.clock;
    const moment = { at: now(), elapsedMs: monotonic() - appendedAt };
    return core.activeMsAt(core.replay(journal.appended).state, moment) >= durationMs;
  };
  const isJudged = (): boolean => {
    const { rules, policies } = core.replay(journal.appended).state;
    return rules.judged || policies !== undefined;
  };
  const latestOf = (kind: string) => (): string =>
    journal.appended.flatMap(({ issued }) => issued.filter((id) => id.includes(`.${kind}.`))).at(-1)!;
  const latest = latestOf('validate');
  const { judged, prepared, output, guardrails } = world.rules;
  const other = modelOf(world, scheduler, onStart, 'other');
  const tools = toolsOf(core, world, scheduler, onStart, () => opening);
  const isOpen = (id: string): boolean =>
    core.outstanding(core.replay(journal.appended).state).some((effect) => effect.id === id);
  const onJudge = (autonomy: Autonomy | undefined, told: Exposure | undefined): void => {
    const { narrowed = [], exposure } = core.replay(journal.appended).state;
    if (!same(told, exposure))
      observations.push({ type: 'stuck', why: `the policy was told ${JSON.stringify(told)} as what the run has seen` });
    const due = narrowed.flatMap((one) => one.autonomy ?? []).toSorted()[0];
    if (autonomy !== due)
      observations.push({ type: 'stuck', why: `the policy was told level ${autonomy}, not ${due}` });
  };
  /** With rules that change whenever the run is resumed, some worlds start without a policy. */
  const policy = (): Policy | undefined => {
    if (world.policy === undefined)
      return judged ? policyOf(world, scheduler, onStart, { level: undefined, isOpen, onJudge }) : undefined;
    if (!judged && opening === 1) return undefined;
    if (hasRules(world.policy)) return rulePolicyOf(world.policy, scheduler, onStart, { opening, isOpen, onJudge });
    return policyOf(world, scheduler, onStart, { level: opening % 2, isOpen, onJudge });
  };
  const code = {
    model: modelOf(world, scheduler, onStart, 'live'),
    models: [other],
    summariser: summariserOf(world, scheduler, onStart),
    tools,
    ...(!world.rules.agent && { agents: [{ name: 'clerk', instructions: 'be a clerk', model: other, tools }] }),
    ...(guardrails && { guardrails: guardrailsOf(world, scheduler, onStart, latestOf('guard')) }),
    ...(budget && { ledger: budget.ledger }),
    ...(isFiltered(world) && { resultFilters: filtersOf(scheduler) }),
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
        observations.push({ type: 'snapshot', seq: stored.seq - 1, accepted: accepted() });
      },
    });
    const { accepted, durable } = journal;
    const durableItems = moves.length % 3 === 0;
    const onItem = (item: Item): void => {
      if (item.type !== 'fact') return;
      observations.push({
        type: 'fact',
        seq: item.seq,
        sent: durableItems,
        accepted: accepted(),
        durable: durable(),
      });
    };
    const judge = policy();
    const shared = {
      ...code,
      ...(judge && { policy: judge }),
      journal,
      runId: 'run',
      clock: scheduler.clock,
      onItem,
      durableItems,
    };
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
        // An answer to an approval that new rules have denied: the run is resumed without it.
        const denied = code === 'answer-unfit' && world.policy !== undefined;
        const failed = code === 'journal-failed' || code === 'ledger-failed';
        if (!failed && !denied) observations.push({ type: 'stuck', why: message });
      },
    );
  }

  /** Crashes, and resumes the run from the durable entries. */
  function reopen(answers: readonly Answer[]): void {
    opening++;
    stored = journal.appended.slice(0, journal.durable());
    // It is not durable before the entries that it covers.
    if (snapshot && snapshot.seq > stored.length) snapshot = undefined;
    scheduler.clear();
    open(stored.length > 0 ? answers : undefined);
  }

  function send(text: string): void {
    const to = journal;
    void run.send(text)?.then(
      (isAdded) => {
        if (!isAdded) return;
        const seq = to.appended.findIndex((entry) => JSON.stringify(entry).includes(text));
        observations.push({ type: 'acknowledged', seq, durable: to.durable() });
      },
      () => {},
    );
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
    await promisesSettled(journal.appended.length);
    const problem = await budget?.problem();
    if (problem !== undefined) observations.push({ type: 'budget', problem });
    if (settled) {
      const { result } = settled;
      const answers = answersTo(world, result?.waiting ?? [], scheduler);
      if ((result && !result.detached && answers.length === 0) || observations.at(-1)?.type === 'stuck') break;
      reopen(answers);
      continue;
    }
    const { act, pick, delay } = moves[count] ?? SETTLE_FIRST;
    scheduler.advance(delay);
    if (act === 'cancel') stop('cancel');
    else if (act === 'fork') stop('detach');
    else if (act === 'input') send(`input ${pick} at ${count}`);
    else if (act === 'lift')
      void run.liftNarrowing?.('ann', pick % 5 === 0 ? SOURCES[pick % SOURCES.length] : undefined);
    else if (act === 'tools' && run.changeTools && pick % 2 === 0) void run.changeTools(someTools(pick));
    else if (act === 'restart' || act === 'lose' || act === 'tools') reopen([]);
    else if (act === 'deadline' && pick % 3 === 0) scheduler.set(pick % 2 === 0 ? HOUR : -HOUR);
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
  readonly send: (text: string) => Promise<boolean> | undefined;
  readonly liftNarrowing?: (by?: string, source?: string) => unknown;
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
  return { result: runLoop({ ...options, signal: controller.signal }), cancel, detach: cancel, send: () => undefined };
}

/** Resolves in a macrotask, after all promises that can settle have settled. A run with many entries is read in slices. */
async function promisesSettled(entries: number): Promise<void> {
  for (let left = entries; left >= 0; left -= FEWER_THAN_A_SLICE) {
    await new Promise<void>((resolve) => void setImmediate(resolve));
  }
}

const HOUR = 3_600_000;

/** The driver lets the event loop turn after more entries than these. */
const FEWER_THAN_A_SLICE = 200;

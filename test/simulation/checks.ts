import type { Effect, Event, JournalEntry, LoopResult, State, Waiting } from '@treadle/core';
import { checkResults } from '../invariants/i1-results.ts';
import { checkPermission } from '../invariants/i2-permission.ts';
import { checkEnding } from '../invariants/i4-ending.ts';
import { checkLimits } from '../invariants/i6-limits.ts';
import { NOTHING_OBSERVED, observedAfter, shouldApply } from '../invariants/observed.ts';
import { messagesOf, outcomeOf, same, type Moment, type Trace } from '../invariants/trace.ts';
import type { Disk } from './disk.ts';
import type { Act, Execution, Ledger } from './ledger.ts';
import { LEASE_MS, type Machines, type Process } from './machine.ts';
import { CRASH_LIMIT, promisesIn, rootOf, type Core, type Resource } from './runs.ts';
import type { Scheduler } from './scheduler.ts';
import { createStoreChecks } from './store-checks.ts';
import { ensure, Violation } from './violation.ts';

/** What the store must contain of a run: derived from its rows when they were committed, with `step` alone. */
export interface Reference {
  readonly runId: string;
  readonly entries: JournalEntry[];
  /** The states before the first entry and after each one. */
  readonly states: State[];
  /** In which transaction each entry was committed. */
  readonly commits: number[];
  /** The entry that issued an effect last. */
  readonly issued: Map<string, number>;
  /** It was damaged in the store, when this was the last token. Nothing may drive it with a later one. */
  damage?: { readonly token: number; readonly commits: number } | undefined;
  /** The transaction in which it was deleted. */
  deleted?: number | undefined;
  /** How many of its entries somebody was shown. */
  shown: number;
}

interface LeaseSeen {
  readonly token: number;
  readonly renewal: number;
  readonly holder: Process;
  /** The driver before it has died. */
  readonly takenOver: boolean;
  /** When it was renewed, by the monotonic clock of each host. */
  readonly monotonic: readonly number[];
}

/** When a lease of a process that is alive was taken over. */
interface Takeover {
  readonly runId: string;
  readonly from: Process;
  readonly to: Process;
  readonly at: number;
}

interface RunRow {
  readonly id: number;
  readonly run: string;
  readonly entries: number;
  readonly status: string;
}

interface LeaseRow {
  readonly token: number;
  readonly run: string;
  readonly pid: number;
  readonly process_start: string;
  readonly expires_at: number;
}

/** A driver that runs notices within a third of the lease time, and needs a moment to write. Its clock may be 5% slow. */
const NOTICE_MS = (LEASE_MS / 3) * 1.06 + 1_000;

export type Checks = ReturnType<typeof createChecks>;

/** Checks the store and the ledger after every step. */
export function createChecks(
  core: Core,
  parts: {
    readonly scheduler: Scheduler;
    readonly disk: Disk;
    readonly ledger: Ledger;
    readonly resources: readonly Resource[];
    /** Whether a run draws on the budget, by the id of the run that people have started. */
    readonly isBudgeted: (root: string) => boolean;
    readonly isFiltered: (root: string) => boolean;
    readonly cover: (what: string) => void;
    readonly report: (failure: Error) => void;
  },
) {
  const { scheduler, disk, ledger, resources, isBudgeted, isFiltered, cover, report } = parts;
  const { now } = scheduler;
  const findRuns = disk.prepare('SELECT id, run, entries, status FROM runs');
  const findEntries = disk.prepare('SELECT seq, entry FROM entries WHERE run = ? AND seq >= ? ORDER BY seq');
  const findLeases = disk.prepare('SELECT token, run, pid, process_start, expires_at FROM leases');
  const runs = new Map<string, Reference>();
  const leases = new Map<string, LeaseSeen>();
  const takeovers: Takeover[] = [];
  /** The highest token that an effect of a run was started with, and by whom. */
  const tokens = new Map<string, { readonly token: number; readonly process: Process }>();
  const inputs = new Map<string, string>();
  /** How many cancels may still reach a run. */
  const cancels = new Map<string, number>();
  /** Messages and answers that were refused, by run. */
  const refused = new Map<string, string[]>();
  const attempts = new Map<string, number>();
  const tables = createStoreChecks(disk, isRaised);
  /** Runs that may be deleted, and forks, by their ids. */
  const [deletable, forks] = [new Set<string>(), new Set<string>()];
  let lastToken = 0;
  let machines: Machines;
  /** Deaths of which the journal may have no record. */
  let uncounted = 0;

  /** Reads what a process has just committed. */
  function onCommit(process: Process): void {
    const isDeletion = (disk.wrote('runs') || disk.wrote('entries')) && checkRuns(process);
    if (disk.wrote('leases')) checkLeases(process);
    tables.onCommit(isDeletion || disk.commits() % 16 === 0);
  }

  /** Whether a run was deleted. */
  function checkRuns(process: Process): boolean {
    const rows = findRuns.all() as unknown as readonly RunRow[];
    for (const row of rows) checkRun(row, process);
    return checkDeleted(rows);
  }

  /** Whether a run was deleted. */
  function checkDeleted(rows: readonly RunRow[]): boolean {
    let isDeletion = false;
    if (rows.length === runs.size) return isDeletion;
    const stored = new Set(rows.map(({ run }) => run));
    for (const known of runs.values()) {
      const { runId, entries, damage, deleted } = known;
      if (stored.has(runId) || entries.length === 0 || damage || deleted !== undefined) continue;
      ensure(deletable.has(rootOf(runId)), 'append only', () => `run ${runId} has vanished`);
      known.deleted = disk.commits();
      isDeletion = true;
    }
    return isDeletion;
  }

  function checkRun({ id, run, entries: count, status }: RunRow, writer: Process): void {
    const known = referenceOf(run);
    if (known.damage || count === known.entries.length) return;
    ensure(count > known.entries.length, 'append only', () => `run ${run} lost entries`);
    // As it was before this transaction.
    const held = leases.get(run);
    const isFork = known.entries.length === 0 && !held && forks.has(run);
    ensure(
      isFork || held?.holder === writer,
      'lease',
      () => `${writer.name} appends to run ${run}, and ${describeLease(held)}`,
    );
    const added = findEntries
      .all(id, known.entries.length)
      .map(({ seq, entry }) => JSON.parse(tables.entryText(id, seq as number, entry as string)) as JournalEntry);
    const before = known.entries.length;
    const replayed = core.walkJournal(
      added,
      ({ entry, state }) => {
        known.entries.push(entry);
        known.states.push(state);
        known.commits.push(disk.commits());
        for (const effect of entry.issued) known.issued.set(effect, entry.seq);
      },
      { state: known.states.at(-1)!, seq: before },
    );
    ensure(replayed.type === 'replayed', 'I5 replay', () => `run ${run} does not replay: ${describe(replayed)}`);
    const { length } = known.entries;
    // A run that is not written again is not looked at again.
    ensure(length === count, 'I5 replay', () => `run ${run} has ${length} entries, and is stored with ${count}`);
    ensure(core.statusOf(known.states.at(-1)!) === status, 'I5 replay', () => `run ${run} is stored as ${status}`);
    for (const { event } of added) {
      scheduler.log(`    ${run} ${known.entries.length} ${event.type}${'effect' in event ? ` ${event.effect}` : ''}`);
      if (event.type === 'cancel-requested' && !isFork) checkCancel(run);
      if (SAYING.has(event.type)) checkRefused(run, event);
      if (event.type === 'effect-lost') cover('lost effect');
      if (event.type === 'tool-parked') cover('parked');
      if (event.type === 'approval-given') cover('approval');
      if (event.type === 'child-started') cover('child run');
      if (event.type === 'input-added') cover('input');
      // Deaths count only if they follow each other without another entry.
      if (INTERRUPTING.has(event.type) || ANSWERED.has(event.type)) uncounted += CRASH_LIMIT;
      if (event.type === 'budget-refused') cover('refused budget');
      if (event.type === 'budget-escalated') cover(event.question ? 'escalated model call' : 'escalated call');
      if (event.type === 'call-rejudged') cover('judged again');
      if (event.type === 'approval-given' && event.approved && event.raises === run) cover('raised budget');
      if (event.type === 'tool-settled') checkExamined(run, event);
      if (event.type === 'tool-settled' && event.result.type === 'result' && event.result.handoff) cover('handoff');
    }
  }

  /** Nothing is recorded before it was filtered, or without what it exposes the run to. */
  function checkExamined(run: string, { effect, result }: Extract<Event, { type: 'tool-settled' }>): void {
    if (result.type !== 'result') return;
    if (result.exposes) cover(result.exposes.private ? 'seen private data' : 'seen outside content');
    const isSearch = inputs.get(`${run}/${effect}`)?.startsWith('search ') === true && !result.isError;
    ensure(
      !isSearch || result.exposes?.outside !== undefined,
      'exposure',
      () => `${effect} of run ${run} exposes nothing`,
    );
    if (!isFiltered(rootOf(run))) return;
    const isSeen = !JSON.stringify(result.content).includes(' did ');
    ensure(isSeen, 'filter', () => `the result of ${effect} of run ${run} is not filtered`);
    if (result.filtered) cover('filtered result');
  }

  function referenceOf(run: string): Reference {
    let known = runs.get(run);
    if (!known) {
      known = { runId: run, entries: [], states: [core.NEW], commits: [], issued: new Map(), shown: 0 };
      runs.set(run, known);
    }
    return known;
  }

  /** A run is cancelled only if somebody wants that who has not been told that it is refused. */
  function checkCancel(run: string): void {
    if (run.includes('.')) return checkChildCancel(run);
    const isWanted = (cancels.get(run) ?? 0) > 0;
    ensure(isWanted, 'acknowledged', () => `run ${run} is cancelled, and nobody wants that`);
  }

  /** A child run is cancelled only when the end of its parent is durable. */
  function checkChildCancel(child: string): void {
    const parent = runs.get(child.replace(CHILD, ''));
    if (parent?.damage) return;
    const ended = parent ? parent.states.findIndex(({ phase }) => phase.type === 'ended') : -1;
    ensure(ended > 0, 'cancel order', () => `run ${child} is cancelled, and its parent has not ended`);
    const isDurable = parent!.commits[ended - 1]! <= disk.durable();
    ensure(isDurable, 'cancel order', () => `run ${child} is cancelled, and the end of its parent is not durable`);
  }

  /** What was refused does not happen later. */
  function checkRefused(run: string, event: Event): void {
    for (const mark of refused.get(run) ?? [])
      ensure(!isSaid(event, mark), 'acknowledged', () => `"${mark}" was refused, and run ${run} has it since`);
  }

  function checkLeases(writer: Process): void {
    const rows = findLeases.all() as unknown as readonly LeaseRow[];
    const left = new Set(leases.keys());
    for (const { run, token, expires_at, pid, process_start } of rows) {
      left.delete(run);
      lastToken = Math.max(lastToken, token);
      const seen = leases.get(run);
      if (seen?.token === token && seen.renewal === expires_at) continue;
      const isRenewal = seen?.token === token;
      const holder = isRenewal ? seen.holder : machines.find(pid, process_start)!;
      // A process that could not release its lease has not died.
      const takenOver = isRenewal ? seen.takenOver : seen !== undefined && seen.holder !== holder;
      if (seen && seen.token !== token) leaveLease(run, seen, writer);
      const monotonic = machines.hosts.map((host) => host.monotonic());
      leases.set(run, { token, renewal: expires_at, holder, takenOver, monotonic });
    }
    for (const run of left) {
      leaveLease(run, leases.get(run)!, writer);
      leases.delete(run);
    }
  }

  /** The lease was deleted: released by its holder, or taken over by another process. */
  function leaveLease(runId: string, { holder, monotonic }: LeaseSeen, writer: Process): void {
    if (holder === writer) return;
    if (!holder.alive) return cover('takeover of a dead process');
    cover('takeover of a live process');
    takeovers.push({ runId, from: holder, to: writer, at: now() });
    const who = `${writer.name} takes run ${runId} over from ${holder.name}`;
    ensure(holder.host !== writer.host, 'takeover', () => `${who}, which is alive on the same host`);
    const place = machines.hosts.indexOf(writer.host);
    const elapsed = writer.host.monotonic() - monotonic[place]!;
    ensure(elapsed >= LEASE_MS - 1, 'takeover', () => `${who}, ${elapsed} ms after its last renewal`);
  }

  function onPowerFailure(): void {
    uncounted += CRASH_LIMIT;
    leases.clear();
    tables.onPowerFailure();
    // They run on the same machines.
    for (const resource of resources) resource.open = false;
    for (const known of runs.values()) {
      // The damage was written after a transaction that is undone.
      if (known.damage && disk.commits() < known.damage.commits) known.damage = undefined;
      if (known.deleted !== undefined && disk.commits() < known.deleted) known.deleted = undefined;
      const kept = known.commits.filter((commit) => commit <= disk.commits()).length;
      if (kept < known.entries.length) cover('lost entries');
      const { runId, shown } = known;
      ensure(kept >= shown, 'shown', () => `${shown} entries of run ${runId} were shown, and ${kept} survive`);
      known.entries.length = kept;
      known.commits.length = kept;
      known.states.length = kept + 1;
      known.issued.clear();
      for (const { seq, issued } of known.entries) for (const effect of issued) known.issued.set(effect, seq);
    }
    for (const { run, token, expires_at, pid, process_start } of findLeases.all() as unknown as readonly LeaseRow[]) {
      const holder = machines.find(pid, process_start)!;
      leases.set(run, {
        token,
        renewal: expires_at,
        holder,
        // All processes have died, but this one may be asked for again before another has the lease.
        takenOver: false,
        monotonic: machines.hosts.map((host) => host.monotonic()),
      });
    }
  }

  /** Whether the parent of a child run has recorded that it has begun. Before that, it has done nothing. */
  function hasBegun(child: string): boolean {
    const [parent, effect] = [child.replace(CHILD, ''), CHILD.exec(child)?.[1]];
    return runs.get(parent)!.entries.some(({ event }) => event.type === 'child-started' && event.effect === effect);
  }

  function onDamage(known: Reference): void {
    known.damage = { token: lastToken, commits: disk.commits() };
  }

  /** The run and the effect of a key. */
  function partsOf(key: string): readonly [Reference | undefined, string] {
    const slash = key.lastIndexOf('/');
    return [runs.get(key.slice(0, slash)), key.slice(slash + 1)];
  }

  /** What happens to a damaged run is not known. */
  function isRaised(key: string): boolean {
    const [known, id] = partsOf(key);
    if (known?.damage) return true;
    const ask = id.replace('.tool.', '.approval.');
    const raises = ({ event }: JournalEntry): boolean =>
      event.type === 'approval-given' && event.effect === ask && event.approved && event.raises === known!.runId;
    return known?.entries.some(raises) === true;
  }

  function onStart({ key, effect, tool, input, token, process }: Execution): void {
    const [known, id] = partsOf(key);
    const state = known?.states.at(-1);
    const issued = state && core.outstanding(state).find(isCallOf(id));
    const running = issued !== undefined;
    const held = leases.get(key.slice(0, key.lastIndexOf('/')));
    ensure(
      held?.token === token && held.holder === process,
      'lease',
      () => `${process.name} starts ${key} with token ${token}, and ${describeLease(held)}`,
    );
    if (known?.damage) {
      const { damage } = known;
      return ensure(
        token <= damage.token,
        'damage',
        () => `${process.name} resumed run ${known.runId}, which is damaged`,
      );
    }
    const { sandbox = [] } = issued?.call ?? {};
    ensure(
      sandbox.every((promise) => promisesIn(process).includes(promise)),
      'sandbox',
      () => `${key} starts in ${process.name}, which does not promise ${sandbox.join()}`,
    );
    const isAccepted = !running && effect === 'pure' && !held!.takenOver;
    ensure(running || isAccepted, 'issued', () => `${key} starts, and the journal has not issued it`);
    if (isAccepted) cover('accepted call');
    if (effect !== 'pure') {
      const issuedAt = known!.issued.get(id)!;
      ensure(
        known!.commits[issuedAt]! <= disk.durable(),
        'I8 durable',
        () => `${key} (${effect}) starts, and entry ${issuedAt}, which issued it, is not durable`,
      );
      checkToken(known!.runId, token, process);
    }
    if (isBudgeted(rootOf(key))) {
      const found = tables.reservation(key);
      ensure(found === 'durable', 'budget', () => `${key} starts, and its reservation is ${found}`);
      cover('reservation');
    }
    checkSurvivors(key, process);
    const before = inputs.get(key);
    ensure(before === undefined || before === `${tool} ${input}`, 'issued', () => `${key} was ${before}`);
    inputs.set(key, `${tool} ${input}`);
    // If the process dies before the call is written, the death is not counted.
    if (tool === 'bomb' && !isAccepted) checkCrashLoop(key);
  }

  /**
   * The model is asked with the results of the turns before. Those of calls that are not repeated to find them out are written
   * by then, and in a run whose last driver has died, everything is.
   */
  function onAsked(key: string, process: Process): void {
    const [known, id] = partsOf(key);
    const turn = Number(MODEL_CALL.exec(id)?.[1] ?? 0);
    if (!known || known.damage || turn === 0) return;
    const state = known.states.at(-1)!;
    const slots = state.phase.type === 'tools' && state.turn < turn ? state.phase.slots : [];
    for (const { type, call } of slots) {
      const isLost = call.effect !== 'pure' && type === 'running';
      ensure(!isLost, 'written', () => `${key} asks the model with the result of ${call.index}, which is not written`);
    }
    const held = leases.get(known.runId);
    if (held?.holder !== process || !held.takenOver) return;
    const isIssued = core.outstanding(state).some((effect) => effect.id === id);
    ensure(isIssued, 'written', () => `${key} asks the model after a takeover, and that is not written`);
    cover('asked after a takeover');
  }

  /** Somebody is asked for what the run waits for. */
  function onWaits(runId: string, waiting: readonly Waiting[]): void {
    const known = runs.get(runId);
    if (!known || known.damage || known.deleted !== undefined) return;
    const place = firstWaiting(known, waiting);
    ensure(place > 0, 'shown', () => `somebody is asked about run ${runId}, and what it waits for is not stored`);
    const isDurable = known.commits[place - 1]! <= disk.durable();
    ensure(isDurable, 'shown', () => `somebody is asked about run ${runId}, and entry ${place - 1} is not durable`);
    known.shown = Math.max(known.shown, place);
    cover('asked before the pause');
  }

  /** Processes that an earlier driver of the run has left on this host have been ended. The driver itself may have died a moment ago. */
  function checkSurvivors(key: string, driver: Process): void {
    const runId = key.slice(0, key.lastIndexOf('/'));
    const recorded = runs.get(runId)?.states.at(-1)!.resources ?? [];
    for (const { process } of recorded) {
      const left = resources.find(({ id }) => id === process.startedAt);
      if (!left || left.runId !== runId || left.process === driver) continue;
      if (left.process.alive || left.process.host !== driver.host) continue;
      ensure(!left.open, 'resource', () => `${key} starts, and resource ${left.id} of ${left.process.name} still runs`);
    }
  }

  /** A call gets a resource only if it can be ended after a crash. One that has lost its run may get one that the next driver has ended. */
  function onHeld(key: string, { id, open, runId, process }: Resource): void {
    const known = runs.get(key.slice(0, key.lastIndexOf('/')));
    if (!known || known.damage || (!open && hasLost(key, process, 0))) return;
    ensure(open && runId === known.runId, 'resource', () => `${key} gets resource ${id}, which is closed`);
    const seq = known.entries.findIndex(
      ({ event }) => event.type === 'resource-opened' && event.process.startedAt === id,
    );
    ensure(
      seq >= 0 && known.commits[seq]! <= disk.durable(),
      'resource',
      () => `resource ${id} of ${key} is not recorded`,
    );
  }

  /** Tokens increase with each driver. */
  function checkToken(runId: string, token: number, process: Process): void {
    const last = tokens.get(runId);
    const isNext = !last || token > last.token || (token === last.token && process === last.process);
    ensure(isNext, 'tokens', () => `${process.name} uses token ${token} of run ${runId}, and ${last!.token} was used`);
    tokens.set(runId, { token, process });
  }

  function checkCrashLoop(key: string): void {
    const count = (attempts.get(key) ?? 0) + 1;
    attempts.set(key, count);
    cover('crash loop');
    const most = CRASH_LIMIT + uncounted;
    ensure(count <= most, 'crash loop', () => `${key} ended its process ${count} times`);
  }

  /**
   * Whether the run was taken over since the call started. A process that runs notices that, and aborts the call.
   */
  function isStale({ key, token, process, at }: Execution): boolean {
    const runId = key.slice(0, key.lastIndexOf('/'));
    if (leases.get(runId)?.token === token || !hasLost(key, process, at)) return false;
    cover('stale act');
    return true;
  }

  /** Whether a process has lost the run of a call since `at`. It notices that soon after it runs again. */
  function hasLost(key: string, process: Process, at: number): boolean {
    const runId = key.slice(0, key.lastIndexOf('/'));
    const takeover = takeovers.find((one) => one.from === process && one.runId === runId && one.at >= at);
    if (!takeover) return false;
    const since = Math.max(takeover.at, process.stalledUntil);
    ensure(
      now() - since <= NOTICE_MS,
      'lease',
      () => `${key} acts in ${process.name}, which lost its lease ${now() - since} ms ago and was not stalled since`,
    );
    return true;
  }

  /** A `once` effect happens once. Where nothing but the token helps, it may happen again, unless the tool passes it on. */
  function onAct(key: string): void {
    const acts = ledger.acts.filter((act) => act.key === key);
    if (acts.length < 2 || acts[0]!.effect !== 'once') return;
    const excused = acts.some(({ stale }) => stale) && acts.every(({ tool }) => !FENCED.has(tool));
    ensure(excused, 'effect twice', () => `${key} acted ${acts.length} times: ${acts.map(describeAct).join(', ')}`);
    cover('stale act twice');
  }

  /** A driver that took over may have ended before it recorded the death: then the deaths are counted again from 0. */
  function onEndedEarly(): void {
    uncounted += CRASH_LIMIT;
  }

  /** What a caller was told is in the journal and durable. */
  function onResult(runId: string, result: LoopResult): void {
    const known = runs.get(runId);
    if (!known || known.damage || known.deleted !== undefined) return;
    const { outcome, waiting, detached } = result;
    if (detached) return;
    const place = outcome
      ? known.states.findIndex((state) => state.phase.type === 'ended' && state.phase.outcome.type === outcome.type)
      : firstWaiting(known, waiting);
    const what = outcome?.type ?? 'paused';
    ensure(place > 0, 'acknowledged', () => `run ${runId} was reported as ${what}, which is not stored`);
    ensure(
      known.commits[place - 1]! <= disk.durable(),
      'acknowledged',
      () => `run ${runId} was reported as ${what}, and entry ${place - 1} is not durable`,
    );
  }

  /** The first state of a run in which it waits for all of this. */
  function firstWaiting({ states }: Reference, waiting: readonly Waiting[]): number {
    return states.findIndex((state) => {
      const effects = new Set(core.waiting(state).map(({ effect }) => effect));
      return waiting.every(({ effect }) => effects.has(effect));
    });
  }

  /** The answer was acknowledged: it is in the journal, and durable. */
  function onAnswered(runId: string, path: string): void {
    const effects = path.split('/');
    const effect = effects
      .pop()!
      .replace(/\.question\.(\d+)\.\d+$/, '.tool.$1')
      .replace(/\.budget$/, '');
    const known = runs.get([runId, ...effects].join('.'));
    if (!known || known.damage || known.deleted !== undefined) return;
    const given = known.entries.find(
      ({ event }) => ANSWERED.has(event.type) && 'effect' in event && event.effect === effect,
    );
    const ended = known.states.at(-1)!.phase.type === 'ended';
    ensure(given !== undefined || ended, 'acknowledged', () => `the answer to ${path} of run ${runId} is not stored`);
    if (!given) return;
    ensure(
      known.commits[given.seq]! <= disk.durable(),
      'acknowledged',
      () => `the answer to ${path} of run ${runId} is not durable`,
    );
    cover('answer');
  }

  /** Somebody was shown the first entries of a run, so that they must survive everything. */
  function onShown(runId: string, count: number): void {
    const known = runs.get(runId);
    if (!known || known.damage || known.deleted !== undefined || count === 0) return;
    ensure(
      count <= known.entries.length,
      'shown',
      () => `entry ${count - 1} of run ${runId} was shown, and is not stored`,
    );
    ensure(
      known.commits[count - 1]! <= disk.durable(),
      'shown',
      () => `entry ${count - 1} of run ${runId} was shown, and is not durable`,
    );
    known.shown = Math.max(known.shown, count);
    cover('shown entries');
  }

  /**
   * What was said about a message or an answer that nothing else contains. Accepted: it is in the journal, once, and durable.
   * Refused: it is not there, and never will be.
   */
  function onSaid(runId: string, mark: string, accepted: boolean): void {
    const known = runs.get(runId);
    if (!known || known.damage || known.deleted !== undefined) return;
    const found = known.entries.filter(({ event }) => isSaid(event, mark));
    if (!accepted) {
      refused.set(runId, [...(refused.get(runId) ?? []), mark]);
      return ensure(found.length === 0, 'acknowledged', () => `"${mark}" was refused, and run ${runId} has it`);
    }
    ensure(
      found.length === 1,
      'acknowledged',
      () => `"${mark}" was accepted, and run ${runId} has it ${found.length} times`,
    );
    ensure(
      known.commits[found[0]!.seq]! <= disk.durable(),
      'acknowledged',
      () => `"${mark}" was accepted, and entry ${found[0]!.seq} of run ${runId} is not durable`,
    );
    known.shown = Math.max(known.shown, found[0]!.seq + 1);
    cover(`accepted ${mark.split(' ')[0]}`);
  }

  /** Somebody wants to cancel a run, or was told that it will not happen. */
  function onCancel(runId: string, what: 'asked' | 'refused'): void {
    cancels.set(runId, (cancels.get(runId) ?? 0) + (what === 'asked' ? 1 : -1));
  }

  /** The run and its child runs were deleted, and that is durable. */
  function onDeleted(runId: string): void {
    for (const known of runs.values()) {
      if (rootOf(known.runId) !== runId || known.damage || known.entries.length === 0) continue;
      const { deleted } = known;
      ensure(deleted !== undefined, 'acknowledged', () => `run ${known.runId} was reported as deleted, and is not`);
      ensure(deleted <= disk.durable(), 'acknowledged', () => `the deletion of run ${known.runId} is not durable`);
    }
    cover('deleted run');
  }

  /** A run is resumed because its time has come: nobody else has resumed it since. */
  function onWoken(runId: string, { name, clock, host }: Process): void {
    const known = runs.get(runId);
    if (!known || known.damage || known.deleted !== undefined) return;
    const wakeAt = known.entries.at(-1)?.wakeAt;
    ensure(wakeAt !== undefined, 'woken', () => `${name} wakes run ${runId}, which does not sleep`);
    // It was due when the process looked. Since then, its clock may have been set back.
    const early = wakeAt - clock.now() - host.setBackMs;
    ensure(early <= 0, 'woken', () => `${name} wakes run ${runId} ${early} ms too early`);
    cover('woken');
  }

  function isDriver(runId: string, process: Process): boolean {
    return leases.get(runId)?.holder === process;
  }

  /** The run is paused until a time, and no answer can end that. */
  function isAsleep(runId: string): boolean {
    const known = runs.get(runId);
    // What happens to a damaged run is not known.
    if (known?.damage || known?.entries.at(-1)?.wakeAt === undefined) return false;
    return core.waiting(known.states.at(-1)!).every(({ type }) => type === 'parked');
  }

  /** When nothing happens any more. */
  function atEnd(): void {
    tables.onCommit(true);
    checkSpending();
    for (const known of runs.values()) {
      // Nobody knows of a fork whose process died while it made it.
      if (known.deleted !== undefined || (forks.has(known.runId) && known.shown === 0)) continue;
      if (known.damage || known.entries.length === 0 || isOfDamaged(known.runId)) continue;
      const last = known.states.at(-1)!;
      // A child run that its driver stored after the takeover of its parent performs nothing, and nobody knows of it.
      if (known.runId.includes('.') && known.entries.length === 1) continue;
      ensure(last.phase.type === 'ended', 'ending', () => `run ${known.runId} has not ended`);
      checkJournal(known);
    }
    for (const key of new Set(ledger.acts.filter(({ effect }) => effect === 'once').map((act) => act.key)))
      checkActed(key);
  }

  /** Each call with a result was charged, or is still reserved. */
  function checkSpending(): void {
    let calls = 0;
    for (const { runId, entries, damage, deleted } of runs.values()) {
      if (!isBudgeted(rootOf(runId)) || damage || deleted !== undefined || isOfDamaged(runId)) continue;
      for (const { event } of entries) {
        const isDone =
          event.type === 'tool-settled' && event.result.type === 'result' && event.effect.includes('.tool.');
        if (isDone && inputs.has(`${runId}/${event.effect}`)) calls++;
      }
    }
    const charged = tables.calls();
    ensure(charged >= calls, 'budget', () => `${calls} calls have a result, and ${charged} were charged`);
  }

  function isOfDamaged(runId: string): boolean {
    return [...runs.values()].some((one) => one.damage !== undefined && rootOf(one.runId) === rootOf(runId));
  }

  /** The invariants of `step`, on what is stored. */
  /** Two calls that settled one after the other lead to the same history in the other order. */
  function checkOrder({ runId, entries, states }: Reference): void {
    for (const [index, { event: first }] of entries.entries()) {
      const second = entries[index + 1]?.event;
      if (first.type !== 'tool-settled' || second?.type !== 'tool-settled') continue;
      const [before, after] = [states[index]!, states[index + 2]!];
      const isOpen = core.outstanding(before).some(({ id }) => id === second.effect);
      if (!isOpen || second.effect === first.effect) continue;
      cover('reordered results');
      const swapped = core.step(core.step(before, second).state, first).state;
      const open = (state: State): readonly string[] =>
        core
          .outstanding(state)
          .map(({ id }) => id)
          .toSorted();
      ensure(
        same(messagesOf(swapped), messagesOf(after)) &&
          same(outcomeOf(swapped), outcomeOf(after)) &&
          same(open(swapped), open(after)),
        'I9 order',
        () => `run ${runId} depends on the order of ${first.effect} and ${second.effect}`,
      );
    }
  }

  function checkJournal(known: Reference): void {
    try {
      const trace = traceOf(known);
      checkResults(trace);
      checkPermission(trace);
      checkEnding(core, trace);
      // The reference does not count the calls of child runs.
      if (!hasChildren(known)) checkLimits(trace);
    } catch (error) {
      throw new Violation('I1 to I6', `run ${known.runId}: ${(error as Error).message}`);
    }
    checkOrder(known);
    for (const { event } of known.entries) {
      if (event.type !== 'tool-settled' || event.result.type !== 'result' || event.result.isError) continue;
      const key = `${known.runId}/${event.effect.replace('verify', 'tool')}`;
      const done = !inputs.has(key) || ledger.has(key);
      ensure(done, 'ledger and journal', () => `the journal reports ${key} as done, and it did not act`);
    }
  }

  function traceOf({ entries, states }: Reference): Trace {
    let observed = NOTHING_OBSERVED;
    const moments = entries.map(({ event }, index): Moment => {
      const [before, after] = [states[index]!, states[index + 1]!];
      ensure(shouldApply(observed, event), 'I1 to I6', () => `I3: ${JSON.stringify(event)} was applied`);
      const { effects } = core.step(before, event);
      const earlier = observed;
      observed = observedAfter(observed, event, effects, outcomeOf(after));
      return { event, applied: true, before, after, effects, observed: { before: earlier, after: observed } };
    });
    const { rules } = states[1]!;
    return { world: { rules } as Trace['world'], moments, last: moments.at(-1)!, hadChoice: false };
  }

  /** A call that has acted is reported as done, or as unknown: never as something that did not happen. */
  function checkActed(key: string): void {
    const [known, id] = partsOf(key);
    const acts = ledger.acts.filter((act) => act.key === key);
    if (!known || known.damage || isOfDamaged(known.runId) || acts.every(({ stale }) => stale)) return;
    const [, turn, index] = /^t(\d+)\.tool\.(\d+)$/.exec(id)!;
    const settled = known.entries.findLast(
      ({ event }) =>
        event.type === 'tool-settled' && (event.effect === id || event.effect === `t${turn}.verify.${index}`),
    )?.event;
    if (settled?.type !== 'tool-settled') return;
    const { result } = settled;
    const text = result.type === 'result' ? JSON.stringify(result.content) : '';
    const denied = result.type === 'not-done' || (result.type === 'result' && result.isError && !UNKNOWN.test(text));
    // A run that ended before the call was repeated reports nothing.
    const { phase } = known.states.at(-1)!;
    const stopped = phase.type === 'ended' && phase.outcome.type !== 'completed' && result.type === 'not-done';
    ensure(
      !denied || stopped,
      'ledger and journal',
      () => `${key} has acted, and the journal reports ${text || result.type}`,
    );
  }

  /** Code under test would catch the exception. */
  function reported<Args extends unknown[], T>(check: (...args: Args) => T): (...args: Args) => T | undefined {
    return (...args) => {
      try {
        return check(...args);
      } catch (error) {
        report(error as Error);
        return undefined;
      }
    };
  }

  return {
    runs,
    deletable,
    forks,
    isAsleep,
    isDriver,
    onHeld: reported(onHeld),
    onShown: reported(onShown),
    onSaid: reported(onSaid),
    onCancel,
    onDeleted: reported(onDeleted),
    onWoken: reported(onWoken),
    use: (all: Machines) => void (machines = all),
    onCommit: reported(onCommit),
    hasBegun,
    onDamage,
    onPowerFailure: reported(onPowerFailure),
    onStart: reported(onStart),
    onAsked: reported(onAsked),
    onWaits: reported(onWaits),
    isStale: reported(isStale),
    onAct: reported(onAct),
    onEndedEarly,
    onResult: reported(onResult),
    onAnswered: reported(onAnswered),
    atEnd: reported(atEnd),
  };
}

function isCallOf(id: string) {
  return (effect: Effect): effect is Extract<Effect, { type: 'call-tool' }> =>
    effect.type === 'call-tool' && effect.id === id;
}

function isSaid(event: Event, mark: string): boolean {
  return JSON.stringify(event).includes(`${mark}"`);
}

function hasChildren({ entries }: Reference): boolean {
  return entries.some(({ event }) => event.type === 'child-started');
}

/** The end of the id of a child run: the effect that started it. */
const CHILD = /\.(t\d+\.tool\.\d+)$/;
const MODEL_CALL = /^t(\d+)\.model\./;
const ANSWERED: ReadonlySet<string> = new Set([
  'approval-given',
  'client-result-given',
  'question-answered',
  'deadline-passed',
]);
/** Entries that contain what people have said. */
const SAYING: ReadonlySet<string> = new Set([...ANSWERED, 'input-added']);
/** Other entries that can follow a death. */
const INTERRUPTING: ReadonlySet<string> = new Set(['input-added', 'budget-escalated', 'call-rejudged']);
/** Results that do not deny an effect. A result that is withheld by a filter, which may have timed out, says that the tool was called. */
const UNKNOWN = /not known whether it took effect|was stopped|was called, and its result is withheld/;
const FENCED: ReadonlySet<string> = new Set(['bank', 'remove']);

function describe(replayed: ReturnType<Core['replay']>): string {
  return replayed.type === 'diverged' ? `entry ${replayed.seq}, ${replayed.difference}` : '';
}

function describeLease(lease: LeaseSeen | undefined): string {
  return lease ? `${lease.holder.name} has the lease with token ${lease.token}` : 'nobody has the lease';
}

function describeAct({ process, token, at, stale }: Act): string {
  return `${process.name} with token ${token}, started at ${at}${stale ? ', stale' : ''}`;
}

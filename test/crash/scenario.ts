import {
  memoryJournal,
  replay,
  streamLoop,
  TreadleError,
  waiting,
  type Answer,
  type Call,
  type ExecuteAgentOptions,
  type ExecuteResult,
  type JournalEntry,
  type LoopOptions,
  type LoopResult,
  type Waiting,
} from '@treadle/core';
import { logged, restore, type Logged } from './logged-store.ts';
import { life, world, type Life, type World } from './world.ts';

/** A run and everything outside that takes part in it: of the loop, or of a typed agent. */
export type Scenario = LoopScenario | AgentScenario;

export interface LoopScenario extends Surroundings {
  /** Made anew for every process. */
  readonly code: (life: Life) => Omit<LoopOptions, 'journal' | 'runId' | 'clock'>;
}

export interface AgentScenario extends Surroundings {
  /** Executes an agent that is made anew for every process. */
  readonly execute: (life: Life, around: Executing) => Promise<ExecuteResult<unknown>>;
}

type Executing = Required<Pick<ExecuteAgentOptions<unknown, unknown>, 'journal' | 'runId' | 'clock' | 'answers'>>;

interface Surroundings {
  readonly name: string;
  /** What a person says of a call that he is asked about; default: he approves. */
  readonly decide?: (call: Call) => 'approve' | 'deny' | 'expire';
  /** Brings the run into the journal, if that is not simply its start. */
  readonly begin?: (world: World) => Promise<void>;
  /** Children that a crash can leave in the middle: their parent has ended, and nobody goes on with them. */
  readonly left?: readonly string[];
  /**
   * Which calls come to be answered "interrupted, effect unknown", and at which crashes: those after so many entries
   * of the run, and of its children, in the order of their beginnings.
   */
  readonly interrupted: Readonly<Record<string, readonly string[]>>;
}

/** More often nobody needs to start a process, even if it is killed in between. */
const LIVES = 40;

/** Starts process after process until the run has ended. Whatever it waits for is answered, one thing at a time. */
export async function play(scenario: Scenario, from: World): Promise<World> {
  const played = await playUntilDeath(scenario, from);
  if (!played.ended) throw new Error(`the journal of "${scenario.name}" failed`);
  return played.world;
}

/** How it went: it has ended, unless the journal failed. */
export interface Played {
  readonly world: World;
  readonly ended: boolean;
  /** Of the loop. */
  readonly result?: LoopResult;
}

/** The same, or until the journal fails. */
export async function playUntilDeath(scenario: Scenario, from: World): Promise<Played> {
  let at = from;
  for (let count = 0; count < LIVES; count++) {
    const entries = await at.store.read(at.runId);
    const now = life(at, entries);
    try {
      const lived = await Promise.race([
        'code' in scenario ? once(scenario, now) : executed(scenario, now),
        now.killed,
      ]);
      if (lived?.ended) return { world: at, ...lived };
      if (!lived) at = await restarted(at);
    } catch (error) {
      if (!(error instanceof TreadleError) || error.code !== 'journal-failed') throw error;
      return { world: at, ended: false };
    } finally {
      now.end();
    }
  }
  throw new Error(`"${scenario.name}" has not ended after ${LIVES} processes`);
}

/** One process: begins the run or goes on with it, until it ends or pauses. */
async function once(scenario: LoopScenario, now: Life): Promise<Omit<Played, 'world'>> {
  const result = await looped(scenario, now);
  return { result, ended: result.outcome !== undefined && !isOutage(result) };
}

/** The same of a typed agent, which is begun and gone on with in the same way. */
async function executed(scenario: AgentScenario, now: Life): Promise<Omit<Played, 'world'>> {
  const { world: at, entries } = now;
  const { store: journal, clock, runId, given } = at;
  const answers = entries.length === 0 ? [] : await answersTo(scenario, at, entries);
  const result = await scenario.execute(now, { journal, clock, runId, answers });
  if (result.type === 'failure' && result.error.code === 'EXECUTION_PAUSED') return { ended: false };
  given.push(result);
  return { ended: true };
}

async function looped(scenario: LoopScenario, now: Life): Promise<LoopResult> {
  const { world: at, entries } = now;
  const { store: journal, clock, runId } = at;
  const { input, ...code } = scenario.code(now);
  const options = { ...code, journal, clock, runId };
  if (entries.length === 0 && scenario.begin) await scenario.begin(at);
  else if (entries.length === 0) return (now.live = streamLoop({ ...options, input })).result;
  const answers = entries.length === 0 ? [] : await answersTo(scenario, at, entries);
  return (now.live = streamLoop({ ...options, answers })).result;
}

/** What there is after a process died: what it held in memory is gone, what was durable is there. */
export async function restarted({ runId, log, clock, deeds, wrap }: World): Promise<World> {
  // Whoever was told that the journal failed may now try to write something all the same.
  await new Promise((resolve) => void setImmediate(resolve));
  const kept: Logged[] = [...log];
  const store = wrap(logged(await restore(log, memoryJournal()), kept));
  return world({ runId, log: kept, store, wrap, now: clock.now(), deeds });
}

function isOutage({ outcome }: LoopResult): boolean {
  return outcome?.type === 'failed' && outcome.error.code === 'overloaded';
}

async function answersTo(scenario: Scenario, { clock }: World, entries: readonly JournalEntry[]): Promise<Answer[]> {
  const [wait] = waiting(replay(entries).state);
  // What is parked elsewhere is looked at again by going on.
  if (!wait || wait.type === 'parked') return [];
  const answer = answerTo(scenario, wait);
  if (answer === 'expire') {
    await clock.advance(Math.max(0, (wait as Approval).expiresAt - clock.now()));
    return [];
  }
  return [answer];
}

type Approval = Extract<Waiting, { type: 'approval' }>;

function answerTo({ decide }: Scenario, wait: Exclude<Waiting, { type: 'parked' }>): Answer | 'expire' {
  const { effect, call } = wait;
  if (wait.type === 'client') return { type: 'client-result', effect, content: `picked ${call.arguments}` };
  const decided = decide?.(call) ?? 'approve';
  if (decided === 'expire') return 'expire';
  const said = decided === 'approve' ? { approved: true } : { approved: false, reason: 'Not now.' };
  return { type: 'approval', effect, digest: wait.digest, ...said, by: 'ann' };
}

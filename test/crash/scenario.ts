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

/** A run of the loop or of a typed agent, with everything external that takes part in it. */
export type Scenario = LoopScenario | AgentScenario;

export interface LoopScenario extends ScenarioBase {
  /** Creates the code of the run for a new process. */
  readonly code: (life: Life) => Omit<LoopOptions, 'journal' | 'runId' | 'clock'>;
}

export interface AgentScenario extends ScenarioBase {
  /** Executes an agent that is created for the new process. */
  readonly execute: (life: Life, around: Executing) => Promise<ExecuteResult<unknown>>;
}

type Executing = Required<Pick<ExecuteAgentOptions<unknown, unknown>, 'journal' | 'runId' | 'clock' | 'answers'>>;

type ResultAnswer = Extract<Answer, { type: 'result' }>;

interface ScenarioBase {
  readonly name: string;
  /** What a person decides about a call. Default: approve. With `expire`, a parked call gets no result in time, too. */
  readonly decide?: (call: Call) => 'approve' | 'deny' | 'expire';
  /** The result of a parked call that comes from outside; undefined: its tool gives the result. */
  readonly outside?: (call: Call) => string | Omit<ResultAnswer, 'type' | 'effect'> | undefined;
  /** Whether people approve a call for the rest of the run. */
  readonly forRun?: (call: Call) => boolean;
  /** Creates the run in the journal if it is not simply started. */
  readonly begin?: (world: World) => Promise<void>;
  /** Children that a crash can leave unfinished: their parent has ended, so they are not resumed. */
  readonly abandoned?: readonly string[];
  /**
   * Which calls are answered "interrupted, effect unknown", and at which crashes: by the number of entries of the run
   * and of its children, in the order of their start.
   */
  readonly interrupted: Readonly<Record<string, readonly string[]>>;
}

/** More processes than any scenario needs, even with crashes. */
const LIVES = 40;

/** Starts one process after another until the run has ended. Each answers one thing that the run waits for. */
export async function play(scenario: Scenario, from: World): Promise<World> {
  const played = await playUntilFailure(scenario, from);
  if (!played.ended) throw new Error(`the journal of "${scenario.name}" failed`);
  return played.world;
}

/** How the run went: it has ended unless the journal failed. */
export interface Played {
  readonly world: World;
  readonly ended: boolean;
  /** The result of a run of the loop. */
  readonly result?: LoopResult;
}

/** The same as `play`, but stops when the journal fails. */
export async function playUntilFailure(scenario: Scenario, from: World): Promise<Played> {
  let at = from;
  for (let count = 0; count < LIVES; count++) {
    const entries = await at.store.read(at.runId);
    const now = life(at, entries);
    try {
      const played = await Promise.race([
        'code' in scenario ? once(scenario, now) : executed(scenario, now),
        now.killed,
      ]);
      if (played?.ended) return { world: at, ...played };
      if (!played) at = await restarted(at);
    } catch (error) {
      if (!(error instanceof TreadleError) || error.code !== 'journal-failed') throw error;
      return { world: at, ended: false };
    } finally {
      now.end();
    }
  }
  throw new Error(`"${scenario.name}" has not ended after ${LIVES} processes`);
}

/** One process: starts or resumes the run until it ends or pauses. */
async function once(scenario: LoopScenario, now: Life): Promise<Omit<Played, 'world'>> {
  const result = await looped(scenario, now);
  return { result, ended: result.outcome !== undefined && !isOutage(result) };
}

/** The same for a typed agent, which is started and resumed in the same way. */
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

/** The world after a process died: only what was durable remains. */
export async function restarted({ runId, log, clock, actions, wrap }: World): Promise<World> {
  // Give code that was notified of the failure a chance to write in spite of it.
  await new Promise((resolve) => void setImmediate(resolve));
  const kept: Logged[] = [...log];
  const store = wrap(logged(await restore(log, memoryJournal()), kept));
  return world({ runId, log: kept, store, wrap, now: clock.now(), actions });
}

function isOutage({ outcome }: LoopResult): boolean {
  return outcome?.type === 'failed' && outcome.error.code === 'overloaded';
}

async function answersTo(scenario: Scenario, { clock }: World, entries: readonly JournalEntry[]): Promise<Answer[]> {
  const [wait] = waiting(replay(entries).state);
  if (!wait) return [];
  if (wait.expiresAt !== undefined && scenario.decide?.(wait.call) === 'expire') {
    await clock.advance(Math.max(0, wait.expiresAt - clock.now()));
    return [];
  }
  if (wait.type !== 'parked') return [answerTo(scenario, wait)];
  // Without a result from outside, resuming the run asks the tools of parked calls again.
  const content = scenario.outside?.(wait.call);
  if (content === undefined) await clock.advance(Math.max(0, (wait.wakeAt ?? 0) - clock.now()));
  if (content === undefined) return [];
  return [{ type: 'result', effect: wait.effect, ...(typeof content === 'string' ? { content } : content) }];
}

function answerTo({ decide, forRun }: Scenario, wait: Exclude<Waiting, { type: 'parked' }>): Answer {
  const { effect, call } = wait;
  if (wait.type === 'client') return { type: 'result', effect, content: `picked ${call.arguments}` };
  if (wait.type === 'question') {
    const { question } = wait;
    return { type: 'answer', effect, value: question.choices?.[0] ?? 'that', by: 'ann' };
  }
  const decided = decide?.(call) ?? 'approve';
  const said = decided === 'approve' ? { approved: true } : { approved: false, reason: 'Not now.' };
  const { approvers = ['ann', 'bob'], approvedBy = [] } = wait;
  const by = approvers.find((one) => !approvedBy.includes(one))!;
  return { type: 'approval', effect, digest: wait.digest, ...said, by, ...(forRun?.(call) && { forRun: true }) };
}

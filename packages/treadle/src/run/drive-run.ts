import {
  startLoop,
  TreadleError,
  type Answer,
  type CallAnswered,
  type ContinueOptions,
  type Item,
  type KillProcess,
  type LoopOptions,
  type LoopResult,
  type RunStore,
  type StartedRun,
  type Tool,
  type Waiting,
} from '@treadle/core';
import { matchPattern } from '@treadle/tools/patterns';
import { taskProgress } from '@treadle/tools/task';
import { loadStorePackage } from '../config/store.ts';
import { optionsOfEveryRun, type NotGiven } from './loop-options.ts';

/** The options of a new run, or of a run to resume. */
export type RunStart = Omit<LoopOptions, NotGiven> | Omit<ContinueOptions, NotGiven>;

export interface DriveRunOptions {
  readonly start: RunStart;
  /** All tools that the run may be offered on the way, such as those that it finds; default: those of `start`. */
  readonly allTools?: () => readonly Tool[];
  readonly store: RunStore;
  /** Aborts when the user stops the run. */
  readonly signal: AbortSignal;
  /** What stopping does: `cancel` ends the run, `detach` leaves it so that it can be resumed. */
  readonly stopping: 'cancel' | 'detach';
  readonly onItem: (item: Item) => void;
  /**
   * Asks the user for a decision. `others`: what waits for one as well. The decision may be about one of them. Without it the run
   * stays paused.
   */
  readonly approve?: (request: ApprovalRequest, others: readonly ApprovalRequest[]) => Promise<Decision>;
  /**
   * Asks the user a question of a tool. Undefined: no answer now. `rejected` says why the last answers were rejected. Without
   * it the run stays paused.
   */
  readonly answer?: (request: QuestionRequest, rejected?: string) => Promise<unknown>;
  /** Tells the user that `verifyAnswer` has refused an answer. The run then waits for another one. */
  readonly onRefused?: (problem: string) => void;
  /** Logs the calls of the run, and of its tasks, that have their results. */
  readonly logCalls?: ((item: CallAnswered, runId: string) => void) | undefined;
  /** The name of the user, for answers. */
  readonly user?: string;
  /** Receives the run that accepts input. Called again with another one after an answer for a child run. */
  readonly onLive?: (live: StartedRun) => void;
}

export type ApprovalRequest = Waiting & { readonly type: 'approval' };
export type QuestionRequest = Waiting & { readonly type: 'question' };

export interface Decision {
  readonly approved: boolean;
  readonly reason?: string;
  /** It also allows later calls of the tool that touch nothing else. */
  readonly forRun?: true;
  /** It also allows them in later conversations. */
  readonly saved?: true;
  /** What it is about; default: what was asked about first. */
  readonly request?: ApprovalRequest;
}

/**
 * Drives a run to its end, and asks for every approval and every answer on the way. While the user is asked, the run stays open
 * with everything that its tools hold. Only what a child run waits for is answered after the run has paused. Stops if the user
 * stops the run when it asks, or if nothing is answered.
 */
export async function driveRun(options: DriveRunOptions): Promise<LoopResult> {
  const { start, store, signal, stopping, onItem, logCalls, onLive } = options;
  const follow = async (from: RunStart): Promise<LoopResult> => {
    const live: StartedRun = startLoop({
      ...from,
      journal: store,
      durableItems: true,
      killProcess,
      matchPattern,
      onItem(item) {
        onItem(item);
        const call = taskProgress(item) ?? item;
        if (call.type === 'call-answered') logCalls?.(call, live.runId);
      },
      beforePause: (waits) => answerWaits(live, waits, options),
    });
    const stop = (): void => void (stopping === 'cancel' ? live.cancel() : live.detach());
    if (signal.aborted) stop();
    signal.addEventListener('abort', stop);
    try {
      onLive?.(live);
      return await live.result;
    } finally {
      signal.removeEventListener('abort', stop);
    }
  };

  let result = await follow(start);
  let rejected: string | undefined;
  while (!result.outcome) {
    const answers: Answer[] = [];
    for (let open = result.waiting.filter(isOfChild); open.length > 0 && !signal.aborted;) {
      const { wait, answer } = await nextAnswer(open, options, rejected);
      open = open.filter((one) => one !== wait);
      if (answer && !signal.aborted) answers.push(answer);
    }
    if (signal.aborted ? stopping === 'detach' : answers.length === 0) break;
    const tools = options.allTools?.() ?? start.tools;
    const next = { ...optionsOfEveryRun(start), runId: result.runId, ...(tools && { tools }) };
    rejected = undefined;
    try {
      result = await follow({ ...next, answers });
    } catch (error) {
      // The schema of a question rejects the value, or somebody else has answered. The run shows what it waits for now.
      if (!isUnfit(error) || !answers.some(({ type }) => type === 'answer')) throw error;
      rejected = error.message;
      result = await follow(next);
    }
  }
  return result;
}

/** Asks the user for everything that the run itself waits for. Asks again if an answer does not fit. */
async function answerWaits(live: StartedRun, waits: readonly Waiting[], options: DriveRunOptions): Promise<void> {
  let rejected: string | undefined;
  for (let open = waits.filter((wait) => !isOfChild(wait)); open.length > 0 && !options.signal.aborted;) {
    const { wait, answer } = await nextAnswer(open, options, rejected);
    const others = open.filter((one) => one !== wait);
    rejected = undefined;
    if (answer && !options.signal.aborted) {
      try {
        await live.answer(answer);
      } catch (error) {
        if (error instanceof TreadleError && error.code === 'answer-refused') options.onRefused?.(error.message);
        else if (!isUnfit(error) || answer.type !== 'answer') throw error;
        else {
          rejected = error.message;
          continue;
        }
      }
    }
    open = others;
  }
}

/** The effects of child runs have the effect of the calling run before a slash. */
function isOfChild({ effect }: Waiting): boolean {
  return effect.includes('/');
}

/**
 * Asks the user about the first of what is waited for, or about another one that they choose. Without an answer: the run waits for
 * something else, or the user gives none.
 */
async function nextAnswer(
  open: readonly Waiting[],
  { approve, answer, user }: Pick<DriveRunOptions, 'approve' | 'answer' | 'user'>,
  rejected: string | undefined,
): Promise<{ readonly wait: Waiting; readonly answer?: Answer }> {
  const wait = open[0]!;
  const by = user !== undefined && { by: user };
  const mayDecide = (one: Waiting): one is ApprovalRequest => one.type === 'approval' && mayAnswer(one, user);
  if (approve && mayDecide(wait)) {
    const others = open.slice(1).filter(mayDecide);
    const { request = wait, saved: _, ...decision } = await approve(wait, others);
    const { effect, digest } = request;
    return { wait: request, answer: { type: 'approval', effect, digest, ...by, ...decision } };
  }
  const value = wait.type === 'question' ? await answer?.(wait, rejected) : undefined;
  return value === undefined ? { wait } : { wait, answer: { type: 'answer', effect: wait.effect, value, ...by } };
}

/** Ends processes that tools of the run have left behind. */
export const killProcess: KillProcess = async (left) => {
  const store = await loadStorePackage();
  return store.killProcess(left);
};

function isUnfit(error: unknown): error is TreadleError {
  return error instanceof TreadleError && error.code === 'answer-unfit';
}

/** Whether the answer of the user counts: others may have to approve, or a second person. */
function mayAnswer({ approvers, approvedBy }: ApprovalRequest, user: string | undefined): boolean {
  if (approvers && !(user !== undefined && approvers.includes(user))) return false;
  return user === undefined || !approvedBy?.includes(user);
}

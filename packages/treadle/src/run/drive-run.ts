import {
  streamLoop,
  type Answer,
  type CallAnswered,
  type ContinueOptions,
  type Item,
  type LiveRun,
  type LoopOptions,
  type LoopResult,
  type RunStore,
  type Waiting,
} from '@treadle/core';

type SetByDriver = 'journal' | 'signal' | 'onItem';
/** The options of a new run, or of a run to resume. */
export type RunStart = Omit<LoopOptions, SetByDriver> | Omit<ContinueOptions, SetByDriver>;

export interface DriveRunOptions {
  readonly start: RunStart;
  readonly store: RunStore;
  /** Aborts when the user stops the run. */
  readonly signal: AbortSignal;
  /** What stopping does: `cancel` ends the run, `detach` leaves it so that it can be resumed. */
  readonly stopping: 'cancel' | 'detach';
  readonly onItem: (item: Item) => void;
  /** Asks the user for a decision. Without it the run stays paused. */
  readonly approve?: (request: ApprovalRequest) => Promise<Decision>;
  /** Logs the calls of the run that have their results. */
  readonly logCalls?: ((item: CallAnswered, runId: string) => void) | undefined;
  /** The name of the user, for answers. */
  readonly user?: string;
  /** Receives the run that accepts input. Called again after each approval, with another one. */
  readonly onLive?: (live: LiveRun) => void;
}

export type ApprovalRequest = Waiting & { readonly type: 'approval' };

export interface Decision {
  readonly approved: boolean;
  readonly reason?: string;
  /** It also allows later calls of the tool that touch nothing else. */
  readonly forRun?: true;
}

/** Drives a run to its end and asks for every approval on the way. Stops if the user stops the run at such a question. */
export async function driveRun(options: DriveRunOptions): Promise<LoopResult> {
  const { start, store, signal, stopping, onItem, approve, user, logCalls, onLive } = options;
  const follow = async (from: RunStart): Promise<LoopResult> => {
    const live = streamLoop({ ...from, journal: store, durableItems: true });
    const stop = (): void => void (stopping === 'cancel' ? live.cancel() : live.detach());
    if (signal.aborted) stop();
    signal.addEventListener('abort', stop);
    try {
      onLive?.(live);
      for await (const item of live) {
        onItem(item);
        if (item.type === 'call-answered') logCalls?.(item, live.runId);
      }
      return await live.result;
    } finally {
      signal.removeEventListener('abort', stop);
    }
  };

  let result = await follow(start);
  while (!result.outcome && approve) {
    const requests = result.waiting.filter((waiting) => waiting.type === 'approval' && mayAnswer(waiting, user));
    if (requests.length === 0) break;
    const answers: Answer[] = [];
    for (const request of requests as readonly ApprovalRequest[]) {
      const decision = await approve(request);
      if (signal.aborted) break;
      const by = user !== undefined && { by: user };
      answers.push({ type: 'approval', effect: request.effect, digest: request.digest, ...by, ...decision });
    }
    if (signal.aborted && stopping === 'detach') break;
    const { model, tools, policy } = start;
    result = await follow({ runId: result.runId, answers, model, ...(tools && { tools }), ...(policy && { policy }) });
  }
  return result;
}

/** Whether the answer of the user counts: others may have to approve, or a second person. */
function mayAnswer({ approvers, approvedBy }: ApprovalRequest, user: string | undefined): boolean {
  if (approvers && !(user !== undefined && approvers.includes(user))) return false;
  return user === undefined || !approvedBy?.includes(user);
}

import {
  streamLoop,
  type Answer,
  type ContinueOptions,
  type Item,
  type LiveRun,
  type LoopOptions,
  type LoopResult,
  type RunStore,
  type Waiting,
} from '@treadle/core';

export type AskedApproval = Waiting & { readonly type: 'approval' };

type Decided = 'journal' | 'signal' | 'onItem';
/** A new run, or one to go on with. */
export type Start = Omit<LoopOptions, Decided> | Omit<ContinueOptions, Decided>;

export interface DriveOptions {
  readonly start: Start;
  readonly store: RunStore;
  /** Aborts when the user wants it to stop. */
  readonly signal: AbortSignal;
  /** What that means: it ends there, or it is left as it is to be gone on with. */
  readonly stopping: 'cancel' | 'detach';
  readonly onItem: (item: Item) => void;
  /** Decides in the place of a person; absent: nobody is there to ask, and the run stays paused. */
  readonly approve?: (asked: AskedApproval) => Promise<Decision>;
  /** The run that input can be sent to; another one after each approval. */
  readonly onLive?: (live: LiveRun) => void;
}

export interface Decision {
  readonly approved: boolean;
  readonly reason?: string;
}

/** Runs to the end, through every approval on the way. If the user stops it while he is asked, it stops there too. */
export async function drive(options: DriveOptions): Promise<LoopResult> {
  const { start, store, signal, stopping, onItem, approve, onLive } = options;
  const follow = async (from: Start): Promise<LoopResult> => {
    const live = streamLoop({ ...from, journal: store });
    const stop = (): void => void (stopping === 'cancel' ? live.cancel() : live.detach());
    if (signal.aborted) stop();
    signal.addEventListener('abort', stop);
    try {
      onLive?.(live);
      for await (const item of live) onItem(item);
      return await live.result;
    } finally {
      signal.removeEventListener('abort', stop);
    }
  };

  let result = await follow(start);
  while (!result.outcome && approve) {
    const asked = result.waiting.filter((waiting) => waiting.type === 'approval');
    if (asked.length === 0) break;
    const answers: Answer[] = [];
    for (const approval of asked) {
      const decision = await approve(approval);
      if (signal.aborted) break;
      answers.push({ type: 'approval', effect: approval.effect, digest: approval.digest, ...decision });
    }
    if (signal.aborted && stopping === 'detach') break;
    const { model, tools, policy } = start;
    result = await follow({ runId: result.runId, answers, model, ...(tools && { tools }), ...(policy && { policy }) });
  }
  return result;
}

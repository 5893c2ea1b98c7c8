import {
  memoryJournal,
  streamLoop,
  type Answer,
  type ContinueOptions,
  type Item,
  type LiveRun,
  type LoopOptions,
  type LoopResult,
  type Waiting,
} from '@treadle/core';

export type AskedApproval = Waiting & { readonly type: 'approval' };

export interface DriveOptions extends Omit<LoopOptions, 'journal'> {
  readonly signal: AbortSignal;
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

/** Runs to the end, through every approval on the way. A cancel while somebody is asked ends it too. */
export async function drive({ onItem, approve, onLive, ...options }: DriveOptions): Promise<LoopResult> {
  const { model, tools = [], policy, signal } = options;
  const journal = memoryJournal();
  const follow = async (start: LoopOptions | ContinueOptions): Promise<LoopResult> => {
    const live = streamLoop(start);
    onLive?.(live);
    for await (const item of live) onItem(item);
    return live.result;
  };

  let result = await follow({ ...options, journal });
  while (!result.outcome && approve) {
    const asked = result.waiting.filter((waiting) => waiting.type === 'approval');
    if (asked.length === 0) break;
    const answers: Answer[] = [];
    for (const approval of asked) {
      const decision = await approve(approval);
      if (signal.aborted) break;
      answers.push({ type: 'approval', effect: approval.effect, digest: approval.digest, ...decision });
    }
    result = await follow({ runId: result.runId, journal, answers, model, tools, signal, ...(policy && { policy }) });
  }
  return result;
}

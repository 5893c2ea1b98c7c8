import type { NamedAgent } from '@treadle/core/named-agents';
import type { Logger } from 'pino';
import type { Engine } from '../../engine/engine.ts';
import { bodyDigest } from '../../requests/idempotency.ts';
import { checkMayActOn, startedAgent } from '../../requests/run.ts';
import { undoesWhenCancelled, type Invocations } from '../agents/invocations.ts';
import type { Runs } from '../runs/runs.ts';

export interface UndoingOptions {
  readonly runs: Runs;
  readonly store: Engine['store'];
  readonly invocations: Pick<Invocations, 'prepare'>;
  readonly log: Logger;
}

/** Runs whose cancel starts the run that undoes them, whoever cancels. It is stored before anything is cancelled, so a crash loses nothing. */
export function undoingRuns({ runs, store, invocations, log }: UndoingOptions): Runs {
  async function startUndoing(runId: string, caller: Parameters<Runs['cancel']>[1]): Promise<string | null> {
    const { status } = await runs.find(runId, caller);
    if (status !== 'running' && status !== 'paused') return null;
    const { started } = await startedAgent(store, runId);
    const agent = started?.definition as NamedAgent | undefined;
    // The run that calls a workflow decides what is undone.
    if (!agent || !undoesWhenCancelled(agent) || !(await store.requests.headOfRun(runId))) return null;
    await checkMayActOn(store, runId, caller);
    const definition = { ...agent, inputs: {}, workflow: { ...agent.workflow, undoes: runId } };
    const request = { agent: agent.name, mode: 'iterative', inputs: {}, definition, background: true } as const;
    // No client can send it, because it contains a space.
    const key = { key: `undo ${runId}`, digest: bodyDigest('undo', { runId }), isKept: true } as const;
    const own = { ...caller, requestId: `undo ${runId}`, log, facts: { labels: { undoes: runId } } };
    const answer = await (await invocations.prepare({ ...request, options: {} }, own, key)).start();
    if (answer.type === 'failed') throw answer.error;
    return answer.type === 'result' ? answer.result.run_id : answer.unfinished.run_id;
  }

  return {
    ...runs,
    async cancel(runId, caller) {
      const undoing = await startUndoing(runId, caller);
      await runs.cancel(runId, caller);
      return undoing;
    },
  };
}

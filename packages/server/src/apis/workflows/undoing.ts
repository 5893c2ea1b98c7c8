import { messageOf } from '@treadle/core';
import type { NamedAgent } from '@treadle/core/named-agents';
import type { Logger } from 'pino';
import { isTemporary } from '../../api-error.ts';
import type { Engine } from '../../engine/engine.ts';
import type { NoticeHandler } from '../../engine/webhooks.ts';
import type { Caller } from '../../http/admission.ts';
import { bodyDigest } from '../../requests/idempotency.ts';
import { checkMayActOn, startedAgent } from '../../requests/run.ts';
import { undoesWhen, type Invocations } from '../agents/invocations.ts';
import type { Runs } from '../runs/runs.ts';

/*
 * Runs of workflows that a run of its own undoes, once for each.
 *
 * 1. Whoever cancels a run starts it. It is stored before anything is cancelled, so that a crash loses nothing.
 * 2. A run that ends at a limit takes no more steps. The notice of its end starts it, and is kept until it is stored.
 * 3. What another run calls is left: that run decides what is undone. One that fails undoes its steps itself.
 */

export interface UndoingOptions {
  readonly runs: Runs;
  readonly store: Engine['store'];
  readonly invocations: Pick<Invocations, 'prepare'>;
  readonly log: Logger;
}

export interface Undoing {
  /** Whose cancel undoes. */
  readonly runs: Runs;
  /** Undoes runs that have ended at a limit. */
  readonly handler: NoticeHandler;
}

type Undoer = Pick<Caller, 'tenant' | 'key' | 'scopes'>;

export function undoing({ runs, store, invocations, log }: UndoingOptions): Undoing {
  /** Resolves to the id of the run that undoes the steps; null if the definition does not say so. */
  async function startUndoing(runId: string, end: 'cancelled' | 'failed', caller: Undoer): Promise<string | null> {
    const { started } = await startedAgent(store, runId);
    const agent = started?.definition as NamedAgent | undefined;
    if (!agent || !undoesWhen(agent, end) || !(await store.requests.headOfRun(runId))) return null;
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

  async function undoExhausted(runId: string): Promise<string | undefined> {
    try {
      const { started } = await startedAgent(store, runId);
      if (!started?.principal) return undefined;
      // As the caller that started it: nobody else has asked for it.
      const { tenant, subject, scopes } = started.principal;
      const undo = await startUndoing(runId, 'failed', { tenant, key: subject, scopes });
      if (undo !== null) log.info({ run: runId, undo }, 'a run that ended at a limit is undone');
    } catch (error) {
      if (isTemporary(error)) return messageOf(error);
      log.error({ run: runId, why: messageOf(error) }, 'a run that ended at a limit was not undone');
    }
    return undefined;
  }

  return {
    runs: {
      ...runs,
      async cancel(runId, caller) {
        const { status } = await runs.find(runId, caller);
        const isOpen = status === 'running' || status === 'paused';
        const undo = isOpen ? await startUndoing(runId, 'cancelled', caller) : null;
        await runs.cancel(runId, caller);
        return undo;
      },
    },
    handler: { statuses: ['exhausted'], handle: ({ runId }) => undoExhausted(runId) },
  };
}

import { narrowingSource, TreadleError, type Answer } from '@treadle/core';
import { badRequest, type ApiError } from '../../api-error.ts';
import type { Engine } from '../../engine/engine.ts';
import { storedState } from '../../history/conversation.ts';
import type { Caller } from '../../http/admission.ts';
import { answerUnfit, isDrivenElsewhere, isLeaseLost } from '../../requests/interruption.ts';
import type { Requests } from '../../requests/requests.ts';
import { checkMayActOn, isRejectedAnswer } from '../../requests/run.ts';
import { askDriver, perhapsDone, type Actor, type PerformAct, type RunAct } from './inbox.ts';
import { conflict, findRun, requestOf } from './stored-runs.ts';

/** How often an act follows a run that moves from one process to another. */
const MOST_MOVES = 3;

/** Acts on runs: messages, answers, cancelling, and lifting what narrows them. */
export interface RunActs {
  /** Acts on a run here, or where it is driven. It may move in between. */
  perform(runId: string, act: RunAct, caller: Pick<Caller, 'tenant' | 'key' | 'scopes'>): Promise<void>;
  /** Acts on a run after the acts before it, so that this process does not compete with itself for the lease. */
  readonly performHere: PerformAct;
}

export function runActs({ store, driven }: Engine, stored: Requests): RunActs {
  /** Passes answers to a run that this process drives. Returns those that are left because the run has paused. */
  async function answerDriven(
    run: { answer(answer: Answer): Promise<void> },
    runId: string,
    { answers, caller }: { readonly answers: readonly Answer[]; readonly caller: Actor },
  ): Promise<readonly Answer[]> {
    for (const [index, answer] of answers.entries()) {
      try {
        await run.answer(answer);
      } catch (error) {
        if (!isRejectedAnswer(error)) throw error;
        const { status } = await findRun(store, runId, caller);
        if (status !== 'paused' || error.code === 'answer-refused') throw answerUnfit(error.message);
        return answers.slice(index);
      }
    }
    return [];
  }

  async function answerRun(
    runId: string,
    { answers: given, input }: Extract<RunAct, { type: 'answer' }>,
    caller: Actor,
  ): Promise<void> {
    const summary = await findRun(store, runId, caller);
    const record = await requestOf(store, summary);
    const answers = given.map((answer) => withName(answer, caller));
    const run = driven.get(runId);
    const left = run ? await answerDriven(run, runId, { answers, caller }) : answers;
    if (left.length === 0) return input === undefined ? undefined : sendInput(runId, input, caller);
    await stored.whenEnded(record.id);
    // It is recorded first, so that the model gets it with the answers.
    if (input !== undefined && (await stored.resume(record, { input }))) await stored.whenEnded(record.id);
    if (await stored.resume(record, { answers: left })) return;
    const { status } = await findRun(store, runId, caller);
    const what = status === 'paused' ? 'the request that started it has ended' : `it is ${status}`;
    throw answerUnfit(`Run ${JSON.stringify(runId)} cannot be answered: ${what}.`);
  }

  async function cancelRun(runId: string, caller: Actor): Promise<void> {
    const summary = await findRun(store, runId, caller);
    if (summary.status !== 'running' && summary.status !== 'paused') return;
    const record = await requestOf(store, summary);
    driven.get(runId)?.cancel();
    await stored.whenEnded(record.id);
    await stored.resume(record, { cancel: true });
  }

  async function liftNarrowing(runId: string, source: string, caller: Actor): Promise<void> {
    const summary = await findRun(store, runId, caller);
    const by = caller.key || undefined;
    if (await driven.get(runId)?.liftNarrowing(by, source)) return;
    if (summary.status === 'running' || summary.status === 'paused') {
      const state = await storedState(store, runId, caller);
      const found = state?.narrowing?.filter((one) => narrowingSource(one) === source) ?? [];
      if (found.length === 0) return;
      if (found.every(({ fixed }) => fixed)) {
        throw badRequest(
          `${JSON.stringify(source)} belongs to the run, and cannot be lifted.`,
          'source',
          'unsupported_value',
        );
      }
      const record = await requestOf(store, summary);
      await stored.whenEnded(record.id);
      if (record.status === 'in_progress' && (await stored.resume(record, { lift: { by, source } }))) return;
    }
    const { status } = await findRun(store, runId, caller);
    throw conflict(`Nothing of the run ${JSON.stringify(runId)} can be lifted: it is ${status}.`, 'run_not_running');
  }

  async function sendInput(runId: string, text: string, caller: Actor): Promise<void> {
    await findRun(store, runId, caller);
    const run = driven.get(runId);
    if (await run?.send(text)) return;
    if (!run && (await store.isDriven(runId))) {
      throw new TreadleError('run-driven', `Another process drives the run "${runId}".`);
    }
    const { status } = await findRun(store, runId, caller);
    const what = status === 'running' ? 'interrupted, and is resumed soon. Retry then' : status;
    throw conflict(`Run ${JSON.stringify(runId)} takes no input: it is ${what}.`, 'run_not_running');
  }

  /** Throws a 404 for a run of another tenant, and a 403 for one that the key may not act on. */
  async function checkDirected(runId: string, caller: Pick<Caller, 'tenant' | 'key' | 'scopes'>): Promise<void> {
    await findRun(store, runId, caller);
    await checkMayActOn(store, runId, caller);
  }

  /** The last act on each run. */
  const acts = new Map<string, Promise<unknown>>();

  function performNow(runId: string, act: RunAct, actor: Actor): Promise<void> {
    switch (act.type) {
      case 'send':
        return sendInput(runId, act.text, actor);
      case 'answer':
        return answerRun(runId, act, actor);
      case 'lift':
        return liftNarrowing(runId, act.source, actor);
      case 'cancel':
        return cancelRun(runId, actor);
      default:
        return act satisfies never;
    }
  }

  async function performHere(runId: string, act: RunAct, actor: Actor): Promise<void> {
    const before = acts.get(runId);
    const perform = (): Promise<void> => performNow(runId, act, actor);
    const done = before ? before.then(perform, perform) : perform();
    acts.set(runId, done);
    try {
      await done;
    } catch (error) {
      // The journal may have it: another process must not do it again, nor refuse it. A second cancel changes nothing.
      if (act.type !== 'cancel' && isLeaseLost(error)) throw perhapsDone(runId);
      throw error;
    } finally {
      if (acts.get(runId) === done) acts.delete(runId);
    }
  }

  async function perform(runId: string, act: RunAct, caller: Pick<Caller, 'tenant' | 'key' | 'scopes'>): Promise<void> {
    await checkDirected(runId, caller);
    const { tenant, key } = caller;
    const actor = { tenant, key };
    for (let attempt = 0; attempt < MOST_MOVES; attempt++) {
      try {
        return await performHere(runId, act, actor);
      } catch (error) {
        if (!isDrivenElsewhere(error)) throw error;
      }
      const reply = await askDriver(store, runId, { act, actor });
      if (reply === 'done') return;
      if (reply === 'refused') break;
    }
    throw drivenElsewhere(runId);
  }

  return { perform, performHere };
}

/** The answer with the name of the key that gave it. On a server without keys, nobody has a name. */
function withName(answer: Answer, { key }: Actor): Answer {
  const isNamed = answer.type === 'approval' || answer.type === 'answer';
  return isNamed && key !== '' ? { ...answer, by: key } : answer;
}

function drivenElsewhere(runId: string): ApiError {
  const message = `Another process drives the run ${JSON.stringify(runId)}, and does not take requests of this one. Act on it there, or retry when it has paused or ended.`;
  return conflict(message, 'run_driven_elsewhere');
}

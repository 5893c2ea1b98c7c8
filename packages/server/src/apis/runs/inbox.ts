import { setTimeout as delay } from 'node:timers/promises';
import { messageOf, type Answer } from '@treadle/core';
import { INBOX_PATIENCE_MS } from '@treadle/store';
import { ApiError, toApiError, type ApiErrorType } from '../../api-error.ts';
import type { Engine } from '../../engine/engine.ts';
import { isDrivenElsewhere } from '../../requests/interruption.ts';
import type { Caller } from '../../http/admission.ts';

/*
 * Only the process that drives a run can act on it. Another one leaves the act in the inbox of the store, and waits for the
 * reply. So a client can send it to any process with the store.
 */

/** What a client does with a run. */
export type RunAct =
  | { readonly type: 'send'; readonly text: string }
  /** `input`: a message that follows the answers. */
  | { readonly type: 'answer'; readonly answers: readonly Answer[]; readonly input?: string }
  | { readonly type: 'lift'; readonly source: string }
  | { readonly type: 'cancel' };

/** Who acts on a run. */
export type Actor = Pick<Caller, 'tenant' | 'key'>;

/** Resolves when it is done. Rejects with `run-driven` if another process drives the run. */
export type PerformAct = (runId: string, act: RunAct, actor: Actor) => Promise<void>;

/** In the store, so that another version of the server may read it. */
interface SentAct {
  readonly act: RunAct;
  readonly actor: Actor;
}

/** `moved`: the process does not drive the run any more. */
type Reply = { readonly type: 'done' | 'moved' } | ({ readonly type: 'failed' } & SentError);

interface SentError {
  readonly status: number;
  readonly errorType: ApiErrorType;
  readonly message: string;
  readonly param: string | null;
  readonly code: string | null;
  readonly headers: Readonly<Record<string, string>>;
}

/** A run that is cancelled waits for its tools to stop. */
const DONE_MS = 30_000;
/** How often to look whether the run is still driven. */
const LOOK_MS = 500;

interface AskOptions {
  /** How long to wait until the act is taken. A server takes it within a tenth of a second, unless it is very busy. */
  readonly takeMs?: number;
  /** How long to wait for the reply. */
  readonly doneMs?: number;
}

/**
 * Asks the process that drives a run to act on it. `moved`: nothing was done, because nobody drives the run any more.
 * `refused`: nothing was done, because its process is not a server. Rejects with the `ApiError` of the other process.
 */
export async function askDriver(
  store: Pick<Engine['store'], 'inbox' | 'isDriven'>,
  runId: string,
  sent: SentAct,
  { takeMs = INBOX_PATIENCE_MS, doneMs = DONE_MS }: AskOptions = {},
): Promise<'done' | 'moved' | 'refused'> {
  const { inbox } = store;
  let woken = Promise.withResolvers<void>();
  const stopWatching = inbox.watch(() => woken.resolve());
  const id = await inbox.add(runId, sent);
  const startedAt = performance.now();
  try {
    for (;;) {
      // What happens later wakes it again.
      woken = Promise.withResolvers();
      const reply = (await inbox.replyTo(id)) as Reply | undefined;
      if (reply?.type === 'failed') throw receivedError(reply);
      if (reply) return reply.type;
      const ms = performance.now() - startedAt;
      const isDriven = await store.isDriven(runId);
      if ((!isDriven || ms > takeMs) && (await inbox.remove(id, { ifOpen: true }))) {
        return isDriven ? 'refused' : 'moved';
      }
      if (ms > doneMs) throw noReply(runId);
      await Promise.race([woken.promise, delay(Math.min(LOOK_MS, takeMs), undefined, { ref: false })]);
    }
  } finally {
    stopWatching();
    await inbox.remove(id);
  }
}

/** Performs what other processes ask for, for the runs that this one drives. The returned function ends that. */
export function serveInbox(
  { store: { inbox }, driven, log }: Pick<Engine, 'store' | 'driven' | 'log'>,
  perform: PerformAct,
): () => void {
  let isLooking = false;
  let isStopped = false;
  let mustLookAgain = false;

  async function performSent(id: number, runId: string, { act, actor }: SentAct): Promise<void> {
    let reply: Reply = { type: 'done' };
    try {
      if (!(await inbox.take(id))) return;
      await perform(runId, act, actor);
    } catch (error) {
      if (!(error instanceof ApiError || isDrivenElsewhere(error))) {
        log.error({ err: error, run: runId }, 'what another process asked for a run failed');
      }
      reply = isDrivenElsewhere(error) ? { type: 'moved' } : sentError(error);
    }
    await inbox.reply(id, reply);
  }

  let timer: NodeJS.Timeout | undefined;

  async function look(): Promise<void> {
    const open = await inbox.open();
    clearTimeout(timer);
    // This process may be about to resume the run.
    if (!isStopped && open.some(({ runId }) => !driven.has(runId))) timer = setTimeout(lookAgain, LOOK_MS).unref();
    for (const { id, runId, request } of open) {
      if (isStopped || !driven.has(runId)) continue;
      // Not awaited: a run that takes long to stop must not delay others.
      performSent(id, runId, request as SentAct).catch((error: unknown) => {
        log.warn({ run: runId, why: messageOf(error) }, 'another process was not told what became of its request');
      });
    }
  }

  function lookAgain(): void {
    mustLookAgain = true;
    if (!isLooking) void lookWhileTold();
  }

  async function lookWhileTold(): Promise<void> {
    isLooking = true;
    while (mustLookAgain && !isStopped) {
      mustLookAgain = false;
      await look().catch((error: unknown) => log.warn({ why: messageOf(error) }, 'the inbox could not be read'));
    }
    isLooking = false;
  }

  const stopWatching = inbox.watch(lookAgain);
  lookAgain();
  return () => {
    isStopped = true;
    clearTimeout(timer);
    stopWatching();
  };
}

function sentError(error: unknown): Reply {
  // Details of unexpected errors are only in the log of this process.
  const { status, type: errorType, message, param, code, headers } = toApiError(error, 'of the other process');
  return { type: 'failed', status, errorType, message, param, code, headers };
}

function receivedError({ status, errorType, message, param, code, headers }: SentError): ApiError {
  return new ApiError(status, errorType, message, {
    ...(param !== null && { param }),
    ...(code !== null && { code }),
    headers,
  });
}

function noReply(runId: string): ApiError {
  return unknownOutcome(
    `The process that drives the run ${JSON.stringify(runId)} has not replied in time. It may still do what you asked for: look at the run before you retry.`,
  );
}

/** The process has lost the run while it acted on it. */
export function perhapsDone(runId: string): ApiError {
  return unknownOutcome(
    `Another process has taken over the run ${JSON.stringify(runId)}. What you asked for may be done: look at the run before you retry.`,
  );
}

function unknownOutcome(message: string): ApiError {
  return new ApiError(503, 'server_error', message, { param: 'run_id', code: 'run_driver_silent' });
}

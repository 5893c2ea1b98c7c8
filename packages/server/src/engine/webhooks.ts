import { createHmac } from 'node:crypto';
import { messageOf, systemClock, TreadleError, waiting, type Clock, type RunStatus } from '@treadle/core';
import type { RunNotice } from '@treadle/store';
import type { HttpClient } from '@treadle/tools';
import type { Logger } from 'pino';
import { storedState } from '../history/conversation.ts';
import type { ServerStore } from './engine.ts';

export type WebhookEvent = 'run.waiting' | 'run.completed' | 'run.exhausted' | 'run.failed' | 'run.cancelled';

/** The status that a run has when an event is reported. */
const STATUSES: Readonly<Record<WebhookEvent, RunStatus>> = {
  'run.waiting': 'paused',
  'run.completed': 'completed',
  'run.exhausted': 'exhausted',
  'run.failed': 'failed',
  'run.cancelled': 'cancelled',
};

const EVENTS = Object.keys(STATUSES) as WebhookEvent[];

/** Requests that tell another program that a run waits or has ended. */
export interface WebhookOptions {
  readonly url: string;
  /** For the signatures: any text of at least 16 characters, or `whsec_` and the base64 of at least 16 bytes. */
  readonly secret: string;
  /** Default: all. */
  readonly events?: readonly WebhookEvent[];
  /** The address may be that of this machine or of a private network; default false. */
  readonly allowPrivate?: boolean;
}

/** Throws for options that cannot work. */
export function checkWebhooks({ url, secret, events = EVENTS }: WebhookOptions): void {
  const { protocol, username, password } = URL.parse(url) ?? {};
  if ((protocol !== 'http:' && protocol !== 'https:') || username !== '' || password !== '') {
    throw invalid('webhooks.url must be a URL such as https://example.com/hook, without a user name or password.');
  }
  if (signingKey(secret).length < 16) {
    throw invalid(
      'webhooks.secret must have at least 16 characters, or be whsec_ and the base64 of at least 16 bytes.',
    );
  }
  const unknown = events.find((event) => !EVENTS.includes(event));
  if (unknown !== undefined) {
    throw invalid(`webhooks.events contains ${JSON.stringify(unknown)}. Use some of ${EVENTS.join(', ')}.`);
  }
  if (events.length === 0) throw invalid('webhooks.events is empty. Leave it out for all events.');
}

function invalid(message: string): TreadleError {
  return new TreadleError('invalid-options', message);
}

/** How long one request may take. */
const REQUEST_MS = 10_000;
/** For so long no other process sends the same notice. */
const TAKEN_MS = 25_000;
/** How many requests are open at the same time, for one process. */
const PARALLEL = 8;
/** The delay after the first failure, which doubles with each, and the longest one. */
const FIRST_RETRY_MS = 5_000;
const LAST_RETRY_MS = 3_600_000;
/** After so many attempts, or so much time, a notice is dropped. */
const MOST_ATTEMPTS = 15;
const MOST_AGE_MS = 24 * 3_600_000;
/** If more notices are waiting, the oldest are dropped. */
const MOST_WAITING = 10_000;
/** How often to look for notices at least. */
const LOOK_MS = 30_000;

interface NoticeParts {
  readonly store: Pick<ServerStore, 'notices'>;
  readonly log: Logger;
  readonly clock?: Clock;
}

export interface NoticeHandler {
  /** The statuses that it wants to know about. */
  readonly statuses: readonly RunStatus[];
  /** Resolves to why it has to be called again with this notice, after a while; undefined if it is done. */
  handle(notice: RunNotice): Promise<string | undefined>;
}

export interface NoticeHandling {
  /** Those that are called from now on, instead of the earlier ones. Without any, there are no notices. */
  setHandlers(handlers: readonly NoticeHandler[]): void;
  stop(): Promise<void>;
}

/**
 * Tells handlers of each run that waits or has ended, each at least once, in the background. The notices are in the store, so they
 * survive a restart, and any server with the same store handles them. If one handler fails, all are called again.
 */
export function handleNotices({ store, log, clock = systemClock }: NoticeParts): NoticeHandling {
  const { notices } = store;
  let handlers: readonly NoticeHandler[] = [];
  let cancelTimer = (): void => {};
  let stopWatching: (() => void) | undefined;
  let sending: Promise<void> | undefined;
  let isAskedAgain = false;
  let isStopped = false;
  let prunedAt = -Infinity;

  function look(): void {
    if (sending) isAskedAgain = true;
    else if (!isStopped && handlers.length > 0) sending = handleDue();
  }

  async function handleDue(): Promise<void> {
    cancelTimer();
    let waitMs = LOOK_MS;
    try {
      do {
        isAskedAgain = false;
        await handlePage();
      } while (isAskedAgain && !isStopped);
      const dueAt = (await notices.nextDue()) ?? Infinity;
      waitMs = Math.min(LOOK_MS, Math.max(0, dueAt - clock.now()));
    } catch (error) {
      if (!isStopped) log.error({ err: error }, 'notices of runs could not be handled: the store failed');
    }
    sending = undefined;
    if (isStopped) return;
    if (isAskedAgain) look();
    else cancelTimer = clock.timer(waitMs, look);
  }

  async function handlePage(): Promise<void> {
    const now = clock.now();
    if (now - prunedAt >= LOOK_MS || now < prunedAt) {
      prunedAt = now;
      const dropped = await notices.prune(now - MOST_AGE_MS, MOST_WAITING);
      if (dropped > 0)
        log.error({ dropped }, 'notices of runs were dropped: they are too old, or too many are waiting');
    }
    const due = await notices.take({ now, until: now + TAKEN_MS, limit: PARALLEL });
    await Promise.all(due.map(handleNotice));
    // There may be more.
    if (due.length === PARALLEL) isAskedAgain = true;
  }

  async function handleNotice(notice: RunNotice): Promise<void> {
    const wanting = handlers.filter(({ statuses }) => statuses.includes(notice.status));
    const problems = await Promise.all(wanting.map((one) => one.handle(notice)));
    const problem = problems.find((one) => one !== undefined);
    if (problem === undefined) return notices.remove(notice.id);
    if (isStopped) return notices.postpone(notice.id, clock.now());
    const { runId: run, attempts } = notice;
    if (attempts >= MOST_ATTEMPTS) {
      log.error({ run, attempts, why: problem }, 'a notice of a run was dropped after too many attempts');
      return notices.remove(notice.id);
    }
    log.warn({ run, attempts, why: problem }, 'a notice of a run failed, and is handled again');
    await notices.postpone(notice.id, clock.now() + Math.min(FIRST_RETRY_MS * 2 ** (attempts - 1), LAST_RETRY_MS));
  }

  return {
    setHandlers(given) {
      handlers = given;
      notices.enable([...new Set(given.flatMap(({ statuses }) => statuses))]);
      if (given.length > 0) stopWatching ??= notices.watch(look);
      look();
    },
    async stop() {
      isStopped = true;
      stopWatching?.();
      cancelTimer();
      await sending;
    },
  };
}

interface WebhookParts {
  readonly store: Pick<ServerStore, 'list' | 'read' | 'durable'>;
  readonly clock?: Clock;
  /** Aborts when the server stops. */
  readonly signal: AbortSignal;
}

/** Sends a request for each run that waits or has ended, each at least once. */
export function webhookSender(
  options: WebhookOptions,
  { store, clock = systemClock, signal }: WebhookParts,
): NoticeHandler {
  const { url, events = EVENTS } = options;
  let client: Promise<HttpClient> | undefined;

  /** Returns why the run cannot be read, or why the receiver did not accept the request. */
  async function post(notice: RunNotice): Promise<string | undefined> {
    const id = messageId(notice);
    const timestamp = String(Math.floor(clock.now() / 1000));
    try {
      const body = await noticeBody(notice, store);
      // The run was deleted.
      if (body === undefined) return undefined;
      await store.durable();
      const { request } = await (client ??= guardedClient(options));
      const { status } = await request(url, {
        method: 'POST',
        headers: {
          'content-type': 'application/json',
          'user-agent': 'treadle',
          'webhook-id': id,
          'webhook-timestamp': timestamp,
          'webhook-signature': `v1,${webhookSignature(options.secret, { id, timestamp, body })}`,
        },
        body,
        ignoreBody: true,
        signal,
      });
      return status >= 200 && status < 300 ? undefined : `it answered with the status ${status}`;
    } catch (error) {
      // The path may be a secret.
      return messageOf(error).replaceAll(url, new URL(url).origin);
    }
  }

  return { statuses: events.map((event) => STATUSES[event]), handle: post };
}

/** The same for all attempts, so that the receiver can recognise a repetition. */
function messageId({ runId, seq }: RunNotice): string {
  return `msg_${runId}_${seq}`;
}

interface SignedMessage {
  readonly id: string;
  /** Seconds since 1970. */
  readonly timestamp: string;
  readonly body: string | Uint8Array;
}

/** HMAC-SHA256 in base64, as specified by Standard Webhooks. */
export function webhookSignature(secret: string, { id, timestamp, body }: SignedMessage): string {
  return createHmac('sha256', signingKey(secret)).update(`${id}.${timestamp}.`).update(body).digest('base64');
}

export function signingKey(secret: string): Buffer {
  return secret.startsWith('whsec_') ? Buffer.from(secret.slice('whsec_'.length), 'base64') : Buffer.from(secret);
}

/** Loaded when the first webhook is sent. */
async function guardedClient({ allowPrivate = false }: WebhookOptions): Promise<HttpClient> {
  const { httpClient, urlFacts } = await import('@treadle/tools');
  return httpClient({
    timeoutMs: REQUEST_MS,
    maxRedirects: 0,
    check(url, resolvedFrom) {
      const { range } = urlFacts(url);
      const isPublic = range === 'public' || (range === undefined && resolvedFrom === undefined);
      if (isPublic || (allowPrivate && range !== 'metadata')) return undefined;
      return `${resolvedFrom ?? url} is not a public address (${range}). Allow private addresses for webhooks, or use another URL.`;
    },
  });
}

/** The JSON of a request; undefined if the run does not exist any more. */
async function noticeBody(notice: RunNotice, { list, read }: WebhookParts['store']): Promise<string | undefined> {
  const { runId, seq, status, at } = notice;
  const [summary] = await list({ runId, limit: 1 });
  if (!summary) return undefined;
  const { model, title, tenant = null, parent = null, startedAt } = summary;
  // As it was then: the run may have continued.
  const journal = { append: () => {}, read: async (id: string) => (await read(id)).slice(0, seq + 1) };
  const state = status === 'paused' ? await storedState(journal, runId, { tenant: tenant ?? '' }) : undefined;
  const open = state ? waiting(state) : [];
  return JSON.stringify({
    id: messageId(notice),
    type: EVENTS.find((event) => STATUSES[event] === status),
    created_at: at,
    data: {
      id: runId,
      object: 'run',
      status,
      tenant,
      model,
      title,
      parent,
      started_at: startedAt,
      updated_at: at,
      entries: seq + 1,
      waiting: open.map(({ type, effect, call, expiresAt = null }) => ({
        type,
        effect,
        tool: call.name,
        expires_at: expiresAt,
      })),
    },
  });
}

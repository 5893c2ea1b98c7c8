import type { IdempotencyKey } from '@treadle/store';
import { ApiError, type ApiErrorCode } from '../../api-error.ts';
import type { ServerStore } from '../../engine/engine.ts';
import { readRecord, type Reader } from '../../engine/stored-reads.ts';
import { conversationBefore, storedState, type ConversationBefore } from '../../history/conversation.ts';
import { bodyDigest, KEY_MS } from '../../requests/idempotency.ts';
import type { RequestKind } from '../../requests/requests.ts';
import type { MessageRequest } from './parse-request.ts';
import type { DeclaredTool } from './parse-tools.ts';

/*
 * Threads: conversations that the server holds, so that a request has only the new messages.
 *
 * 1. A thread is a chain of messages. The run of each has the conversation up to it, and its record has what else the next
 *    request takes over: `system` and `tools`.
 * 2. A message is continued once. The request that continues it has a key for that, as an `Idempotency-Key` is: of several at the
 *    same time, one is created. It gives the key back if it fails, because there is nothing to continue from then.
 * 3. A client that gets one of these errors sends the whole conversation again, as a new thread.
 */

/** What a message hands down to the one that continues it. Stored as JSON, so its fields must not change. */
export interface StoredThread {
  /** The id of the first message. */
  readonly first: string;
  /** Digests of `system` and `tools` of the first request. A later one may repeat them. */
  readonly fingerprints: Fingerprints;
  /** What the model is told before the conversation. */
  readonly instructions: readonly string[];
  /** With the changes in the conversation. */
  readonly tools: readonly DeclaredTool[];
}

export type Fingerprints = Readonly<Record<'system' | 'tools', string>>;

export function fingerprintsOf({ system = [], tools = [] }: Pick<MessageRequest, 'system' | 'tools'>): Fingerprints {
  return { system: bodyDigest('system', system), tools: bodyDigest('tools', tools) };
}

/** A thread that a request continues. */
export interface ContinuedThread extends StoredThread {
  readonly before: ConversationBefore;
}

/** Rejects with a 404 if there is nothing to continue from, and with a 400 if the request changes the thread. */
export async function readThread(
  store: ServerStore,
  previous: string,
  request: Pick<MessageRequest, 'system' | 'tools'>,
  reader: Reader,
): Promise<ContinuedThread> {
  const head = await store.requests.head(reader.tenant, previous);
  const isEnded = head?.kind === ('anthropic-message' satisfies RequestKind) && head.status === 'completed';
  const record = isEnded ? await readRecord(store, previous, reader) : undefined;
  const { thread } = (record?.request ?? {}) as { readonly thread?: StoredThread };
  const state = record && thread && (await storedState(store, record.runId, reader));
  if (!state || !thread) {
    const message = `There is no thread with the message '${previous}'. It was deleted, was created without 'thread', or never existed. Send the whole conversation with "thread": {"type": "create"}.`;
    throw threadError(404, 'thread_not_found', message);
  }
  const repeated = fingerprintsOf(request);
  const changed = (['system', 'tools'] as const).filter(
    (field) => request[field] && repeated[field] !== thread.fingerprints[field],
  );
  if (changed.length > 0) {
    const fields = changed.map((field) => `'${field}'`).join(' and ');
    const message = `The thread was created with other ${fields}. Leave them out, or send the whole conversation with "thread": {"type": "create"}.`;
    throw threadError(400, 'thread_fingerprint_mismatch', message);
  }
  return { ...thread, before: conversationBefore(record.runId, state, []) };
}

/** Contains a space, so no client can send it as an `Idempotency-Key`. */
export function continuationKey(previous: string): string {
  return `thread ${previous}`;
}

/** The key of a request that continues a message. */
export function claimOf(previous: string, now: number): IdempotencyKey {
  return { key: continuationKey(previous), digest: 'thread', expiresAt: now + KEY_MS, keptWith: previous };
}

/** Rejects with a 400 if another request continues the message, or has continued it. */
export async function checkContinuable(
  { requests }: ServerStore,
  previous: string,
  tenant: string,
): Promise<undefined> {
  const used = await requests.findKey(tenant, continuationKey(previous), Date.now());
  if (!used) return undefined;
  const head = await requests.head(tenant, used.response);
  if (head?.status === 'in_progress') {
    const message = `Another request is continuing from the message '${previous}'. Wait for its end and continue from its message, or send the whole conversation with "thread": {"type": "create"}.`;
    throw threadError(400, 'thread_continue_in_flight', message);
  }
  const message = `The message '${previous}' was continued before, by '${used.response}'. Continue from the newest message of the thread.`;
  throw threadError(400, 'thread_already_continued', message);
}

function threadError(status: number, code: ApiErrorCode, message: string): ApiError {
  return new ApiError(status, status === 404 ? 'not_found_error' : 'invalid_request_error', message, {
    param: 'thread',
    code,
  });
}

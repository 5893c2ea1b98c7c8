import { setTimeout as delay } from 'node:timers/promises';
import type { RequestRecord } from '@treadle/store';
import { ApiError } from '../api-error.ts';
import type { Engine } from '../engine/engine.ts';
import { recordOfKey, responseDeleted, type RequestKey } from './idempotency.ts';
import { ASLEEP, isDrivenElsewhere, retryLater, type Interruption } from './interruption.ts';
import { isSleeping, type RequestRecovery, type Resuming } from './recovery.ts';
import { readRecord, type Reader } from '../engine/stored-reads.ts';

/** Waits for the end of requests, whichever process drives them. */
export interface RequestFollower {
  /**
   * The id of the record that was created with the key; undefined if there is none. Rejects with a 409 for another body, and
   * if the record was deleted.
   */
  findKey(tenant: string, key: RequestKey): Promise<string | undefined>;
  /**
   * Waits until the request that was first with the key has ended, in this process or another one, and resumes it if its
   * process has died. Resolves to its record; undefined if it has released the key. Rejects with a 409 if the record was
   * deleted, and with a 503 if the request is interrupted or asleep.
   */
  follow(repeated: RepeatedRequest, signal: AbortSignal): Promise<RequestRecord | undefined>;
  /**
   * Waits until the request of a record has ended, as `follow` does. Resolves to the record; undefined if it was deleted.
   * Rejects with an error of `interrupted` if the request is interrupted or asleep.
   */
  ended(
    record: Reader & Pick<RequestRecord, 'id'>,
    signal: AbortSignal,
    interrupted: (interruption: Interruption) => ApiError,
  ): Promise<RequestRecord | undefined>;
}

/** A request with a key that was used before. */
export interface RepeatedRequest extends Reader {
  readonly key: RequestKey;
  /** The id of the record. */
  readonly id: string;
}

/** How long to wait before looking again for the end of a run in another process: at first, and at most. */
const FIRST_FOLLOW_MS = 50;
const LAST_FOLLOW_MS = 1_000;

export function requestFollower(
  { store }: Pick<Engine, 'store'>,
  { apiOf, active, recoverRecord }: Pick<Resuming, 'apiOf' | 'active'> & Pick<RequestRecovery, 'recoverRecord'>,
): RequestFollower {
  const records = store.requests;

  const ended: RequestFollower['ended'] = async ({ id, ...reader }, signal, interrupted) => {
    const { tenant } = reader;
    for (let pauseMs = FIRST_FOLLOW_MS; ; pauseMs = Math.min(2 * pauseMs, LAST_FOLLOW_MS)) {
      // If another process takes over, its end is waited for.
      const { interruption } = (await active.get(id)?.catch(() => undefined)) ?? {};
      if (interruption) throw interrupted(interruption);
      const head = await records.head(tenant, id);
      if (head?.status !== 'in_progress') return head && readRecord(store, id, reader);
      const { runId, kind } = head;
      const isAsleepNow =
        !(await store.isDriven(runId)) && (await isSleeping(store, { ...reader, runId }, apiOf(head)));
      if (isAsleepNow) throw interrupted(ASLEEP);
      const isResumed = await recoverRecord({ id, kind, tenant, runId }).catch((error: unknown) => {
        if (isDrivenElsewhere(error)) return false;
        throw error;
      });
      if (!isResumed) await delay(pauseMs, undefined, { signal }).catch(() => {});
      if (signal.aborted) throw disconnected();
    }
  };

  return {
    async findKey(tenant, key) {
      const id = await recordOfKey(records, tenant, key);
      if (id !== undefined && !(await records.head(tenant, id))) throw responseDeleted();
      return id;
    },
    async follow({ key, ...repeated }, signal) {
      const { tenant, id } = repeated;
      const record = await ended(repeated, signal, retryLater);
      if (!record) throw responseDeleted();
      const isReleased = record.status === 'failed' && (await recordOfKey(records, tenant, key)) !== id;
      return isReleased ? undefined : record;
    },
    ended,
  };
}

/** The client does not receive it. */
function disconnected(): ApiError {
  return new ApiError(499, 'server_error', 'The client has disconnected.', { code: 'cancelled' });
}

import type { IdempotencyKey, RequestStore, UsedKey } from '@treadle/store';
import { ApiError } from '../api-error.ts';
import { itemOrigin, KEYED_PREFIX } from '../ids.ts';

/*
 * A client decides about each request for an approval once.
 *
 * 1. A decision is stored as a key of the response that executes or refuses the call, as an `Idempotency-Key` is: before the
 *    run of the response starts. The store has one key for each request, so of several responses that decide about the same
 *    one, in any process, one is created.
 * 2. The decision is kept as long as the response that has asked is stored, and at least `DECIDED_MS`: a client that holds the
 *    conversation itself can send its items at any time. It contains ids and a hash, also if nothing else is stored.
 * 3. It is released if the response failed before it did anything.
 */

const DECIDED_MS = 30 * 24 * 3_600_000;

/** Contains a space, so no client can send it as an `Idempotency-Key`. A client that holds the conversation may use any id. */
function keyOf(requestId: string): string {
  return `approval ${requestId.toWellFormed()}`;
}

/** `digest`: equal for equal requests of the client. */
export function decisionKeys(requestIds: readonly string[], digest: string, now: number): readonly IdempotencyKey[] {
  return requestIds.map((id) => {
    const asked = itemOrigin(id)?.response;
    return { key: keyOf(id), digest, expiresAt: now + DECIDED_MS, ...(asked !== undefined && { keptWith: asked }) };
  });
}

/** The response that decides about a request for an approval; undefined if there is none. */
export function findDecision(
  records: Pick<RequestStore, 'findKey'>,
  tenant: string,
  requestId: string,
): Promise<UsedKey | undefined> {
  return records.findKey(tenant, keyOf(requestId), Date.now());
}

/** Lets others decide about the requests: the response has done nothing. */
export function releaseDecisions(
  records: Pick<RequestStore, 'removeKeys'>,
  response: { readonly id: string; readonly tenant: string },
  requestIds: readonly string[],
): Promise<void> {
  return records.removeKeys(response, requestIds.map(keyOf));
}

/** The 409 for a second decision. */
export function decidedBefore(requestId: string, { response }: Pick<UsedKey, 'response'>): ApiError {
  const message = `The approval request '${requestId}' was decided before, in the response '${wireId(response)}'. Each request is decided once, and its call is executed at most once. Get that response, or continue from it; if it was not stored or was deleted, let the model make the call again.`;
  // The official clients repeat requests after a 409.
  return new ApiError(409, 'invalid_request_error', message, {
    param: 'input',
    code: 'approval_decided',
    headers: { 'x-should-retry': 'false' },
  });
}

/** The 409 for a repeated request whose response is in progress. The official clients repeat it, and get the response then. */
export function decisionInProgress({ response }: Pick<UsedKey, 'response'>): ApiError {
  const message = `The response '${wireId(response)}' to this request is in progress. Get it by its id, or send the request again when it has ended.`;
  return new ApiError(409, 'invalid_request_error', message, { param: 'input', code: 'response_in_progress' });
}

function wireId(recordId: string): string {
  return recordId.startsWith(KEYED_PREFIX) ? recordId.slice(KEYED_PREFIX.length) : recordId;
}

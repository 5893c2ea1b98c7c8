import { createHash } from 'node:crypto';
import { stableJson, TreadleError } from '@treadle/core';
import type { RequestStore } from '@treadle/store';
import { ApiError, badRequest, type ApiErrorCode } from '../api-error.ts';
import type { Parameters } from '../http/routes.ts';

/** The `Idempotency-Key` of a request. Keys of different tenants are different keys. */
export interface RequestKey {
  readonly key: string;
  /** Equal for requests with equal bodies to the same endpoint. */
  readonly digest: string;
  /** The id of a response. The key does not expire while that is stored. */
  readonly keptWith?: string;
  /** The key does not expire while the response that is created with it is stored. */
  readonly isKept?: true;
}

const HEADER = 'idempotency-key';

/** The headers of a route that accepts a key. */
export const KEY_HEADER: Parameters = {
  'Idempotency-Key': {
    description: 'Makes the request repeatable: the same key and body get the same answer for 24 hours.',
    schema: { type: 'string', maxLength: 255 },
  },
};

/** `key`: the header `Idempotency-Key` of a request that has one. Throws a 400 if it is not valid. */
export function requestKey(key: string | readonly string[], endpoint: string, body: unknown): RequestKey {
  if (typeof key !== 'string' || !/^[!-~]{1,255}$/.test(key)) {
    const message = 'The header Idempotency-Key must have 1 to 255 visible ASCII characters, without spaces.';
    throw badRequest(message, undefined, 'invalid_idempotency_key');
  }
  return { key, digest: bodyDigest(endpoint, body) };
}

/** Equal for equal bodies to the same endpoint. */
export function bodyDigest(endpoint: string, body: unknown): string {
  return createHash('sha256')
    .update(`${endpoint}\n${stableJson(body)}`)
    .digest('hex');
}

/** Throws a 400 for a request with a key, if its endpoint has no keys: the client would rely on it. */
export function rejectKey(headers: Readonly<Record<string, unknown>>): void {
  if (headers[HEADER] === undefined) return;
  const message = 'This endpoint does not support the header Idempotency-Key. Send the request without it.';
  throw badRequest(message, undefined, 'unsupported_parameter');
}

/** How long keys are kept: 24 hours. */
export const KEY_MS: number = 24 * 3_600_000;

/** The id of the record that was created with the key; undefined if there is none. Throws a 409 for another body. */
export async function recordOfKey(
  records: Pick<RequestStore, 'findKey'>,
  tenant: string,
  { key, digest }: RequestKey,
): Promise<string | undefined> {
  const used = await records.findKey(tenant, key, Date.now());
  if (used === undefined || used.digest === digest) return used?.response;
  const message =
    'This Idempotency-Key was used for a request with another body or to another endpoint. ' +
    'Send the same body, or another key.';
  throw keyConflict(message, 'idempotency_key_reused');
}

/** Another request with the same key was first. */
export function isKeyTaken(error: unknown): boolean {
  return error instanceof TreadleError && error.code === 'run-exists';
}

/** The 409 for a key whose response or conversation does not exist any more. */
export function responseDeleted(): ApiError {
  const message = 'What was created with this Idempotency-Key was deleted. Send another key to create it again.';
  return keyConflict(message, 'response_deleted');
}

function keyConflict(message: string, code: ApiErrorCode): ApiError {
  // The official clients repeat requests after a 409.
  return new ApiError(409, 'invalid_request_error', message, { code, headers: { 'x-should-retry': 'false' } });
}

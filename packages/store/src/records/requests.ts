import { messageOf, TreadleError } from '@treadle/core';
import type { IdempotencyKey, RequestEnding, RequestRecord } from '../ports/requests.ts';
import { withChecksum, type ChecksummedJson } from './json.ts';

/** Encodes the value at once, so that later changes by the caller have no effect. */
export function encodeBody(name: string, value: unknown): ChecksummedJson {
  return encoded(name, () => withChecksum(value));
}

export function encoded<T>(name: string, encode: () => T): T {
  try {
    return encode();
  } catch (error) {
    throw invalidInput(`The ${name} of a response cannot be written as JSON: ${messageOf(error)}`);
  }
}

/** Throws if the response cannot be stored with these keys. */
export function checkRecord(record: RequestRecord, keys: readonly IdempotencyKey[]): void {
  const { id, kind, tenant, runId, status, createdAt, updatedAt, expiresAt, previous } = record;
  for (const [name, value] of Object.entries({ id, kind, tenant, runId, status })) checkText(name, value);
  if (previous !== undefined) checkText('previous', previous);
  for (const [name, value] of Object.entries({ createdAt, updatedAt })) checkTime(name, value);
  if (expiresAt !== undefined) checkTime('expiresAt', expiresAt);
  checkKeys(keys);
}

/** Throws if keys cannot be added to the response. */
export function checkAddedKeys(
  { id, tenant }: Pick<RequestRecord, 'id' | 'tenant'>,
  keys: readonly IdempotencyKey[],
): void {
  for (const [name, value] of Object.entries({ id, tenant })) checkText(name, value);
  checkKeys(keys);
}

/** Throws if the status cannot be changed so. */
export function checkChange({
  from,
  status,
  at,
}: Pick<RequestEnding, 'status' | 'at'> & { readonly from: string }): void {
  checkText('from', from);
  checkText('status', status);
  checkTime('at', at);
}

/** What `finish` changes. */
export function endingOf(ending: RequestEnding): RequestEnding & { readonly from: string } {
  const { from = 'in_progress', status } = ending;
  if (status === 'in_progress') throw invalidInput('The status of a finished response cannot be "in_progress".');
  return { ...ending, from };
}

/** Stores keep text as UTF-8, in which ids that differ only in an unpaired surrogate would be equal. */
function checkText(name: string, value: unknown): void {
  if (typeof value === 'string' && value !== '' && value.isWellFormed()) return;
  throw invalidInput(`The ${name} of a response must be a non-empty string without unpaired surrogates.`);
}

function checkKeys(keys: readonly IdempotencyKey[]): void {
  for (const { key, digest, expiresAt, keptWith = key } of keys) {
    for (const [name, value] of Object.entries({ key, digest, keptWith })) checkText(name, value);
    checkTime('expiresAt', expiresAt);
  }
}

export function checkTime(name: string, value: unknown): void {
  if (!Number.isFinite(value)) throw invalidInput(`The ${name} of a response must be a time in milliseconds.`);
}

function invalidInput(message: string): TreadleError {
  return new TreadleError('invalid-input', message);
}

export function responseExists(id: string): TreadleError {
  return new TreadleError(
    'run-exists',
    `A response "${id}" already exists, so nothing was written. Choose another id.`,
  );
}

export function runTaken(runId: string): TreadleError {
  return new TreadleError(
    'run-exists',
    `Run "${runId}" belongs to another response, so nothing was written. Choose another run id.`,
  );
}

export function keyTaken(): TreadleError {
  return new TreadleError(
    'run-exists',
    'The key belongs to another response, so nothing was written. Find it by its key.',
  );
}

export function responseDamaged(id: string): TreadleError {
  return new TreadleError(
    'store-failed',
    `Response "${id}" is damaged. Restore the store from a backup, or delete the response; other responses are not affected.`,
  );
}

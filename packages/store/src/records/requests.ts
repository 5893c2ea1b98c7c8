import { messageOf, TreadleError } from '@treadle/core';
import type { IdempotencyKey } from '../ports/requests.ts';
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

/** Stores keep text as UTF-8, in which ids that differ only in an unpaired surrogate would be equal. */
export function checkText(name: string, value: unknown): void {
  if (typeof value === 'string' && value !== '' && value.isWellFormed()) return;
  throw invalidInput(`The ${name} of a response must be a non-empty string without unpaired surrogates.`);
}

export function checkKeys(keys: readonly IdempotencyKey[]): void {
  for (const { key, digest, expiresAt, keptWith = key } of keys) {
    for (const [name, value] of Object.entries({ key, digest, keptWith })) checkText(name, value);
    checkTime('expiresAt', expiresAt);
  }
}

export function checkTime(name: string, value: unknown): void {
  if (!Number.isFinite(value)) throw invalidInput(`The ${name} of a response must be a time in milliseconds.`);
}

export function invalidInput(message: string): TreadleError {
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

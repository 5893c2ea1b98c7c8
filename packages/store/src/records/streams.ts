import { TreadleError } from '@treadle/core';

/** A page ends after the row that reaches this number of characters. */
export const STREAM_PAGE_CHARS = 262_144;

export function numberUsed(stream: string, first: number, last: number): TreadleError {
  return new TreadleError(
    'run-exists',
    `Stream "${stream}" has events up to ${last}, so ${first} cannot be appended and nothing was written.`,
  );
}

export function eventDamaged(stream: string, seq: number): TreadleError {
  return new TreadleError(
    'store-failed',
    `Event ${seq} of stream "${stream}" is damaged. Restore the store from a backup, or delete the stream.`,
  );
}

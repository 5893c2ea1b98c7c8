import { TreadleError } from '@treadle/core';
import { expect, test } from 'vitest';
import { toApiError } from './api-error.ts';

const cause = new Error('database or disk is full');

test.each([
  ['a full disk', new TreadleError('store-full', 'full', { cause }), 503],
  ['a lock', new TreadleError('store-locked', 'locked', { cause }), 503],
  ['a disk that cannot be written', new TreadleError('store-read-only', 'read-only', { cause }), 503],
  ['an I/O error', new TreadleError('store-failed', 'failed', { cause }), 503],
  ['a journal that fails', new TreadleError('journal-failed', 'failed', { cause }), 503],
  ['a damaged record', new TreadleError('store-failed', 'damaged'), 500],
  ['a damaged run', new TreadleError('journal-damaged', 'damaged'), 500],
  ['anything else', new Error('secret'), 500],
])('%s: %s', (_, thrown, status) => {
  const error = toApiError(thrown, 'req_1');
  const expected = status === 503 ? ['store_unavailable', '5'] : ['internal_error', undefined];
  expect([error.status, error.code, error.headers['Retry-After']]).toEqual([status, ...expected]);
  // Details are only in the log.
  expect(error.message).toContain('req_1');
  expect(error.message).not.toContain(thrown.message);
});

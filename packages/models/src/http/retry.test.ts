import { expect, test } from 'vitest';
import { retryAfterMs } from './retry.ts';

const NOW = Date.parse('Sat, 15 Nov 2025 12:00:00 GMT');

test.each([
  [{}, undefined],
  [{ 'retry-after': '2' }, 2_000],
  [{ 'retry-after': '0.5' }, 500],
  [{ 'retry-after': 'Sat, 15 Nov 2025 12:00:30 GMT' }, 30_000],
  [{ 'retry-after': 'Sat, 15 Nov 2025 11:00:00 GMT' }, 0],
  [{ 'retry-after': 'soon' }, undefined],
  [{ 'retry-after': '-1' }, undefined],
  [{ 'retry-after': '9', 'retry-after-ms': '1500' }, 1_500],
])('reads the wait in %j as %s ms', (headers: Record<string, string>, ms) => {
  expect(retryAfterMs((name) => headers[name], NOW)).toBe(ms);
});

import { expect, test } from 'vitest';
import { redactor } from './redact.ts';

const KEY = 'sk-live-1234567890';

test('the key is blotted out wherever it stands, and so are secret headers', () => {
  const safe = redactor(KEY, { authorization: `Bearer ${KEY}`, 'x-api-key': 'other-secret', 'x-team': 'marketing' });
  expect(safe(`a ${KEY} b ${KEY}`)).toBe('a [redacted] b [redacted]');
  expect(safe(`Bearer ${KEY}`)).toBe('[redacted]');
  expect(safe('other-secret of marketing')).toBe('[redacted] of marketing');
});

test('a key that stands where the text is cut leaves no part of itself', () => {
  expect(redactor(KEY, {})('x'.repeat(1_995) + KEY)).not.toContain('sk-l');
});

test('placeholders are no secrets', () => {
  expect(redactor('none', {})('none of this')).toBe('none of this');
});

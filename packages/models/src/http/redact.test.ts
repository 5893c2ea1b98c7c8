import { expect, test } from 'vitest';
import { redactor } from './redact.ts';

const KEY = 'sk-live-1234567890';

test('removes the key and the values of secret headers everywhere', () => {
  const safe = redactor(KEY, { authorization: `Bearer ${KEY}`, 'x-api-key': 'other-secret', 'x-team': 'marketing' });
  expect(safe(`a ${KEY} b ${KEY}`)).toBe('a [redacted] b [redacted]');
  expect(safe(`Bearer ${KEY}`)).toBe('[redacted]');
  expect(safe('other-secret of marketing')).toBe('[redacted] of marketing');
});

test('leaves no part of a key where the text is truncated', () => {
  expect(redactor(KEY, {})('x'.repeat(1_995) + KEY)).not.toContain('sk-l');
});

test('removes a short key only as a whole word', () => {
  const safe = redactor('a.c$1', { authorization: 'Bearer hunter2' });
  expect(safe('bad keys: a.c$1, "hunter2" (Bearer hunter2)')).toBe('bad keys: [redacted], "[redacted]" ([redacted])');
  expect(safe('abc$1 and hunter22')).toBe('abc$1 and hunter22');
  expect(redactor('none', {})('none: nonetheless')).toBe('[redacted]: nonetheless');
  expect(redactor('key', {})('no key')).toBe('no key');
});

test('removes the values but not the names of the parts of a header', () => {
  const safe = redactor(undefined, { cookie: 'session=abcd1; theme=dark', 'x-auth': 'Basic dXNlcjpwYXNz==' });
  expect(safe('session abcd1, theme dark, Basic dXNlcjpwYXNz')).toBe(
    'session [redacted], theme [redacted], Basic [redacted]',
  );
});

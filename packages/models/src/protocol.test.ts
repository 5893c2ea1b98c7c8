import { expect, test } from 'vitest';
import { signerOf } from './protocol.ts';

test.each([
  ['https://api.anthropic.com/v1', 'anthropic@api.anthropic.com'],
  ['https://API.anthropic.com/', 'anthropic@api.anthropic.com'],
  ['http://127.0.0.1:8080/v1?a=b', 'anthropic@127.0.0.1:8080'],
  ['not a URL', 'anthropic@'],
  [undefined, 'anthropic@'],
])('the signer at %s is %s', (baseURL, name) => {
  expect(signerOf('anthropic', baseURL)).toBe(name);
});

import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { isOldNode, OLDEST_NODE } from './version.ts';

test.each(['18.20.0', '20.20.2', '22.9.0', '22.17.1'])('Node %s is too old', (node) => {
  expect(isOldNode(node)).toBe(true);
});

test.each([`${OLDEST_NODE}.0`, '22.21.1', '23.0.0', '24.5.0', '100.0.0'])('Node %s is supported', (node) => {
  expect(isOldNode(node)).toBe(false);
});

test('the oldest Node is that of the package', () => {
  const file = readFileSync(new URL('../package.json', import.meta.url), 'utf8');
  expect(JSON.parse(file)).toMatchObject({ engines: { node: `>=${OLDEST_NODE}` } });
});

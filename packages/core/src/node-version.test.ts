import { readFileSync } from 'node:fs';
import { afterEach, expect, test, vi } from 'vitest';
import { nodeVersion, OLDEST_NODE, oldNodeProblem } from './node-version.ts';

afterEach(() => vi.unstubAllGlobals());

test.each(['18.20.0', '20.20.2', '22.9.0', '22.17.1'])('Node %s is too old', (node) => {
  expect(oldNodeProblem(node)).toBe(
    `This is Node ${node}. Treadle needs Node 22.18 or later. Install it: https://nodejs.org`,
  );
});

test.each([`${OLDEST_NODE}.0`, '22.21.1', '23.0.0', '24.5.0', '100.0.0', undefined])('Node %s is supported', (node) => {
  expect(oldNodeProblem(node)).toBeUndefined();
});

test('the oldest Node is that of the package', () => {
  const file = readFileSync(new URL('../package.json', import.meta.url), 'utf8');
  expect(JSON.parse(file)).toMatchObject({ engines: { node: `>=${OLDEST_NODE}` } });
});

test.each(['Bun/1.4.4', 'Deno/2.9.6', 'Cloudflare-Workers'])('%s is not an old Node', (userAgent) => {
  expect(nodeVersion()).toBe(process.versions.node);
  vi.stubGlobal('navigator', { userAgent });
  vi.stubGlobal('process', { versions: { node: '20.11.1' } });
  expect(nodeVersion()).toBeUndefined();
});

test('a browser is not an old Node', () => {
  for (const process of [undefined, {}, { env: {}, versions: {} }]) {
    vi.stubGlobal('process', process);
    expect(oldNodeProblem(nodeVersion())).toBeUndefined();
  }
});

test('on an old Node, the package says so when it is loaded', async () => {
  vi.stubGlobal('navigator', undefined);
  vi.stubGlobal('process', { versions: { node: '20.20.2' } });
  // A query loads the module once more.
  const module = './platform.ts?old';
  await expect(import(/* @vite-ignore */ module)).rejects.toThrow('This is Node 20.20.2. Treadle needs Node 22.18');
});

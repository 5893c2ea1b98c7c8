import { readFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { configKeys, configPage, KEYS } from '../scripts/config-docs.ts';

const docs = path.resolve(import.meta.dirname, '..', 'docs');
const paths = configKeys().flatMap(({ path: key, isLater }) => (isLater ? [] : [key]));

test('every key of treadle.toml is described in KEYS of scripts/config-docs.ts', () => {
  expect(paths.filter((key) => !Object.hasOwn(KEYS, key))).toEqual([]);
});

test('every key in KEYS of scripts/config-docs.ts is a key of treadle.toml', () => {
  expect(Object.keys(KEYS).filter((key) => !paths.includes(key))).toEqual([]);
});

test('docs/configuration.md is current; if not, run npm run docs:config', () => {
  expect(readFileSync(path.join(docs, 'configuration.md'), 'utf8')).toBe(`${configPage()}\n`);
});

test('docs/serve.md has the same keys of [server] and the same defaults', () => {
  const page = readFileSync(path.join(docs, 'serve.md'), 'utf8').split('\n## Configuration\n')[1]!.split('\n## ')[0]!;
  const rows = [...page.matchAll(/^\| `(\w+)` +\| (.*?) +\|/gm)].map(([, key, fallback]) => [
    `server.${key}`,
    fallback,
  ]);
  const own = Object.entries(KEYS).filter(([key]) => /^server\.\w+$/.test(key));
  expect(Object.fromEntries(rows)).toEqual(Object.fromEntries(own.map(([key, [fallback]]) => [key, fallback])));
});

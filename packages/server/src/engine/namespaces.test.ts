import { expect, test } from 'vitest';
import { modelName } from './namespaces.ts';

test('keeps the name of a tool without a namespace', () => {
  expect(modelName('exec_command', undefined)).toBe('exec_command');
});

test('names a tool after its namespace', () => {
  expect(modelName('echo', 'mcp__every')).toBe('mcp__every__echo');
});

test('gives tools of different namespaces legal names of their own', () => {
  const long = 'x'.repeat(80);
  const pairs: readonly (readonly [string, string])[] = [
    ['c', 'a__b'],
    ['b__c', 'a'],
    ['_b', 'a'],
    ['b', 'a_'],
    ['b', `${long}1`],
    ['b', `${long}2`],
    ['b', 'a.b'],
    ['b', 'a b'],
  ];
  const names = pairs.map(([name, namespace]) => modelName(name, namespace));
  expect(new Set(names).size).toBe(pairs.length);
  for (const name of names) expect(name).toMatch(/^[a-zA-Z0-9_-]{1,64}$/);
});

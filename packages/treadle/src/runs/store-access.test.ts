import { memoryJournal, userText, type RunStore } from '@treadle/core';
import { beforeEach, describe, expect, test } from 'vitest';
import { findRun, isChild, shortId } from './store-access.ts';

const HEX = '0123456789abcdef0123456789abcdef';
let store: RunStore;

async function add(runId: string): Promise<void> {
  await store.append(runId, [
    { v: 1, seq: 0, issued: [], event: { type: 'run-started', at: 0, runId, input: [userText(runId)] } as never },
  ]);
}
const find = async (prefix: string): Promise<string> => (await findRun(store, prefix)).runId;

beforeEach(() => {
  store = memoryJournal();
});

describe('finds a run', () => {
  test('by its id, the beginning of it, or without run_', async () => {
    await add(`run_${HEX}`);
    await add('run_ff');
    await add('bill-7');
    for (const prefix of [`run_${HEX}`, 'run_0', '0123', 'run_01234567']) expect(await find(prefix)).toBe(`run_${HEX}`);
    expect(await find('bill')).toBe('bill-7');
  });

  test('by its whole id, although other ids begin with it', async () => {
    await add('a');
    await add('ab');
    expect(await find('a')).toBe('a');
    expect(await find('ab')).toBe('ab');
  });

  test('and not its children, whose ids begin with its id', async () => {
    for (const id of ['run_ab', 'run_ab.t1.tool.0', 'run_ab.t1.tool.0.t2.tool.0', 'run_ab.t1.tool.1']) await add(id);
    expect(await find('ab')).toBe('run_ab');
    expect(await find('run_a')).toBe('run_ab');
    expect(await find('ab.t1.tool.1')).toBe('run_ab.t1.tool.1');
    expect(await find('ab.t1.tool.0')).toBe('run_ab.t1.tool.0');
    await expect(find('ab.t1')).rejects.toThrow('matches 3 runs');
  });

  test('by the short id of a child run, as lists show it', async () => {
    const children = ['t1.tool.1', 't1.tool.1.t1.tool.0', 't1.tool.10'].map((call) => `run_${HEX}.${call}`);
    for (const id of [`run_${HEX}`, ...children]) await add(id);
    for (const id of children) {
      expect(await find(shortId(id))).toBe(id);
      expect(await find(shortId(id).slice('run_'.length))).toBe(id);
    }
    expect(await find('0123')).toBe(`run_${HEX}`);
    await add(`run_${HEX.replace('f', 'e')}.t1.tool.1`);
    await expect(find('run_01234567.t1.tool.1')).rejects.toThrow('matches 4 runs');
  });
});

test('lists the newest matches if there are several', async () => {
  for (let i = 0; i < 7; i++) await add(`run_a${i}`);
  await expect(find('a')).rejects.toThrow(
    '"a" matches 7 runs. Give more of the id:\n  run_a6  run_a6\n  run_a5  run_a5\n  run_a4  run_a4\n  run_a3  run_a3\n  run_a2  run_a2\n  and 2 more',
  );
});

test('an empty text is not the beginning of an id', async () => {
  await add('run_a');
  await expect(find('')).rejects.toThrow('There is no run "".');
});

test('suggests a run if none matches', async () => {
  await add(`run_${HEX}`);
  await expect(find('run_0123457')).rejects.toThrow('There is no run "run_0123457". Did you mean run_01234567?');
  await expect(find('nothing like it')).rejects.toThrow(
    'There is no run "nothing like it". "treadle runs list" lists the runs.',
  );
});

test('shortens ids, and recognizes child runs', () => {
  expect(shortId(`run_${HEX}`)).toBe('run_01234567');
  expect(shortId(`run_${HEX}.t1.tool.0`)).toBe('run_01234567.t1.tool.0');
  expect(shortId(`resp_${HEX}`)).toBe('resp_01234567');
  expect(shortId('bill-7')).toBe('bill-7');
  expect(isChild({ runId: 'a.t1.tool.0', parent: 'a' })).toBe(true);
  expect(isChild({ runId: 'b', parent: 'a' })).toBe(false);
  expect(isChild({ runId: 'a' })).toBe(false);
});

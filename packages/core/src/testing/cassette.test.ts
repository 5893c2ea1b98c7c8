import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { runLoop, tool } from '../index.ts';
import { recordModel, replayModel, scriptedModel } from './index.ts';

const folder = mkdtempSync(join(tmpdir(), 'treadle-cassette-'));
afterAll(() => rmSync(folder, { recursive: true }));

const double = tool({
  name: 'double',
  description: 'Doubles a number',
  input: { type: 'object', properties: { n: { type: 'number' } }, required: ['n'] },
  execute: ({ n }) => String((n as number) * 2),
});

async function record(name: string): Promise<string> {
  const path = join(folder, name, 'run.json');
  const model = scriptedModel([{ text: 'I will', calls: [{ name: 'double', arguments: { n: 21 } }] }, 'It is 42.']);
  const result = await runLoop({ model: recordModel(model, path), tools: [double], input: 'Double 21' });
  expect(result.text).toBe('It is 42.');
  return path;
}

test('replays a recorded run offline, including its deltas', async () => {
  using model = replayModel(await record('same'));
  const texts: string[] = [];
  const result = await runLoop({
    model,
    tools: [double],
    input: 'Double 21',
    onItem: (item) => item.type === 'text-delta' && texts.push(item.text),
  });
  expect(result).toMatchObject({ outcome: { type: 'completed' }, text: 'It is 42.', calls: 1 });
  expect(texts.join('')).toBe('I willIt is 42.');
});

test('fails at the first request that differs, and names the difference', async () => {
  const model = replayModel(await record('changed'));
  const triple = { ...double, execute: ({ n }: { n: number }) => String(n * 3) } as typeof double;
  const result = await runLoop({ model, tools: [triple], input: 'Double 21' });
  expect(result.outcome).toMatchObject({ type: 'failed' });
  expect(JSON.stringify(result.outcome)).toContain('request.messages[2].content[0].content[0].text was');
  expect(() => model.assertDone()).toThrow('Request 1 differs');
});

test('reports a run that is longer than the recording, a shorter one, and a missing cassette', async () => {
  const path = await record('length');
  const longer = replayModel(path);
  const more = await runLoop({ model: longer, tools: [double], input: 'Double 21', finish: 'confirm' });
  expect(more.outcome).toMatchObject({ type: 'failed' });
  expect(() => longer.assertDone()).toThrow('Request 2 is not in');
  const shorter = replayModel(path);
  await runLoop({ model: shorter, tools: [double], input: 'Double 21', maxTurns: 1 });
  expect(() => shorter.assertDone()).toThrow('Only 1 of the 2');
  expect(() => replayModel(join(folder, 'none.json'))).toThrow('Record one first');
});

test('replays concurrent requests in any order', async () => {
  const path = join(folder, 'parallel', 'run.json');
  const request = (input: string, slow: Promise<void>): Parameters<typeof runLoop>[0] => ({
    model: {
      id: 'm',
      reply: async (asked, emit, signal) => (await slow, scriptedModel([input]).reply(asked, emit, signal)),
    },
    input,
  });
  const { promise, resolve } = Promise.withResolvers<void>();
  const first = request('one', promise);
  const second = request('two', Promise.resolve());
  const model = recordModel(
    {
      id: 'm',
      reply: (asked, ...rest) => (JSON.stringify(asked).includes('one') ? first : second).model.reply(asked, ...rest),
    },
    path,
  );
  const both = [
    runLoop({ model, input: 'one' }),
    runLoop({ model, input: 'two' }).then((result) => (resolve(), result)),
  ];
  await Promise.all(both);
  using replayed = replayModel(path);
  expect((await runLoop({ model: replayed, input: 'two' })).text).toBe('two');
  expect((await runLoop({ model: replayed, input: 'one' })).text).toBe('one');
});

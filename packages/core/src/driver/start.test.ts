import { expect, test } from 'vitest';
import { scriptedModel } from '../testing/index.ts';
import { startLoop } from './run.ts';

test('startLoop gives a run that can be talked to, and tells only the listener', async () => {
  const heard: string[] = [];
  const run = startLoop({
    model: scriptedModel(['One.', 'Two.']),
    input: 'Go.',
    onItem: (item) => {
      if (item.type === 'text-delta') heard.push(item.text);
    },
  });
  expect(run.send('And?')).toBe(true);
  expect((await run.result).text).toBe('Two.');
  expect(heard.join('')).toBe('One.Two.');
  expect(Symbol.asyncIterator in run).toBe(false);
});

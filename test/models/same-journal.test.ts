import { runLoop, tool, type JournalEntry } from '@treadle/core';
import { manualClock, memoryJournal } from '@treadle/core/testing';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { startProvider, type Provider } from '../provider/provider.ts';
import type { FormName, Step } from '../provider/script.ts';
import { modelOf, PROTOCOLS } from './protocols.ts';

/** The journal of a run does not depend on the protocol. */

let provider: Provider;
beforeAll(async () => {
  provider = await startProvider();
});
afterAll(() => provider[Symbol.asyncDispose]());

const add = tool({
  name: 'add',
  description: 'The sum of two numbers',
  input: { type: 'object', properties: { a: { type: 'number' }, b: { type: 'number' } }, required: ['a', 'b'] },
  effect: 'pure',
  execute: (input) => {
    const { a, b } = input as { a: number; b: number };
    if (b === 0) throw new Error('nothing to add');
    return String(a + b);
  },
});

const steps: readonly Step[] = [
  {
    reasoning: 'Two sums, and one that fails.',
    text: 'I calculate.',
    calls: [
      { name: 'add', arguments: '{"a":1,"b":2}' },
      { name: 'add', arguments: '{"a":1,"b":0}' },
      { name: 'subtract', arguments: '{"a":1}' },
      { name: 'add', arguments: '{"a":"one"}' },
    ],
    usage: { input: 120, output: 40 },
  },
  { reasoning: 'Once more.', calls: [{ name: 'add', arguments: '{"a":3,"b":4}' }], usage: { input: 200, output: 10 } },
  { text: 'The sums are 3 and', finish: 'length', usage: { input: 230, output: 5 } },
];

async function journalOf(form: FormName, stream: boolean): Promise<readonly JournalEntry[]> {
  const script = await provider.script(steps);
  const journal = memoryJournal();
  const clock = manualClock();
  const model = modelOf(form, script, { stream, clock });
  const input = 'Add 1 and 2, then 3 and 4.';
  const settings = { reasoning: 'medium', maxOutputTokens: 16_000 } as const;
  const result = await runLoop({ model, tools: [add], input, settings, journal, clock, runId: 'r1' });
  expect(result).toMatchObject({ outcome: { type: 'completed', truncated: true }, turns: 3, calls: 3 });
  expect((await script.requests()).map(({ refused }) => refused)).toEqual([undefined, undefined, undefined]);
  return journal.read('r1');
}

/** An entry without what depends on the provider: ids, signatures, the name of the model, the raw finish reason. */
function comparable({ digest: _digest, event, ...entry }: JournalEntry): object {
  if (event.type !== 'model-replied') return { ...entry, event };
  const { rawFinish: _raw, model: _model, content, usage, attempts, ...fact } = event;
  const parts = content.map((part) => {
    if (part.type === 'tool-call') return { type: part.type, name: part.name, arguments: part.arguments };
    return part.type === 'reasoning' ? { type: part.type, text: part.text } : part;
  });
  // Some providers report 0 for cached and reasoning tokens, others omit them.
  const counted = Object.fromEntries(Object.entries(usage).filter(([, count]) => count !== 0));
  const attempted = attempts?.map(({ ms, error }) => ({ ms, error }));
  return { ...entry, event: { ...fact, content: parts, usage: counted, attempts: attempted } };
}

const variants = PROTOCOLS.flatMap((form) => [true, false].map((stream) => ({ form, stream })));

describe('the same run', () => {
  let reference: readonly object[];
  beforeAll(async () => {
    reference = (await journalOf('openai-chat', true)).map(comparable);
    expect(reference).toHaveLength(7);
  });

  test.each(variants)('has the same journal with $form, streamed: $stream', async ({ form, stream }) => {
    expect((await journalOf(form, stream)).map(comparable)).toEqual(reference);
  });
});

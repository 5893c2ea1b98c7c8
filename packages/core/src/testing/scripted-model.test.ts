import { describe, expect, test } from 'vitest';
import { runLoop } from '../driver/run.ts';
import { userText } from '../messages.ts';
import type { ModelDelta, ModelReply, ModelRequest } from '../model.ts';
import { tool } from '../tools/tool.ts';
import { scriptedModel, type ScriptStep } from './scripted-model.ts';

const REQUEST: ModelRequest = {
  messages: [userText('hello')],
  tools: [],
  toolChoice: 'auto',
  parallel: true,
  settings: {},
  key: 'r/t1.model.0',
};
const USAGE = { inputTokens: 10, outputTokens: 5, cost: 0 };

async function ask(step: ScriptStep): Promise<[ModelReply, ModelDelta[]]> {
  const deltas: ModelDelta[] = [];
  const reply = await scriptedModel([step]).reply(REQUEST, (delta) => deltas.push(delta), new AbortController().signal);
  return [reply, deltas];
}

describe('a step', () => {
  test('a text', async () => {
    expect(await ask('two words')).toEqual([
      {
        type: 'reply',
        content: [{ type: 'text', text: 'two words' }],
        finish: 'stop',
        usage: USAGE,
        model: 'scripted',
      },
      [
        { type: 'text-delta', text: 'two ' },
        { type: 'text-delta', text: 'words' },
      ],
    ]);
  });

  test('text and calls, with generated ids and raw arguments', async () => {
    const [reply, deltas] = await ask({
      text: 'hm',
      calls: [
        { name: 'a', arguments: { n: 1 } },
        { name: 'b', id: 'mine' },
        { name: 'c', arguments: '{"n":' },
      ],
    });
    expect(reply).toEqual({
      type: 'reply',
      content: [
        { type: 'text', text: 'hm' },
        { type: 'tool-call', id: 'call_0_0', name: 'a', arguments: '{"n":1}' },
        { type: 'tool-call', id: 'mine', name: 'b', arguments: '{}' },
        { type: 'tool-call', id: 'call_0_2', name: 'c', arguments: '{"n":' },
      ],
      finish: 'tool-calls',
      usage: USAGE,
      model: 'scripted',
    });
    expect(deltas).toEqual([
      { type: 'text-delta', text: 'hm' },
      { type: 'call-delta', call: 0, name: 'a', arguments: '{"n":1}' },
      { type: 'call-delta', call: 1, name: 'b', arguments: '{}' },
      { type: 'call-delta', call: 2, name: 'c', arguments: '{"n":' },
    ]);
  });

  test('with finish and usage', async () => {
    const usage = { inputTokens: 1, outputTokens: 2 };
    expect((await ask({ text: 'a', finish: 'length', usage }))[0]).toMatchObject({ finish: 'length', usage });
    expect((await ask({}))[0]).toMatchObject({ content: [], finish: 'stop' });
  });

  test('a complete reply or a failure', async () => {
    const failure: ModelReply = { type: 'failure', error: { code: 'auth', message: 'no key', retryable: false } };
    expect(await ask(failure)).toEqual([failure, []]);
    const reply: ModelReply = {
      type: 'reply',
      content: [{ type: 'reasoning', text: 'let me think', signature: 's' }],
      finish: 'stop',
      usage: USAGE,
      model: 'm',
    };
    expect(await ask(reply)).toEqual([
      reply,
      [
        { type: 'reasoning-delta', text: 'let ' },
        { type: 'reasoning-delta', text: 'me ' },
        { type: 'reasoning-delta', text: 'think' },
      ],
    ]);
  });

  test('a function of the request, which may return another function', async () => {
    const [reply] = await ask(
      async ({ key }) =>
        () =>
          `asked for ${key}`,
    );
    expect(reply).toMatchObject({ content: [{ text: 'asked for r/t1.model.0' }] });
  });
});

describe('recorded requests', () => {
  test('are deeply frozen copies', async () => {
    using model = scriptedModel([{ calls: [{ name: 'look' }] }, 'done']);
    const look = tool({ name: 'look', description: 'x', execute: () => 'seen' });
    await runLoop({ model, tools: [look], input: 'go', settings: { stop: ['x'] } });
    expect(model.requests.map(({ messages }) => messages.length)).toEqual([1, 3]);
    expect(model.requests[0]!.messages).toEqual([userText('go')]);
    expect(allFrozen(model.requests[0])).toBe(true);
    expect(allFrozen(model.requests[1])).toBe(true);
    expect(() => (model.requests[0]!.messages as unknown[]).push(1)).toThrow(TypeError);
    expect(() => Object.assign(model.requests[1]!.messages[0]!, { role: 'tool' })).toThrow(TypeError);
  });

  test('do not freeze the original request', async () => {
    const request = structuredClone(REQUEST);
    await scriptedModel(['a']).reply(request, () => {}, new AbortController().signal);
    expect(Object.isFrozen(request)).toBe(false);
    expect(Object.isFrozen(request.messages)).toBe(false);
  });
});

function allFrozen(value: unknown): boolean {
  if (typeof value !== 'object' || value === null) return true;
  return Object.isFrozen(value) && Object.values(value).every(allFrozen);
}

describe('assertDone', () => {
  test('a request without a step rejects, and assertDone throws the same error', async () => {
    const model = scriptedModel(['one']);
    await model.reply(REQUEST, () => {}, new AbortController().signal);
    const message =
      'scriptedModel: request 1 was not expected, the script has 1 steps. Its last message: user: something else';
    const other = { ...REQUEST, messages: [userText('something else')] };
    await expect(model.reply(other, () => {}, new AbortController().signal)).rejects.toThrow(message);
    expect(() => model.assertDone()).toThrow(message);
  });

  test('in a run, a request without a step is a failure of the model', async () => {
    const model = scriptedModel([]);
    const { outcome } = await runLoop({ model, input: 'go' });
    expect(outcome).toMatchObject({
      type: 'failed',
      error: { message: expect.stringContaining('request 0 was not expected') },
    });
    expect(() => model.assertDone()).toThrow('request 0 was not expected');
  });

  test('throws if a step was not used', async () => {
    const model = scriptedModel(['one', 'two']);
    await runLoop({ model, input: 'go' });
    expect(() => model.assertDone()).toThrow('scriptedModel: only 1 of 2 steps were used');
  });

  test('does not throw if all steps were used', async () => {
    const model = scriptedModel(['one']);
    await runLoop({ model, input: 'go' });
    expect(() => model.assertDone()).not.toThrow();
    expect(() => scriptedModel([]).assertDone()).not.toThrow();
  });

  test('a using declaration calls it at the end of the block', () => {
    expect(() => {
      using model = scriptedModel(['not used']);
      expect(model.requests).toEqual([]);
    }).toThrow('only 0 of 1 steps were used');
  });

  test('the error shortens a long last message', async () => {
    const messages = [
      {
        role: 'tool',
        content: [
          {
            type: 'tool-result',
            callId: 'a',
            name: 'x',
            content: [{ type: 'text', text: 'y'.repeat(5_000) }],
            isError: false,
          },
        ],
      },
    ] as const;
    const asked = scriptedModel([]).reply({ ...REQUEST, messages }, () => {}, new AbortController().signal);
    await expect(asked).rejects.toThrow(/tool: y{200}$/);
    const empty = scriptedModel([]).reply({ ...REQUEST, messages: [] }, () => {}, new AbortController().signal);
    await expect(empty).rejects.toThrow('Its last message: none');
  });
});

test.each([
  ['a text', 'Hello.', 'scriptedModel takes an array of replies'],
  ['nothing', undefined, 'scriptedModel takes an array of replies'],
  ['a misspelt part', [{ call: [] }], 'A reply of scriptedModel has no part "call". Did you mean "calls"?'],
])('rejects %s as a script', (_, script, message) => {
  expect(() => scriptedModel(script as never)).toThrow(message);
});

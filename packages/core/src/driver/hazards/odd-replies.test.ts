import { describe, expect, test } from 'vitest';
import { textOf, type AssistantPart, type ToolMessage } from '../../messages.ts';
import type { Finish, ModelReply } from '../../model.ts';
import { scriptedModel, type ScriptStep } from '../../testing/scripted-model.ts';
import { tool } from '../../tools/tool.ts';
import type { LoopOptions, LoopResult } from '../options.ts';
import { runLoop } from '../run.ts';

const ran: unknown[] = [];
const save = tool({
  name: 'save',
  description: 'x',
  input: {
    type: 'object',
    properties: { path: { type: 'string' }, text: { type: 'string' } },
    required: ['path'],
    additionalProperties: false,
  },
  execute: (input) => {
    ran.push(input);
    return 'saved';
  },
});

async function run(script: readonly ScriptStep[], options: Partial<LoopOptions> = {}): Promise<LoopResult> {
  ran.length = 0;
  using model = scriptedModel(script);
  return await runLoop({ model, tools: [save], input: 'go', ...options });
}

function reply(content: readonly AssistantPart[], finish: Finish): ModelReply {
  return { type: 'reply', content, finish, usage: { inputTokens: 1, outputTokens: 1 }, model: 'm' };
}

function call(text: string, id = 'a'): AssistantPart {
  return { type: 'tool-call', id, name: 'save', arguments: text };
}

function textsOf({ messages }: LoopResult, at: number): string[] {
  return (messages[at] as ToolMessage).content.map(({ content }) => textOf(content));
}

const textPart = (text: string): AssistantPart => ({ type: 'text', text });

describe('finish tool-calls without calls', () => {
  test('accepts a text as the answer', async () => {
    expect(await run([reply([textPart('all done')], 'tool-calls')])).toMatchObject({
      outcome: { type: 'completed' },
      text: 'all done',
    });
  });

  test('treats no content as an empty reply: the second one in a row fails the run', async () => {
    const result = await run([reply([], 'tool-calls'), reply([], 'tool-calls')]);
    expect(result.outcome).toMatchObject({ type: 'failed', error: { code: 'empty-reply' } });
  });
});

describe('an empty reply', () => {
  test.each<[string, AssistantPart[]]>([
    ['no content', []],
    ['white space', [textPart(' \n')]],
    ['only reasoning', [{ type: 'reasoning', text: 'hm' }]],
    ['empty texts', [textPart(''), textPart('')]],
  ])('with %s is answered with a reminder, and the run continues', async (_, content) => {
    const result = await run([reply(content, 'stop'), 'done']);
    expect(result).toMatchObject({ outcome: { type: 'completed' }, text: 'done', turns: 2 });
    expect(result.messages.map(({ role }) => role)).toEqual(['user', 'user', 'assistant']);
  });

  test('fails the run twice in a row, but not with another reply in between', async () => {
    expect((await run([reply([], 'stop'), reply([], 'stop')])).outcome).toMatchObject({ type: 'failed' });
    const calls = { calls: [{ name: 'save', arguments: { path: 'a' } }] };
    expect((await run([reply([], 'stop'), calls, reply([], 'stop'), 'done'])).outcome).toEqual({ type: 'completed' });
  });
});

describe('text and calls together', () => {
  test('keeps the order in the history, and runs the calls', async () => {
    const content: AssistantPart[] = [
      { type: 'reasoning', text: 'hm', signature: 's' },
      textPart('first '),
      call('{"path":"1"}', 'a'),
      textPart('then '),
      call('{"path":"2"}', 'b'),
      textPart('that is all'),
    ];
    const result = await run([reply(content, 'tool-calls'), 'done']);
    expect(result.messages[1]).toEqual({ role: 'assistant', content });
    expect(ran).toEqual([{ path: '1' }, { path: '2' }]);
    expect(result.text).toBe('done');
  });

  test('runs the calls for any other finish reason', async () => {
    await run([reply([textPart('bye'), call('{"path":"1"}')], 'stop'), 'done']);
    expect(ran).toEqual([{ path: '1' }]);
  });

  test('does not run the calls after the content filter', async () => {
    const result = await run([reply([textPart('half'), call('{"path":"1"}')], 'content-filter')]);
    expect(result).toMatchObject({ outcome: { type: 'failed', error: { code: 'content-filter' } }, text: 'half' });
    expect(ran).toEqual([]);
    expect(result.messages.at(-1)).toEqual({ role: 'assistant', content: [textPart('half')] });
  });
});

describe('arguments', () => {
  test.each([
    ['{"path":"a"', /not valid JSON/],
    ['{"path":"a', /not valid JSON/],
    ['{"path":', /not valid JSON/],
    ['{', /not valid JSON/],
    ['path=a', /not valid JSON/],
    ['[{"path":"a"}]', /are an array, and must be a JSON object/],
    ['"a"', /are a string/],
    ['null', /are null/],
    ['{"path":7}', /path: .* Required: path\. Optional: text\./],
    ['{}', /path/],
    ['', /path/],
    ['{"path":"a","more":1}', /more: is not expected here/],
  ])('does not run a call with the arguments %j, and reports why', async (text, problem) => {
    const result = await run([reply([call(text)], 'tool-calls'), 'sorry']);
    expect(ran).toEqual([]);
    expect(result).toMatchObject({ outcome: { type: 'completed' }, text: 'sorry', calls: 0 });
    expect(textsOf(result, 2)[0]).toMatch(/^The tool "save" was not called\. /);
    expect(textsOf(result, 2)[0]).toMatch(problem);
    // The history has the arguments unchanged.
    expect(result.messages[1]!.content).toEqual([call(text)]);
  });

  test('runs the other calls of the same reply', async () => {
    const result = await run([reply([call('{"path":', 'a'), call('{"path":"b"}', 'b')], 'tool-calls'), 'done']);
    expect(ran).toEqual([{ path: 'b' }]);
    expect(textsOf(result, 2)).toEqual([expect.stringContaining('not valid JSON'), 'saved']);
  });

  test('runs a call with repaired arguments, and keeps the original ones in the history', async () => {
    const text = '```json\n{"path":"a",}\n```';
    const result = await run([reply([call(text)], 'tool-calls'), 'done']);
    expect(ran).toEqual([{ path: 'a' }]);
    expect(result.messages[1]!.content).toEqual([call(text)]);
  });
});

describe('finish length', () => {
  test('does not run a call that was cut off at any character', async () => {
    const whole = '{"path":"/","text":"a,"}';
    for (let length = 0; length < whole.length; length++) {
      const result = await run([reply([textPart('let me'), call(whole.slice(0, length))], 'length'), 'shorter']);
      expect(ran, whole.slice(0, length)).toEqual([]);
      expect(result).toMatchObject({ outcome: { type: 'completed' }, text: 'shorter' });
      expect(textsOf(result, 2)[0]).toMatch(/cut off in the middle of the call/);
    }
  });

  test('runs the complete calls before one that was cut off', async () => {
    const result = await run([reply([call('{"path":"a"}', 'a'), call('{"path":"b', 'b')], 'length'), 'done']);
    expect(ran).toEqual([{ path: 'a' }]);
    expect(textsOf(result, 2)).toEqual(['saved', expect.stringContaining('cut off')]);
    expect(result.outcome).toEqual({ type: 'completed' });
  });

  test('accepts a text that was cut off as the answer, and marks it as truncated', async () => {
    expect(await run([reply([textPart('once upon a')], 'length')])).toMatchObject({
      outcome: { type: 'completed', truncated: true },
      text: 'once upon a',
    });
  });

  test('treats no content as an empty reply', async () => {
    expect((await run([reply([], 'length'), reply([], 'length')])).outcome).toMatchObject({
      type: 'failed',
      error: { code: 'empty-reply' },
    });
  });
});

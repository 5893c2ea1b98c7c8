import { describe, expect, test } from 'vitest';
import { textOf, userText, type Message } from '../messages.ts';
import type { Policy } from '../policy/port.ts';
import { manualClock, scriptedModel, type ScriptedReply } from '../testing/index.ts';
import { tool } from '../tools/tool.ts';
import type { Item } from '../journal/items.ts';
import type { LoopResult } from './options.ts';
import { runLoop, streamLoop } from './run.ts';

// What the documents in shared/seeds ask of the loop, by their own numbers and names.

const ran: string[] = [];
const shell = tool({
  name: 'shell',
  description: 'Runs a command',
  input: {
    type: 'object',
    properties: { command: { type: 'string' }, cwd: { type: 'string' } },
    required: ['command'],
  },
  execute: ({ command }) => {
    ran.push(String(command));
    if (command === 'false') throw new Error('exit code 1');
    return `$ ${String(command)}`;
  },
});
const tools = [shell];

const command = (text: string): ScriptedReply => ({ calls: [{ name: 'shell', arguments: { command: text } }] });
const wordsOf = ({ messages }: LoopResult): readonly string[] =>
  messages.flatMap((message) => (message.role === 'tool' ? message.content.map(({ content }) => textOf(content)) : []));
const rolesOf = (messages: readonly Message[]): readonly string[] => messages.map(({ role }) => role);
const askedToConfirm = ({ messages }: LoopResult): number =>
  messages.filter(
    (message) => message.role === 'user' && textOf(message.content).includes('are all parts of the task done'),
  ).length;

const lastResult = (messages: readonly Message[]): string => {
  const last = messages.at(-1)!;
  return last.role === 'tool' ? textOf(last.content.at(-1)!.content) : 'no result';
};

function fresh(): void {
  ran.length = 0;
}

describe('seed 000, 6.1: termination', () => {
  test('seed 000 case 1: text only on the first response: one iteration, the result is returned', async () => {
    using model = scriptedModel(['The answer.']);
    const result = await runLoop({ model, tools, input: 'Task.', finish: 'plain' });
    expect(result).toMatchObject({ outcome: { type: 'completed' }, text: 'The answer.', turns: 1, calls: 0 });
  });

  test('seed 000 case 2: tool calls, then text only: two iterations, the result after the second', async () => {
    using model = scriptedModel([command('ls'), 'The answer.']);
    const result = await runLoop({ model, tools, input: 'Task.', finish: 'plain' });
    expect(result).toMatchObject({ outcome: { type: 'completed' }, text: 'The answer.', turns: 2, calls: 1 });
  });

  test('seed 000 case 3: tool calls until max_iterations: ends with that reason', async () => {
    using model = scriptedModel([command('a'), command('b'), command('c')]);
    const result = await runLoop({ model, tools, input: 'Task.', maxTurns: 3 });
    expect(result).toMatchObject({ outcome: { type: 'exhausted', limit: 'turns' }, turns: 3, calls: 3 });
  });

  test('seed 000 case 4: execution fails error_threshold times in a row: ends with that reason', async () => {
    fresh();
    using model = scriptedModel([command('false'), command('false'), command('false')]);
    const result = await runLoop({ model, tools, input: 'Task.', errorLimit: 3 });
    expect(result).toMatchObject({ outcome: { type: 'exhausted', limit: 'errors' }, turns: 3 });
    expect(ran).toEqual(['false', 'false', 'false']);
  });
});

describe('seed 000, 6.1: tool execution', () => {
  test('seed 000 case 6: valid parameters: executed, and the result appended as a tool message', async () => {
    fresh();
    using model = scriptedModel([command('ls'), 'Done.']);
    const { messages } = await runLoop({ model, tools, input: 'Task.' });
    expect(ran).toEqual(['ls']);
    expect(messages[2]).toEqual({
      role: 'tool',
      content: [
        {
          type: 'tool-result',
          callId: 'call_0_0',
          name: 'shell',
          content: [{ type: 'text', text: '$ ls' }],
          isError: false,
        },
      ],
    });
  });

  test('seed 000 case 7: invalid parameters: the error is appended as a tool message, the loop continues', async () => {
    fresh();
    using model = scriptedModel([{ calls: [{ name: 'shell', arguments: { command: 7 } }] }, 'Done.']);
    const result = await runLoop({ model, tools, input: 'Task.' });
    expect(ran).toEqual([]);
    expect(result.messages[2]).toMatchObject({ role: 'tool', content: [{ isError: true }] });
    expect(wordsOf(result)[0]).toMatch(/Its arguments are not valid: command/);
    expect(result.outcome).toEqual({ type: 'completed' });
  });

  test('seed 000 case 8: governance says no: skipped, a message explains the denial, the loop continues', async () => {
    fresh();
    const policy: Policy = { judge: () => [{ type: 'deny', reason: 'shell needs the scope tools:execute' }] };
    using model = scriptedModel([command('rm -rf /'), 'Then not.']);
    const result = await runLoop({ model, tools, input: 'Task.', policy });
    expect(ran).toEqual([]);
    expect(wordsOf(result)).toEqual(['The call of "shell" was denied: shell needs the scope tools:execute']);
    expect(result).toMatchObject({ outcome: { type: 'completed' }, text: 'Then not.' });
  });

  test('seed 000 case 9: several tool calls in one response: all executed in sequence, all results appended', async () => {
    const log: string[] = [];
    const clock = manualClock();
    const step = tool({
      name: 'step',
      description: 'Takes a moment',
      input: { type: 'object', properties: { n: { type: 'number' } } },
      execute: ({ n }) => {
        log.push(`${String(n)} begins`);
        return new Promise((resolve) =>
          clock.timer(10, () => resolve(`step ${log.push(`${String(n)} ends`) && String(n)}`)),
        );
      },
    });
    using model = scriptedModel([{ calls: [1, 2, 3].map((n) => ({ name: 'step', arguments: { n } })) }, 'Done.']);
    const run = runLoop({ model, tools: [step], input: 'Task.', parallel: false, clock });
    await clock.advance(30);
    expect(wordsOf(await run)).toEqual(['step 1', 'step 2', 'step 3']);
    expect(log).toEqual(['1 begins', '1 ends', '2 begins', '2 ends', '3 begins', '3 ends']);
  });

  test('seed 000 case 10: a tool that is not in the registry: a fail result, the loop continues', async () => {
    using model = scriptedModel([{ calls: [{ name: 'browser' }] }, 'Without, then.']);
    const result = await runLoop({ model, tools, input: 'Task.' });
    expect(result.messages[2]).toMatchObject({ role: 'tool', content: [{ name: 'browser', isError: true }] });
    expect(result).toMatchObject({ outcome: { type: 'completed' }, text: 'Without, then.' });
  });
});

describe('seed 000, 6.1: double confirmation', () => {
  test('seed 000 case 11: the first text-only response is met with the confirmation prompt', async () => {
    using model = scriptedModel(['A plan.', 'The answer.']);
    const result = await runLoop({ model, tools, input: 'Task.', finish: 'confirm' });
    expect(rolesOf(model.requests[1]!.messages)).toEqual(['user', 'assistant', 'user']);
    expect(askedToConfirm(result)).toBe(1);
  });

  test('seed 000 case 12: tool calls in answer to it: the loop continues normally', async () => {
    fresh();
    using model = scriptedModel(['A plan.', command('ls'), command('cat a'), 'The answer.']);
    const result = await runLoop({ model, tools, input: 'Task.', finish: 'confirm' });
    expect(ran).toEqual(['ls', 'cat a']);
    expect(result).toMatchObject({ outcome: { type: 'completed' }, text: 'The answer.', turns: 4 });
    expect(askedToConfirm(result)).toBe(1);
  });

  test('seed 000 case 13: text in answer to it: the loop ends with that result', async () => {
    using model = scriptedModel(['A draft.', 'The confirmed answer.']);
    const result = await runLoop({ model, tools, input: 'Task.', finish: 'confirm' });
    expect(result).toMatchObject({ outcome: { type: 'completed' }, text: 'The confirmed answer.', turns: 2 });
  });

  test('seed 000 case 14: without double confirmation the first text-only response is accepted at once', async () => {
    using model = scriptedModel(['The answer.']);
    const result = await runLoop({ model, tools, input: 'Task.', finish: 'plain' });
    expect(result).toMatchObject({ outcome: { type: 'completed' }, turns: 1 });
    expect(askedToConfirm(result)).toBe(0);
  });
});

describe('seed 000, 6.1: message history', () => {
  test('seed 000 case 15: messages accumulate: system, user, assistant with calls, results, assistant, …', async () => {
    using model = scriptedModel([command('a'), { calls: [...command('b').calls!, ...command('c').calls!] }, 'Done.']);
    const { messages } = await runLoop({ model, tools, instructions: 'Be brief.', input: 'Task.' });
    expect(rolesOf(messages)).toEqual(['user', 'assistant', 'tool', 'assistant', 'tool', 'assistant']);
    for (const [turn, request] of model.requests.entries()) {
      expect(request.instructions).toBe('Be brief.');
      expect(request.messages).toEqual(messages.slice(0, 1 + 2 * turn));
    }
  });

  test('seed 000 case 16: results have the role tool, the id of their call and the name of the tool', async () => {
    using model = scriptedModel([
      {
        calls: [
          { name: 'shell', id: 'call_abc', arguments: { command: 'a' } },
          { name: 'other', id: 'call_def' },
        ],
      },
      'Done.',
    ]);
    const { messages } = await runLoop({ model, tools, input: 'Task.' });
    expect(messages[2]).toMatchObject({
      role: 'tool',
      content: [
        { type: 'tool-result', callId: 'call_abc', name: 'shell' },
        { type: 'tool-result', callId: 'call_def', name: 'other' },
      ],
    });
  });
});

describe('seed 000, 6.1: edge cases', () => {
  test('seed 000 case 20: an empty list of tool calls is a text-only response', async () => {
    using model = scriptedModel([{ text: 'The answer.', calls: [], finish: 'tool-calls' }]);
    const result = await runLoop({ model, tools, input: 'Task.' });
    expect(result).toMatchObject({ outcome: { type: 'completed' }, text: 'The answer.', turns: 1 });
  });

  test('seed 000 case 21: malformed JSON arguments: an error result, nothing runs, the loop continues', async () => {
    fresh();
    using model = scriptedModel([{ calls: [{ name: 'shell', arguments: '{command: ls' }] }, 'Done.']);
    const result = await runLoop({ model, tools, input: 'Task.' });
    expect(ran).toEqual([]);
    expect(wordsOf(result)[0]).toMatch(/Its arguments are not valid JSON/);
    expect(result.outcome).toEqual({ type: 'completed' });
  });

  test('seed 000 case 22: content and tool calls together: the calls go first, the content is preserved', async () => {
    fresh();
    using model = scriptedModel([{ ...command('ls'), text: 'I look first.' }, 'Done.']);
    const result = await runLoop({ model, tools, input: 'Task.' });
    expect(ran).toEqual(['ls']);
    expect(result.turns).toBe(2);
    expect(result.messages[1]).toMatchObject({
      role: 'assistant',
      content: [
        { type: 'text', text: 'I look first.' },
        { type: 'tool-call', name: 'shell' },
      ],
    });
  });
});

describe('seed 003: the state machine', () => {
  test('seed 003 start → call LLM: with the tools and the history', async () => {
    using model = scriptedModel(['Hello.']);
    const history: Message[] = [userText('Hi.'), { role: 'assistant', content: [{ type: 'text', text: 'Yes?' }] }];
    await runLoop({ model, tools, input: [...history, userText('Check CPU temp')] });
    const { name, description, parameters } = shell;
    expect(model.requests[0]).toMatchObject({
      tools: [{ name, description, parameters }],
      messages: [...history, userText('Check CPU temp')],
    });
  });

  test('seed 003 tool call? no → break', async () => {
    using model = scriptedModel(['No tool needed.']);
    expect(await runLoop({ model, tools, input: 'Hi.' })).toMatchObject({ outcome: { type: 'completed' }, turns: 1 });
  });

  test.each([
    ['an unknown tool', { calls: [{ name: 'git_status' }] }],
    ['bad parameters', { calls: [{ name: 'shell' }] }],
    ['unreadable parameters', { calls: [{ name: 'shell', arguments: '{"command"' }] }],
  ])('seed 003 validate fails (%s) → error to LLM, continue', async (_, reply) => {
    fresh();
    using model = scriptedModel([reply, 'I see.']);
    const result = await runLoop({ model, tools, input: 'Hi.' });
    expect(ran).toEqual([]);
    expect(model.requests[1]!.messages.at(-1)).toMatchObject({ role: 'tool', content: [{ isError: true }] });
    expect(result.outcome).toEqual({ type: 'completed' });
  });

  test('seed 003 wait for result, timeout → error to LLM, continue', async () => {
    const clock = manualClock();
    const bash = tool({ name: 'bash', description: 'bash', execute: () => new Promise(() => {}) });
    using model = scriptedModel([
      { calls: [{ name: 'bash', arguments: { command: 'sleep 60' } }] },
      'It took too long.',
    ]);
    const run = runLoop({ model, tools: [bash], input: 'Hi.', toolTimeoutMs: 30_000, clock });
    await clock.advance(30_000);
    const result = await run;
    expect(model.requests[1]!.messages.at(-1)).toMatchObject({ role: 'tool', content: [{ isError: true }] });
    expect(result).toMatchObject({ outcome: { type: 'completed' }, text: 'It took too long.' });
  });

  test('seed 003 result → added to the conversation as a tool message → call LLM again', async () => {
    using model = scriptedModel([
      { text: "I'll check the CPU temperature.", ...command('vcgencmd measure_temp') },
      'The CPU is at 45.6°C.',
    ]);
    const { messages } = await runLoop({ model, tools, input: 'Check CPU temp' });
    expect(rolesOf(model.requests[1]!.messages)).toEqual(['user', 'assistant', 'tool']);
    expect(rolesOf(messages)).toEqual(['user', 'assistant', 'tool', 'assistant']);
  });

  test.each([
    [9, { type: 'completed' }],
    [10, { type: 'exhausted', limit: 'turns' }],
  ])('seed 003 iter < max? after %i turns with calls', async (turns, outcome) => {
    const replies = Array.from({ length: turns }, (_, n) => command(`echo ${n}`));
    using model = scriptedModel(turns < 10 ? [...replies, 'Done.'] : replies);
    expect((await runLoop({ model, tools, input: 'Go.', maxTurns: 10 })).outcome).toEqual(outcome);
  });

  test('seed 003 termination: no tool call, max iterations, error limit, cancellation', async () => {
    const outcomeOf = async (script: readonly (string | ScriptedReply)[], signal?: AbortSignal): Promise<unknown> => {
      const model = scriptedModel(script);
      const options = { tools, input: 'Go.', maxTurns: 4, errorLimit: 3, ...(signal && { signal }) };
      return (await runLoop({ model, ...options })).outcome;
    };
    expect(await outcomeOf(['Done.'])).toEqual({ type: 'completed' });
    expect(await outcomeOf(['a', 'b', 'c', 'd'].map(command))).toEqual({ type: 'exhausted', limit: 'turns' });
    expect(await outcomeOf(['false', 'false', 'false'].map(command))).toEqual({ type: 'exhausted', limit: 'errors' });
    expect(await outcomeOf(['Done.'], AbortSignal.abort())).toEqual({ type: 'cancelled', phase: 'model' });
  });

  test('seed 003 example 3: a chain of tools, each with the result of the one before', async () => {
    fresh();
    using model = scriptedModel([
      command('git log -3'),
      ({ messages }) => command(`git show (from: ${lastResult(messages)})`),
      'Here are the last 3 commits.',
    ]);
    expect(await runLoop({ model, tools, input: 'Last 3 commits?' })).toMatchObject({ turns: 3, calls: 2 });
    expect(ran).toEqual(['git log -3', 'git show (from: $ git log -3)']);
  });
});

describe('seed 003: what the model is told to recover', () => {
  const read = tool({
    name: 'read',
    description: 'Reads a file',
    timeoutMs: 30_000,
    input: {
      type: 'object',
      properties: { path: { type: 'string' }, offset: { type: 'number' }, limit: { type: 'number' } },
      required: ['path'],
    },
    execute: () => new Promise(() => {}),
  });

  async function toldAfter(
    call: { readonly name: string; readonly arguments?: unknown },
    policy?: Policy,
  ): Promise<string> {
    const clock = manualClock();
    using model = scriptedModel([{ calls: [call] }, 'I see.']);
    const run = runLoop({ model, tools: [read, shell], input: 'Go.', clock, ...(policy && { policy }) });
    await clock.advance(30_000);
    return wordsOf(await run)[0]!;
  }

  test('seed 003 tool not found: names the tool and what is available', async () => {
    expect(await toldAfter({ name: 'git_status' })).toBe(
      'There is no tool "git_status". Available tools: read, shell. Use one of them, or answer without a tool.',
    );
  });

  test('seed 003 timeout: names the tool and the time', async () => {
    expect(await toldAfter({ name: 'read', arguments: { path: 'a' } })).toBe(
      'The tool "read" timed out after 30000 ms. Ask for less, or try something else.',
    );
  });

  test('seed 003 permission denied: names the tool and what it requires', async () => {
    const policy: Policy = { judge: () => [{ type: 'deny', reason: 'it requires the permission "shell".' }] };
    expect(await toldAfter({ name: 'shell', arguments: { command: 'ls' } }, policy)).toBe(
      'The call of "shell" was denied: it requires the permission "shell".',
    );
  });

  test('seed 003 invalid parameters: names the missing one, what is required and what is optional', async () => {
    expect(await toldAfter({ name: 'read', arguments: { offset: 3 } })).toMatch(
      /^The tool "read" was not called\. .*"path".* Required: path\. Optional: offset, limit\.$/,
    );
  });
});

describe('seed 004: the list of test cases', () => {
  const files: Readonly<Record<string, string>> = { '/sandbox/test.txt': 'nonce-8f3a', '/sandbox/b.txt': 'b' };
  const readFile = tool({
    name: 'read_file',
    description: 'Reads a file',
    input: { type: 'object', properties: { path: { type: 'string' } }, required: ['path'] },
    execute: ({ path }) => {
      const text = files[String(path)];
      if (text === undefined) throw new Error(`no such file: ${String(path)}`);
      return text;
    },
  });
  const reading = (path: string): ScriptedReply => ({ calls: [{ name: 'read_file', arguments: { path } }] });
  const events = (items: readonly Item[]): readonly unknown[] =>
    items.flatMap((item): unknown[] => {
      if (item.type === 'call-started')
        return [{ start: item.call.name, id: item.call.id, arguments: item.call.arguments }];
      if (item.type === 'call-answered') return [{ result: textOf(item.result.content), id: item.call.id }];
      return item.type === 'text-delta' ? [{ text: item.text }] : [];
    });

  async function streamed(script: Parameters<typeof scriptedModel>[0]): Promise<{ items: Item[]; result: LoopResult }> {
    using model = scriptedModel(script);
    const live = streamLoop({ model, tools: [readFile], input: 'Hi.', maxTurns: 10 });
    const items: Item[] = [];
    for await (const item of live) items.push(item);
    return { items, result: await live.result };
  }

  test('seed 004: a prompt that triggers a tool: it is executed, and the model incorporates the result', async () => {
    using model = scriptedModel([reading('/sandbox/test.txt'), ({ messages }) => `It says ${lastResult(messages)}.`]);
    const result = await runLoop({ model, tools: [readFile], input: 'Read the file at /sandbox/test.txt' });
    expect(result.text).toBe('It says nonce-8f3a.');
  });

  test('seed 004: a tool call: executed, and the provider is called again with the result', async () => {
    using model = scriptedModel([reading('/sandbox/test.txt'), 'Done.']);
    await runLoop({ model, tools: [readFile], input: 'Hi.' });
    expect(model.requests[0]!.tools).toMatchObject([{ name: 'read_file' }]);
    expect(model.requests[1]!.messages.slice(1)).toMatchObject([
      { role: 'assistant', content: [{ type: 'tool-call', id: 'call_0_0', name: 'read_file' }] },
      { role: 'tool', content: [{ callId: 'call_0_0', content: [{ type: 'text', text: 'nonce-8f3a' }] }] },
    ]);
  });

  test('seed 004: a chain of 3 tool calls: all executed, and the final text is streamed', async () => {
    const three = ['/sandbox/test.txt', '/b', '/c'].map(reading);
    const { items, result } = await streamed([...three, 'The final words.']);
    expect(result).toMatchObject({ outcome: { type: 'completed' }, calls: 3, turns: 4 });
    expect(events(items).slice(-3)).toEqual([{ text: 'The ' }, { text: 'final ' }, { text: 'words.' }]);
  });

  test('seed 004: a chain of 11 and more: stops at the limit, and that is told', async () => {
    const model = scriptedModel(
      Array.from({ length: 12 }, (_, n) => reading(n % 2 ? '/sandbox/test.txt' : '/sandbox/b.txt')),
    );
    const result = await runLoop({ model, tools: [readFile], input: 'Hi.', maxTurns: 10 });
    expect(result).toMatchObject({ outcome: { type: 'exhausted', limit: 'turns' }, turns: 10, calls: 10 });
    expect(model.requests).toHaveLength(10);
  });

  test('seed 004: a tool that fails: the error goes back to the model as a result', async () => {
    using model = scriptedModel([reading('/nowhere'), 'There is no such file.']);
    const result = await runLoop({ model, tools: [readFile], input: 'Hi.' });
    expect(model.requests[1]!.messages.at(-1)).toMatchObject({
      role: 'tool',
      content: [
        { isError: true, content: [{ type: 'error', text: 'The tool "read_file" failed: no such file: /nowhere' }] },
      ],
    });
    expect(result.outcome).toEqual({ type: 'completed' });
  });

  test('seed 004: a normal message: the same with tools and without', async () => {
    using plain = scriptedModel(['Hello there.']);
    const without = await runLoop({ model: plain, input: 'Hi.', runId: 'run', clock: manualClock() });
    using offered = scriptedModel(['Hello there.']);
    const withTools = await runLoop({
      model: offered,
      tools: [readFile],
      input: 'Hi.',
      runId: 'run',
      clock: manualClock(),
    });
    expect(plain.requests[0]!.tools).toEqual([]);
    expect(withTools).toEqual(without);
    expect(without).toMatchObject({ outcome: { type: 'completed' }, text: 'Hello there.', turns: 1, calls: 0 });
  });

  test('seed 004: the stream has a start and a result for each tool call', async () => {
    const two = { calls: [...reading('/sandbox/test.txt').calls!, ...reading('/nowhere').calls!] };
    const { items } = await streamed([two, 'Done.']);
    const [a, b] = ['call_0_0', 'call_0_1'];
    expect(events(items)).toEqual([
      { start: 'read_file', id: a, arguments: '{"path":"/sandbox/test.txt"}' },
      { start: 'read_file', id: b, arguments: '{"path":"/nowhere"}' },
      { result: 'nonce-8f3a', id: a },
      { result: 'The tool "read_file" failed: no such file: /nowhere', id: b },
      { text: 'Done.' },
    ]);
  });
});

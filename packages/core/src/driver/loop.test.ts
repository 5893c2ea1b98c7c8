import { describe, expect, test } from 'vitest';
import { resultTexts } from '../../test/results.ts';
import { textOf, userText, type Message } from '../messages.ts';
import type { Policy } from '../policy/port.ts';
import { manualClock, scriptedModel, type ScriptedReply } from '../testing/index.ts';
import { tool, type Tool } from '../tools/tool.ts';
import type { Item } from '../journal/items.ts';
import type { LoopResult } from './options.ts';
import { runLoop, startLoop, streamLoop } from './run.ts';

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

const shellCall = (text: string): ScriptedReply => ({ calls: [{ name: 'shell', arguments: { command: text } }] });
const rolesOf = (messages: readonly Message[]): readonly string[] => messages.map(({ role }) => role);
const confirmRequests = ({ messages }: LoopResult): number =>
  messages.filter(
    (message) => message.role === 'user' && textOf(message.content).includes('are all parts of the task done'),
  ).length;

const lastResult = (messages: readonly Message[]): string => {
  const last = messages.at(-1)!;
  return last.role === 'tool' ? textOf(last.content.at(-1)!.content) : 'no result';
};

function resetRan(): void {
  ran.length = 0;
}

// Seed 000, section 6.1, cases 1 to 4.
describe('termination', () => {
  test('ends with the first reply if it is a text', async () => {
    using model = scriptedModel(['The answer.']);
    const result = await runLoop({ model, tools, input: 'Task.', finish: 'plain' });
    expect(result).toMatchObject({ outcome: { type: 'completed' }, text: 'The answer.', turns: 1, calls: 0 });
  });

  test('runs the calls of a reply, and ends with the text that follows', async () => {
    using model = scriptedModel([shellCall('ls'), 'The answer.']);
    const result = await runLoop({ model, tools, input: 'Task.', finish: 'plain' });
    expect(result).toMatchObject({ outcome: { type: 'completed' }, text: 'The answer.', turns: 2, calls: 1 });
  });

  test('ends as exhausted when maxTurns is reached', async () => {
    using model = scriptedModel([shellCall('a'), shellCall('b'), shellCall('c')]);
    const result = await runLoop({ model, tools, input: 'Task.', maxTurns: 3 });
    expect(result).toMatchObject({ outcome: { type: 'exhausted', limit: 'turns' }, turns: 3, calls: 3 });
  });

  test('ends as exhausted when errorLimit is reached', async () => {
    resetRan();
    using model = scriptedModel([shellCall('false'), shellCall('false'), shellCall('false')]);
    const result = await runLoop({ model, tools, input: 'Task.', errorLimit: 3 });
    expect(result).toMatchObject({ outcome: { type: 'exhausted', limit: 'errors' }, turns: 3 });
    expect(ran).toEqual(['false', 'false', 'false']);
  });
});

// Seed 000, section 6.1, cases 6 to 10.
describe('tool execution', () => {
  test('runs a call with valid arguments, and appends its result as a tool message', async () => {
    resetRan();
    using model = scriptedModel([shellCall('ls'), 'Done.']);
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

  test('does not run a call with invalid arguments, appends the error, and continues', async () => {
    resetRan();
    using model = scriptedModel([{ calls: [{ name: 'shell', arguments: { command: 7 } }] }, 'Done.']);
    const result = await runLoop({ model, tools, input: 'Task.' });
    expect(ran).toEqual([]);
    expect(result.messages[2]).toMatchObject({ role: 'tool', content: [{ isError: true }] });
    expect(resultTexts(result)[0]).toMatch(/Its arguments are not valid: command/);
    expect(result.outcome).toEqual({ type: 'completed' });
  });

  test('does not run a denied call, appends the reason, and continues', async () => {
    resetRan();
    const policy: Policy = { judge: () => [{ type: 'deny', reason: 'shell needs the scope tools:execute' }] };
    using model = scriptedModel([shellCall('rm -rf /'), 'Then not.']);
    const result = await runLoop({ model, tools, input: 'Task.', policy });
    expect(ran).toEqual([]);
    expect(resultTexts(result)).toEqual(['The call of "shell" was denied: shell needs the scope tools:execute']);
    expect(result).toMatchObject({ outcome: { type: 'completed' }, text: 'Then not.' });
  });

  test('runs the calls of one reply one by one with parallel: false, and appends all results', async () => {
    const log: string[] = [];
    const clock = manualClock();
    const step = tool({
      name: 'step',
      description: 'Takes a moment',
      input: { type: 'object', properties: { n: { type: 'number' } } },
      execute: ({ n }) => {
        log.push(`${String(n)} starts`);
        return new Promise((resolve) =>
          clock.timer(10, () => resolve(`step ${log.push(`${String(n)} ends`) && String(n)}`)),
        );
      },
    });
    using model = scriptedModel([{ calls: [1, 2, 3].map((n) => ({ name: 'step', arguments: { n } })) }, 'Done.']);
    const run = runLoop({ model, tools: [step], input: 'Task.', parallel: false, clock });
    await clock.advance(30);
    expect(resultTexts(await run)).toEqual(['step 1', 'step 2', 'step 3']);
    expect(log).toEqual(['1 starts', '1 ends', '2 starts', '2 ends', '3 starts', '3 ends']);
  });

  test('answers a call of an unknown tool with an error, and continues', async () => {
    using model = scriptedModel([{ calls: [{ name: 'browser' }] }, 'Without, then.']);
    const result = await runLoop({ model, tools, input: 'Task.' });
    expect(result.messages[2]).toMatchObject({ role: 'tool', content: [{ name: 'browser', isError: true }] });
    expect(result).toMatchObject({ outcome: { type: 'completed' }, text: 'Without, then.' });
  });
});

// Seed 000, section 6.1, cases 11 to 14.
describe('finish confirm', () => {
  test('answers the first text with the request to confirm it', async () => {
    using model = scriptedModel(['A plan.', 'The answer.']);
    const result = await runLoop({ model, tools, input: 'Task.', finish: 'confirm' });
    expect(rolesOf(model.requests[1]!.messages)).toEqual(['user', 'assistant', 'user']);
    expect(confirmRequests(result)).toBe(1);
  });

  test('runs calls that follow the request, and asks only once', async () => {
    resetRan();
    using model = scriptedModel(['A plan.', shellCall('ls'), shellCall('cat a'), 'The answer.']);
    const result = await runLoop({ model, tools, input: 'Task.', finish: 'confirm' });
    expect(ran).toEqual(['ls', 'cat a']);
    expect(result).toMatchObject({ outcome: { type: 'completed' }, text: 'The answer.', turns: 4 });
    expect(confirmRequests(result)).toBe(1);
  });

  test('ends with the text that follows the request', async () => {
    using model = scriptedModel(['A draft.', 'The confirmed answer.']);
    const result = await runLoop({ model, tools, input: 'Task.', finish: 'confirm' });
    expect(result).toMatchObject({ outcome: { type: 'completed' }, text: 'The confirmed answer.', turns: 2 });
  });

  test('accepts the first text with finish plain', async () => {
    using model = scriptedModel(['The answer.']);
    const result = await runLoop({ model, tools, input: 'Task.', finish: 'plain' });
    expect(result).toMatchObject({ outcome: { type: 'completed' }, turns: 1 });
    expect(confirmRequests(result)).toBe(0);
  });
});

// Seed 000, section 6.1, cases 15 and 16.
describe('message history', () => {
  test('sends the instructions and all messages so far with each model call', async () => {
    using model = scriptedModel([
      shellCall('a'),
      { calls: [...shellCall('b').calls!, ...shellCall('c').calls!] },
      'Done.',
    ]);
    const { messages } = await runLoop({ model, tools, instructions: 'Be brief.', input: 'Task.' });
    expect(rolesOf(messages)).toEqual(['user', 'assistant', 'tool', 'assistant', 'tool', 'assistant']);
    for (const [turn, request] of model.requests.entries()) {
      expect(request.instructions).toBe('Be brief.');
      expect(request.messages).toEqual(messages.slice(0, 1 + 2 * turn));
    }
  });

  test('gives each result the role tool, the id of its call and the name of its tool', async () => {
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

// Seed 000, section 6.1, cases 20 to 22.
describe('unusual replies', () => {
  test('accepts a text with an empty array of calls as the answer', async () => {
    using model = scriptedModel([{ text: 'The answer.', calls: [], finish: 'tool-calls' }]);
    const result = await runLoop({ model, tools, input: 'Task.' });
    expect(result).toMatchObject({ outcome: { type: 'completed' }, text: 'The answer.', turns: 1 });
  });

  test('does not run a call whose arguments are not JSON, appends the error, and continues', async () => {
    resetRan();
    using model = scriptedModel([{ calls: [{ name: 'shell', arguments: '{command: ls' }] }, 'Done.']);
    const result = await runLoop({ model, tools, input: 'Task.' });
    expect(ran).toEqual([]);
    expect(resultTexts(result)[0]).toMatch(/Its arguments are not valid JSON/);
    expect(result.outcome).toEqual({ type: 'completed' });
  });

  test('runs calls beside text, and keeps the text in the history', async () => {
    resetRan();
    using model = scriptedModel([{ ...shellCall('ls'), text: 'I look first.' }, 'Done.']);
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

// Seed 003, the state machine.
describe('the steps of a run', () => {
  test('starts with a model call that has the tools and the input', async () => {
    using model = scriptedModel(['Hello.']);
    const history: Message[] = [userText('Hi.'), { role: 'assistant', content: [{ type: 'text', text: 'Yes?' }] }];
    await runLoop({ model, tools, input: [...history, userText('Check CPU temp')] });
    const { name, description, parameters } = shell;
    expect(model.requests[0]).toMatchObject({
      tools: [{ name, description, parameters }],
      messages: [...history, userText('Check CPU temp')],
    });
  });

  test('ends after a reply without calls', async () => {
    using model = scriptedModel(['No tool needed.']);
    expect(await runLoop({ model, tools, input: 'Hi.' })).toMatchObject({ outcome: { type: 'completed' }, turns: 1 });
  });

  test.each([
    ['a call of an unknown tool', { calls: [{ name: 'git_status' }] }],
    ['a call with invalid arguments', { calls: [{ name: 'shell' }] }],
    ['a call with arguments that are not JSON', { calls: [{ name: 'shell', arguments: '{"command"' }] }],
  ])('sends an error to the model for %s, and continues', async (_, reply) => {
    resetRan();
    using model = scriptedModel([reply, 'I see.']);
    const result = await runLoop({ model, tools, input: 'Hi.' });
    expect(ran).toEqual([]);
    expect(model.requests[1]!.messages.at(-1)).toMatchObject({ role: 'tool', content: [{ isError: true }] });
    expect(result.outcome).toEqual({ type: 'completed' });
  });

  test('sends an error to the model for a tool that timed out, and continues', async () => {
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

  test('adds the result to the conversation as a tool message, and calls the model again', async () => {
    using model = scriptedModel([
      { text: "I'll check the CPU temperature.", ...shellCall('vcgencmd measure_temp') },
      'The CPU is at 45.6°C.',
    ]);
    const { messages } = await runLoop({ model, tools, input: 'Check CPU temp' });
    expect(rolesOf(model.requests[1]!.messages)).toEqual(['user', 'assistant', 'tool']);
    expect(rolesOf(messages)).toEqual(['user', 'assistant', 'tool', 'assistant']);
  });

  test.each([
    [9, { type: 'completed' }],
    [10, { type: 'exhausted', limit: 'turns' }],
  ])('maxTurns 10: a run with %i turns of calls ends with %j', async (turns, outcome) => {
    const replies = Array.from({ length: turns }, (_, n) => shellCall(`echo ${n}`));
    using model = scriptedModel(turns < 10 ? [...replies, 'Done.'] : replies);
    expect((await runLoop({ model, tools, input: 'Go.', maxTurns: 10 })).outcome).toEqual(outcome);
  });

  test('ends by an answer, at maxTurns, at errorLimit and by cancellation', async () => {
    const outcomeOf = async (script: readonly (string | ScriptedReply)[], signal?: AbortSignal): Promise<unknown> => {
      const model = scriptedModel(script);
      const options = { tools, input: 'Go.', maxTurns: 4, errorLimit: 3, ...(signal && { signal }) };
      return (await runLoop({ model, ...options })).outcome;
    };
    expect(await outcomeOf(['Done.'])).toEqual({ type: 'completed' });
    expect(await outcomeOf(['a', 'b', 'c', 'd'].map(shellCall))).toEqual({ type: 'exhausted', limit: 'turns' });
    expect(await outcomeOf(['false', 'false', 'false'].map(shellCall))).toEqual({ type: 'exhausted', limit: 'errors' });
    expect(await outcomeOf(['Done.'], AbortSignal.abort())).toEqual({ type: 'cancelled', phase: 'model' });
  });

  test('runs a chain of calls, each with the result of the previous one', async () => {
    resetRan();
    using model = scriptedModel([
      shellCall('git log -3'),
      ({ messages }) => shellCall(`git show (from: ${lastResult(messages)})`),
      'Here are the last 3 commits.',
    ]);
    expect(await runLoop({ model, tools, input: 'Last 3 commits?' })).toMatchObject({ turns: 3, calls: 2 });
    expect(ran).toEqual(['git log -3', 'git show (from: $ git log -3)']);
  });
});

// Seed 003, the error messages.
describe('the error result', () => {
  const read = tool({
    name: 'read',
    description: 'Reads a file',
    effect: 'pure',
    timeoutMs: 30_000,
    input: {
      type: 'object',
      properties: { path: { type: 'string' }, offset: { type: 'number' }, limit: { type: 'number' } },
      required: ['path'],
    },
    execute: () => new Promise(() => {}),
  });

  async function resultTextOf(
    call: { readonly name: string; readonly arguments?: unknown },
    policy?: Policy,
  ): Promise<string> {
    const clock = manualClock();
    using model = scriptedModel([{ calls: [call] }, 'I see.']);
    const run = runLoop({ model, tools: [read, shell], input: 'Go.', clock, ...(policy && { policy }) });
    await clock.advance(30_000);
    return resultTexts(await run)[0]!;
  }

  test('of an unknown tool names it and the available tools', async () => {
    expect(await resultTextOf({ name: 'git_status' })).toBe(
      'There is no tool "git_status". Available tools: read, shell. Use one of them, or answer without a tool.',
    );
  });

  test('of a timeout names the tool, the time and the arguments', async () => {
    expect(await resultTextOf({ name: 'read', arguments: { path: 'a' } })).toBe(
      'The tool "read" timed out after 30000 ms. Arguments: {"path":"a"}. Ask for less, try another way, or say what could not be done.',
    );
  });

  test('of a denied call names the tool and the reason', async () => {
    const policy: Policy = { judge: () => [{ type: 'deny', reason: 'it requires the permission "shell".' }] };
    expect(await resultTextOf({ name: 'shell', arguments: { command: 'ls' } }, policy)).toBe(
      'The call of "shell" was denied: it requires the permission "shell".',
    );
  });

  test('of invalid arguments names the missing property, and the required and optional ones', async () => {
    expect(await resultTextOf({ name: 'read', arguments: { offset: 3 } })).toMatch(
      /^The tool "read" was not called\. .*"path".* Required: path\. Optional: offset, limit\.$/,
    );
  });
});

// Seed 004, the test cases.
describe('a run with a tool that reads files', () => {
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
  const callRead = (path: string): ScriptedReply => ({ calls: [{ name: 'read_file', arguments: { path } }] });
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

  test('runs the call, and the answer can use its result', async () => {
    using model = scriptedModel([callRead('/sandbox/test.txt'), ({ messages }) => `It says ${lastResult(messages)}.`]);
    const result = await runLoop({ model, tools: [readFile], input: 'Read the file at /sandbox/test.txt' });
    expect(result.text).toBe('It says nonce-8f3a.');
  });

  test('calls the model again with the call and its result', async () => {
    using model = scriptedModel([callRead('/sandbox/test.txt'), 'Done.']);
    await runLoop({ model, tools: [readFile], input: 'Hi.' });
    expect(model.requests[0]!.tools).toMatchObject([{ name: 'read_file' }]);
    expect(model.requests[1]!.messages.slice(1)).toMatchObject([
      { role: 'assistant', content: [{ type: 'tool-call', id: 'call_0_0', name: 'read_file' }] },
      { role: 'tool', content: [{ callId: 'call_0_0', content: [{ type: 'text', text: 'nonce-8f3a' }] }] },
    ]);
  });

  test('runs a chain of 3 calls, and streams the final text', async () => {
    const three = ['/sandbox/test.txt', '/b', '/c'].map(callRead);
    const { items, result } = await streamed([...three, 'The final text.']);
    expect(result).toMatchObject({ outcome: { type: 'completed' }, calls: 3, turns: 4 });
    expect(events(items).slice(-3)).toEqual([{ text: 'The ' }, { text: 'final ' }, { text: 'text.' }]);
  });

  test('stops a chain of more than 10 calls at maxTurns 10, and reports the limit', async () => {
    const model = scriptedModel(
      Array.from({ length: 12 }, (_, n) => callRead(n % 2 ? '/sandbox/test.txt' : '/sandbox/b.txt')),
    );
    const result = await runLoop({ model, tools: [readFile], input: 'Hi.', maxTurns: 10 });
    expect(result).toMatchObject({ outcome: { type: 'exhausted', limit: 'turns' }, turns: 10, calls: 10 });
    expect(model.requests).toHaveLength(10);
  });

  test('sends the error of a failed tool to the model as its result', async () => {
    using model = scriptedModel([callRead('/nowhere'), 'There is no such file.']);
    const result = await runLoop({ model, tools: [readFile], input: 'Hi.' });
    expect(model.requests[1]!.messages.at(-1)).toMatchObject({
      role: 'tool',
      content: [
        { isError: true, content: [{ type: 'error', text: 'The tool "read_file" failed: no such file: /nowhere' }] },
      ],
    });
    expect(result.outcome).toEqual({ type: 'completed' });
  });

  test('gives the same result for an answer without calls, with and without tools', async () => {
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

  test('streams a start and a result for each call', async () => {
    const two = { calls: [...callRead('/sandbox/test.txt').calls!, ...callRead('/nowhere').calls!] };
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

test('startLoop returns a run that accepts input, is not iterable, and notifies onItem', async () => {
  const deltas: string[] = [];
  const run = startLoop({
    model: scriptedModel(['One.', 'Two.']),
    input: 'Go.',
    onItem: (item) => {
      if (item.type === 'text-delta') deltas.push(item.text);
    },
  });
  expect(await run.send('And?')).toBe(true);
  expect((await run.result).text).toBe('Two.');
  expect(deltas.join('')).toBe('One.Two.');
  expect(Symbol.asyncIterator in run).toBe(false);
});

test('a run that has to confirm its answer, and has no tools, calls the model once', async () => {
  const model = scriptedModel(['Answer.']);
  const result = await runLoop({ model, input: 'Task.', finish: 'confirm' });
  expect([result.text, result.turns]).toEqual(['Answer.', 1]);
});

test('a result names the model, and the tools whose calls ran', async () => {
  const used = (name: string): Tool => tool({ name, description: name, execute: () => name });
  const calls = [{ name: 'b' }, { name: 'a' }, { name: 'denied' }, { name: 'b' }, { name: 'unknown' }];
  const policy: Policy = {
    judge: (all) => all.map(({ name }) => (name === 'denied' ? { type: 'deny', reason: 'no' } : { type: 'allow' })),
  };
  const tools = ['a', 'b', 'c', 'denied'].map(used);
  const model = scriptedModel([{ calls }, 'Done.']);
  const result = await runLoop({ model, tools, input: 'Task.', policy });
  expect(result).toMatchObject({ model: model.id, toolsUsed: ['a', 'b'] });
  expect((await runLoop({ model: scriptedModel(['Done.']), input: 'Task.' })).toolsUsed).toEqual([]);
});

import { randomUUID } from 'node:crypto';
import {
  userText,
  type AssistantPart,
  type JsonSchema,
  type Message,
  type ModelDelta,
  type ModelReply,
  type ModelRequest,
  type ToolChoice,
  type ToolResult,
  type ToolSpec,
} from '@treadle/core';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { asked, request } from '../../test/request.ts';
import { demo } from './demo.ts';

interface TestTool extends ToolSpec {
  readonly run: (input: Record<string, unknown>) => string;
}

function tool(
  name: string,
  description: string,
  properties: Record<string, object>,
  run: (input: Record<string, unknown>) => string,
  required: string[] = Object.keys(properties),
): TestTool {
  return { name, description, parameters: { type: 'object', properties, required }, run };
}

const string = { type: 'string' };
const number = { type: 'number' };

const NONCE = randomUUID();
const FILES: Record<string, string> = {
  'README.md': `# Treadle\n\nA treadle is a pedal.\nNonce: ${NONCE}\n`,
  'a.txt': 'alpha\n',
  'b.txt': 'beta\n',
};

function readFile(path: unknown): string {
  const text = FILES[String(path)];
  if (text === undefined) throw new Error(`no such file: ${String(path)}`);
  return text;
}

// The descriptions are those of the command's tools.
const read = tool(
  'read',
  'Read a file. Long files come in parts: the last line then says with which offset to go on.',
  { path: string, offset: number, limit: number },
  ({ path }) => readFile(path),
  ['path'],
);
const glob = tool(
  'glob',
  'Find files by their paths. Returns the paths of the files that match, sorted, relative to the working folder.',
  { pattern: string, path: string },
  () => Object.keys(FILES).join('\n'),
  ['pattern'],
);
const grep = tool(
  'grep',
  'Search the text of files, line by line, with a regular expression. Gives "file:line: text".',
  { pattern: string, path: string, glob: string },
  ({ pattern, path }) =>
    Object.entries(FILES)
      .filter(([name]) => path === undefined || name === path)
      .flatMap(([name, text]) => text.split('\n').map((line, at) => [name, at + 1, line] as const))
      .filter(([, , line]) => new RegExp(String(pattern), 'i').test(line))
      .map(([name, at, line]) => `${name}:${at}:${line}`)
      .join('\n'),
  ['pattern'],
);
const weather = tool(
  'get_weather',
  'Current weather for a city',
  { city: string },
  ({ city }) => `${String(city)}: 4 °C, ${NONCE}`,
);
const jobs = tool('background_list', 'List what runs in the background', {}, () => 'Nothing runs in the background.');
const output = tool('background_read', 'Read the output of a background job', { handle: string }, () => '');
const FILE_TOOLS = [read, glob, grep, jobs, output];

interface DemoRun {
  readonly text: string;
  /** The calls of each reply, as `name {arguments}`. */
  readonly calls: readonly string[][];
  readonly messages: Message[];
}

/** Asks the demo model and runs its calls until it answers. */
async function run(
  input: string | Message[],
  tools: readonly TestTool[],
  options: Partial<ModelRequest> = {},
): Promise<DemoRun> {
  const messages = typeof input === 'string' ? [userText(input)] : [...input];
  const calls: string[][] = [];
  let toolChoice = options.toolChoice ?? 'auto';
  for (;;) {
    const { content } = await replyTo(messages, tools, { ...options, toolChoice });
    messages.push({ role: 'assistant', content });
    const made = content.filter((part) => part.type === 'tool-call');
    if (made.length === 0) return { text: textIn(content), calls, messages };
    calls.push(made.map(({ name, arguments: json }) => `${name} ${json}`));
    toolChoice = toolChoice === 'none' ? 'none' : 'auto';
    messages.push({
      role: 'tool',
      content: made.map(({ id, name, arguments: json }): ToolResult => {
        const result = { type: 'tool-result', callId: id, name } as const;
        try {
          const text = tools.find((one) => one.name === name)!.run(JSON.parse(json) as Record<string, unknown>);
          return { ...result, content: [{ type: 'text', text }], isError: false };
        } catch (thrown) {
          return { ...result, content: [{ type: 'error', text: String(thrown) }], isError: true };
        }
      }),
    });
    if (calls.length > 20) throw new Error('the demo model does not stop calling tools');
  }
}

/** One reply. It equals its deltas, and a second request gets the same. */
async function replyTo(
  messages: readonly Message[],
  tools: readonly ToolSpec[],
  options: Partial<ModelRequest> = {},
): Promise<Extract<ModelReply, { type: 'reply' }>> {
  const wanted = { messages, tools, ...options };
  const { reply, deltas } = await asked(demo(), wanted);
  if (reply.type === 'failure') throw new Error(reply.error.message);
  const streamed = deltas.map((delta) => (delta.type === 'text-delta' ? delta.text : '')).join('');
  expect(streamed).toBe(textIn(reply.content));
  expect((await asked(demo(), wanted)).reply).toEqual(reply);
  return reply;
}

const textIn = (content: readonly AssistantPart[]): string =>
  content.map((part) => (part.type === 'text' ? part.text : '')).join('');

test('answers with the result of the tool that it called', async () => {
  const { text, calls } = await run('Please read README.md', FILE_TOOLS);
  expect(calls).toEqual([['read {"path":"README.md"}']]);
  expect(text).toContain(NONCE);
  expect(text).toContain('demo model');
});

test('makes the calls of "X, then Y" one after the other', async () => {
  const { text, calls } = await run('list the files, then read README.md, then search it for treadle', FILE_TOOLS);
  expect(calls).toEqual([
    ['glob {"pattern":"*"}'],
    ['read {"path":"README.md"}'],
    ['grep {"path":"README.md","pattern":"treadle"}'],
  ]);
  expect(text).toContain('b.txt');
  expect(text).toContain(NONCE);
  expect(text).toContain('README.md:3:A treadle is a pedal.');
});

test('makes the calls of "X and Y" in one reply, or one by one without parallel calls', async () => {
  const { text, calls } = await run('read a.txt and b.txt', FILE_TOOLS);
  expect(calls).toEqual([['read {"path":"a.txt"}', 'read {"path":"b.txt"}']]);
  expect(text).toMatch(/^read {"path":"a.txt"} returned:\n\nalpha\n\nread {"path":"b.txt"} returned:\n\nbeta\n/);
  expect((await run('read a.txt and b.txt', FILE_TOOLS, { parallel: false })).calls).toEqual([
    ['read {"path":"a.txt"}'],
    ['read {"path":"b.txt"}'],
  ]);
});

test('"it" is the file of the last call, also in a later message', async () => {
  const { messages } = await run('read b.txt', FILE_TOOLS);
  expect((await run([...messages, userText('search it for et')], FILE_TOOLS)).calls).toEqual([
    ['grep {"path":"b.txt","pattern":"et"}'],
  ]);
  expect((await run('read it', FILE_TOOLS)).text).toContain('To call read I need to know: path.');
});

test.each([
  ['list the files', 'glob {"pattern":"*"}'],
  ['What files are in src?', 'glob {"path":"src","pattern":"*"}'],
  ['list the *.ts files', 'glob {"pattern":"*.ts"}'],
  ['ls', 'glob {"pattern":"*"}'],
  ['how many files are there?', 'glob {"pattern":"*"}'],
  ['cat LICENSE', 'read {"path":"LICENSE"}'],
  ['what does a.txt say?', 'read {"path":"a.txt"}'],
  ["Can you tell me what's in a.txt?", 'read {"path":"a.txt"}'],
  ['Summarize "my notes.txt", please', 'read {"path":"my notes.txt"}'],
  ['show me the contents of src/a.ts', 'read {"path":"src/a.ts"}'],
  ['search the files for "a and b"', 'grep {"pattern":"a and b"}'],
  ['search for treadle', 'grep {"pattern":"treadle"}'],
  ['grep treadle', 'grep {"pattern":"treadle"}'],
  ['find treadle in README.md', 'grep {"path":"README.md","pattern":"treadle"}'],
  ['Which files mention a licence?', 'grep {"pattern":"licence"}'],
  ['which files mention a.b?', 'grep {"pattern":"a\\\\.b"}'],
])('%s: calls %s', async (text, call) => {
  expect((await run(text, FILE_TOOLS)).calls).toEqual([[call]]);
});

test('recognises tools for files with other names and parameters', async () => {
  const slurp = tool(
    'slurp',
    'Read the contents of a file',
    { file_path: string, encoding: string },
    ({ file_path }) => readFile(file_path),
    ['file_path'],
  );
  const list = tool('list_directory', 'Lists a folder', { directory: string }, () => 'a.txt\nb.txt');
  const look = tool('search_code', 'Search through files', { query: string }, () => `a.txt:1:${NONCE}`);
  const { calls, text } = await run('list the files, then read b.txt and search for x', [look, list, slurp]);
  expect(calls).toEqual([
    ['list_directory {"directory":"."}'],
    ['slurp {"file_path":"b.txt"}', 'search_code {"query":"x"}'],
  ]);
  expect(text).toContain(NONCE);
});

test('calls any tool that the text mentions, with the arguments in the text', async () => {
  const { calls, text } = await run("What's the weather in Oslo and Rome?", [...FILE_TOOLS, weather]);
  expect(calls).toEqual([['get_weather {"city":"Oslo"}', 'get_weather {"city":"Rome"}']]);
  expect(text).toContain(`Rome: 4 °C, ${NONCE}`);
  expect((await run('use get_weather with city=Bergen', [weather])).calls).toEqual([['get_weather {"city":"Bergen"}']]);
  expect((await run('get_weather {"city":"São Paulo"}', [weather])).calls).toEqual([
    ['get_weather {"city":"São Paulo"}'],
  ]);
  expect((await run('get_weather', [weather])).text).toContain('To call get_weather I need to know: city.');
  const convert = tool(
    'convert_currency',
    'Convert money',
    { amount: number, to: { enum: ['EUR', 'NOK'] } },
    () => NONCE,
  );
  expect((await run('convert 12.5 dollars to nok', [convert])).calls).toEqual([
    ['convert_currency {"amount":12.5,"to":"NOK"}'],
  ]);
  const add = tool('add', 'Adds two numbers', { a: number, b: number }, () => '5');
  expect((await run('add 2 and 3', [add])).calls).toEqual([['add {"a":2,"b":3}']]);
  const clock = tool('get_time', 'The current time', { timezone: string }, () => NONCE, []);
  expect((await run('What time is it?', [clock])).calls).toEqual([['get_time {}']]);
});

test.each([
  ['what is 6 * 7?', '6 * 7 = 42'],
  ['0.1 + 0.2', '0.1 + 0.2 = 0.3'],
  ["what's 7 - -2", '7 - -2 = 9'],
  ['calculate 1 / 8', '1 / 8 = 0.125'],
])('%s: answers %s without a tool', async (text, answer) => {
  const result = await run(text, FILE_TOOLS);
  expect(result.calls).toEqual([]);
  expect(result.text.split('\n')[0]).toBe(answer);
});

test('reports the error of a tool', async () => {
  const { text } = await run('read nothing.txt and a.txt', FILE_TOOLS);
  expect(text).toMatch(
    /read {"path":"nothing\.txt"} failed:\n\nError: no such file: nothing\.txt\n\nread {"path":"a.txt"} returned:\n\nalpha/,
  );
});

test.each(['hello', 'Write a poem about the sea', '', '???', 'Who are you?', 'read a.txt'])(
  '%j without a tool for it: says what it is, what it understands and how to use a real model',
  async (input) => {
    const { text, calls } = await run(input, [glob]);
    expect(calls).toEqual([]);
    for (const part of [
      'demo model',
      'list the files',
      'The tools here: glob.',
      'treadle chat --model',
      'OPENAI_API_KEY',
      'treadle.toml',
    ]) {
      expect(text).toContain(part);
    }
  },
);

test('does what it understands and reports the rest', async () => {
  const { text } = await run('read a.txt and sing me a song about it', FILE_TOOLS);
  expect(text).toContain('alpha');
  expect(text).toContain('I did not understand "sing me a song about it".');
});

test('quotes the beginning and the end of a long result', async () => {
  const long = tool('read', 'Read a text file', { path: string }, () => `${NONCE}-1${'x'.repeat(50_000)}${NONCE}-2`);
  const { text } = await run('read a.txt', [long]);
  expect(text).toContain(`${NONCE}-1`);
  expect(text).toContain(`${NONCE}-2`);
  expect(text).toContain('characters left out');
  expect(text.length).toBeLessThan(5_000);
});

test('repeats its answer when asked to confirm it', async () => {
  const questions = [
    'Before this counts as your answer, check it: are all parts of the task done, and have you verified the results? ' +
      'If something is left, go on with it now. If everything is done, state your final answer once more, in full.',
    'Before I accept your answer, please verify:\n1. Have you completed all parts of the task?\n2. Have you verified your ' +
      'results (e.g., by reading output files)?\nIf the task is not fully complete, continue working. If it is complete, ' +
      'restate your final answer.',
  ];
  for (const question of questions) {
    const { text, messages } = await run('read README.md', FILE_TOOLS);
    const again = await run([...messages, userText(question)], FILE_TOOLS);
    expect(again.calls).toEqual([]);
    expect(again.text).toBe(text);
  }
});

test('does not take messages of the loop for a task', async () => {
  const { messages } = await run('read README.md', FILE_TOOLS);
  const asked = messages.slice(0, -1);
  for (const words of [
    'This run has met its limit of turns, so no more tools can be called. Give your final answer now with what you have, and say what is left undone.',
    'Your reply was empty. Go on with the task, or give your answer.',
  ]) {
    const { text, calls } = await run([...asked, userText(words)], FILE_TOOLS, { toolChoice: 'none' });
    expect(calls).toEqual([]);
    expect(text).toContain(NONCE);
    expect(text).not.toContain('did not understand');
  }
});

test('handles input that arrives during the run', async () => {
  const { messages } = await run('read a.txt', FILE_TOOLS);
  const { text, calls } = await run([...messages.slice(0, -1), userText('Also read b.txt')], FILE_TOOLS);
  expect(calls).toEqual([['read {"path":"b.txt"}']]);
  expect(text).toMatch(/alpha[^]*beta/);
});

test('answers a second task without the results of the first', async () => {
  const { messages } = await run('read a.txt', FILE_TOOLS);
  const { text, calls } = await run([...messages, userText('read b.txt')], FILE_TOOLS);
  expect(calls).toEqual([['read {"path":"b.txt"}']]);
  expect(text).not.toContain('alpha');
});

test('makes no call with tool choice none, and says what is not done', async () => {
  const { text, calls } = await run('read a.txt', FILE_TOOLS, { toolChoice: 'none' });
  expect(calls).toEqual([]);
  expect(text).toContain('Not done, because no tool may be called now: read a.txt.');
});

test('calls a tool with tool choice required or named, even if the text asks for none', async () => {
  expect((await run('hello', FILE_TOOLS, { toolChoice: 'required' })).calls).toEqual([['read {"path":"hello"}']]);
  expect((await run('read a.txt', FILE_TOOLS, { toolChoice: 'required' })).calls).toEqual([['read {"path":"a.txt"}']]);
  const named = await run('weather in Oslo', [...FILE_TOOLS, weather], { toolChoice: { tool: 'get_weather' } });
  expect(named.calls).toEqual([['get_weather {"city":"Oslo"}']]);
  const other = await run('read a.txt', [...FILE_TOOLS, weather], { toolChoice: { tool: 'get_weather' } });
  expect(other.calls[0]![0]).toMatch(/^get_weather /);
  expect(other.calls[1]).toEqual(['read {"path":"a.txt"}']);
  expect(other.text).toMatch(new RegExp(`alpha[^]*${NONCE}`));
  expect((await run('hello', [], { toolChoice: 'required' })).calls).toEqual([]);
});

test('does not call tools that are not allowed', async () => {
  const { calls, text } = await run('read a.txt', FILE_TOOLS, { allowedTools: ['glob'] });
  expect(calls).toEqual([]);
  expect(text).toContain('I did not understand "read a.txt".');
});

test('estimates its usage, at no cost', async () => {
  const { usage, finish, model } = await replyTo([userText('x'.repeat(4_000))], []);
  expect(usage).toEqual({ inputTokens: expect.any(Number), outputTokens: expect.any(Number), cost: 0 });
  expect(Math.round(usage.inputTokens / 100)).toBe(10);
  expect(usage.outputTokens).toBeGreaterThan(50);
  expect({ finish, model }).toEqual({ finish: 'stop', model: 'demo' });
});

test('streams word by word and stops when it is cancelled', async () => {
  const controller = new AbortController();
  const deltas: ModelDelta[] = [];
  const reply = await demo().reply(
    request({ messages: [userText('hello')] }),
    (delta) => {
      deltas.push(delta);
      if (deltas.length === 3) controller.abort();
    },
    controller.signal,
  );
  expect(deltas).toEqual(['I', ' am', " Treadle's"].map((text) => ({ type: 'text-delta', text })));
  expect(reply).toMatchObject({ type: 'failure', error: { code: 'cancelled' } });
});

test('handles a history that another model wrote', async () => {
  const messages: Message[] = [
    userText('read a.txt'),
    { role: 'assistant', content: [{ type: 'tool-call', id: 'x', name: 'read', arguments: '{"path": broken' }] },
    {
      role: 'tool',
      content: [
        {
          type: 'tool-result',
          callId: 'x',
          name: 'read',
          content: [{ type: 'error', text: 'bad JSON' }],
          isError: true,
        },
      ],
    },
    { role: 'assistant', content: [{ type: 'text', text: 'Sorry.' }] },
    userText('read it'),
  ];
  expect((await run(messages.slice(0, 3), FILE_TOOLS)).text).toMatch(/alpha[^]*bad JSON/);
  expect((await run(messages, FILE_TOOLS)).text).toContain('To call read I need to know: path.');
});

test.each([
  ' '.repeat(100_000),
  '\n'.repeat(100_000),
  '('.repeat(100_000) + '1',
  `${'1'.repeat(100_000)}+`,
  'search a for '.repeat(10_000),
  'find x in '.repeat(10_000),
  'list files '.repeat(10_000),
  '"'.repeat(100_001),
  'get weather '.repeat(10_000),
  `list ${'*'.repeat(100_000)}`,
])('handles a text of 100,000 characters (%#)', async (text) => {
  await expect(run(text, [...FILE_TOOLS, weather])).resolves.toBeDefined();
  await expect(run(text, [weather], { toolChoice: 'required' })).resolves.toBeDefined();
});

const anyName = fc.oneof(fc.constantFrom('path', 'city', '__proto__', 'constructor', 'a[', '(', ''), fc.string());
const anySchema = fc.oneof(
  fc.dictionary(fc.constantFrom('type', 'properties', 'required', 'enum'), fc.jsonValue()),
  fc.record({
    properties: fc.dictionary(
      anyName,
      fc.oneof(
        fc.jsonValue(),
        fc.record({ type: fc.constantFrom('string', 'number', 'object'), enum: fc.jsonValue() }),
      ),
    ),
    required: fc.array(anyName),
  }),
) as fc.Arbitrary<JsonSchema>;
const anyTool = fc.record({ name: anyName, description: fc.string(), parameters: anySchema });
const anyText = fc
  .array(fc.oneof(anyName, fc.constantFrom('read', 'it', 'then', 'and', 'in', '"', '{', '}', '6 * 7', '\n', 'list')))
  .map((words) => words.join(' '));
const anyMessage: fc.Arbitrary<Message> = fc.oneof(
  anyText.map(userText),
  fc.record({
    role: fc.constant('assistant'),
    content: fc.array(fc.record({ type: fc.constant('text'), text: anyText })),
  }),
  fc.record({
    role: fc.constant('assistant'),
    content: fc.array(
      fc.record({ type: fc.constant('tool-call'), id: fc.constantFrom('a', 'b'), name: anyName, arguments: fc.json() }),
    ),
  }),
  fc.record({
    role: fc.constant('tool'),
    content: fc.array(
      fc.record({
        type: fc.constant('tool-result'),
        callId: fc.constantFrom('a', 'b', 'c'),
        name: anyName,
        content: fc.array(fc.record({ type: fc.constant('text'), text: fc.string() })),
        isError: fc.boolean(),
      }),
    ),
  }),
);

test('replies to any history with any tools', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(anyMessage, { maxLength: 6 }),
      fc.array(anyTool, { maxLength: 4 }),
      fc.constantFrom<ToolChoice>('auto', 'none', 'required', { tool: 'path' }),
      async (messages, tools, toolChoice) => {
        const { content } = await replyTo(messages, tools, { toolChoice });
        expect(content.length).toBeGreaterThan(0);
        for (const part of content) if (part.type === 'tool-call') JSON.parse(part.arguments);
      },
    ),
    { numRuns: 500 },
  );
});

test('does what the inputs of an agent say, or calls the tool that takes them', async () => {
  const { text, calls } = await run('{"question":"read a.txt","also":"list the files","depth":2}', FILE_TOOLS);
  expect(calls).toEqual([['read {"path":"a.txt"}'], ['glob {"pattern":"*"}']]);
  expect(text).toContain('alpha');
  expect((await run('{"path":"a.txt"}', FILE_TOOLS)).calls).toEqual([['read {"path":"a.txt"}']]);
  expect((await run('{"path":"a.txt","pattern":"al"}', FILE_TOOLS)).calls).toEqual([
    ['glob {"path":"a.txt","pattern":"al"}'],
  ]);
  expect((await run('{"x": 1}', FILE_TOOLS)).calls).toEqual([]);
  expect((await run('{"not json', FILE_TOOLS)).calls).toEqual([]);
});

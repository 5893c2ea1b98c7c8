import { randomUUID } from 'node:crypto';
import {
  userText,
  type AssistantPart,
  type Message,
  type ModelDelta,
  type ModelReply,
  type ModelRequest,
  type ToolSpec,
} from '@treadle/core';
import { expect, test } from 'vitest';
import { asked, request } from '../../test/request.ts';
import { demo } from './demo.ts';

interface TestTool extends ToolSpec {
  readonly run: (given: Record<string, unknown>) => string;
}

function tool(
  name: string,
  description: string,
  properties: Record<string, object>,
  run: (given: Record<string, unknown>) => string,
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

const read = tool('read', 'Read a text file', { path: string }, ({ path }) => readFile(path));
const glob = tool('glob', 'Find files by a glob pattern', { pattern: string }, () => Object.keys(FILES).join('\n'));
const grep = tool(
  'grep',
  'Search files for lines that match a regular expression',
  { pattern: string, path: string },
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
const FILE_TOOLS = [read, glob, grep];

interface Ran {
  readonly text: string;
  /** The calls of each reply, as `name {arguments}`. */
  readonly calls: readonly string[][];
  readonly messages: Message[];
}

/** A loop of a few lines: the demo is asked, its calls are run, until it answers. */
async function run(
  input: string | Message[],
  tools: readonly TestTool[],
  given: Partial<ModelRequest> = {},
): Promise<Ran> {
  const messages = typeof input === 'string' ? [userText(input)] : [...input];
  const calls: string[][] = [];
  let toolChoice = given.toolChoice ?? 'auto';
  for (;;) {
    const { content } = await replyTo(messages, tools, { ...given, toolChoice });
    messages.push({ role: 'assistant', content });
    const asked = content.filter((part) => part.type === 'tool-call');
    if (asked.length === 0) return { text: textIn(content), calls, messages };
    calls.push(asked.map(({ name, arguments: json }) => `${name} ${json}`));
    toolChoice = toolChoice === 'none' ? 'none' : 'auto';
    messages.push({
      role: 'tool',
      content: asked.map(({ id, name, arguments: json }) => {
        try {
          const text = tools.find((one) => one.name === name)!.run(JSON.parse(json) as Record<string, unknown>);
          return { type: 'tool-result', callId: id, name, content: [{ type: 'text', text }], isError: false };
        } catch (thrown) {
          return {
            type: 'tool-result',
            callId: id,
            name,
            content: [{ type: 'error', text: String(thrown) }],
            isError: true,
          };
        }
      }),
    });
    if (calls.length > 20) throw new Error('the demo goes on and on');
  }
}

async function replyTo(
  messages: readonly Message[],
  tools: readonly ToolSpec[],
  given: Partial<ModelRequest> = {},
): Promise<Extract<ModelReply, { type: 'reply' }>> {
  const wanted = { messages, tools, ...given };
  const { reply, deltas } = await asked(demo(), wanted);
  if (reply.type === 'failure') throw new Error(reply.error.message);
  const told = deltas.map((delta) => (delta.type === 'text-delta' ? delta.text : '')).join('');
  expect(told).toBe(textIn(reply.content));
  expect((await asked(demo(), wanted)).reply).toEqual(reply);
  return reply;
}

const textIn = (content: readonly AssistantPart[]): string =>
  content.map((part) => (part.type === 'text' ? part.text : '')).join('');

test('it really uses the tool: the answer holds a nonce that only the tool could give', async () => {
  const { text, calls } = await run('Please read README.md', FILE_TOOLS);
  expect(calls).toEqual([['read {"path":"README.md"}']]);
  expect(text).toContain(NONCE);
  expect(text).toContain('demo model');
});

test('a chain: one call per step, each after the one before', async () => {
  const { text, calls } = await run('list the files, then read README.md and search it for treadle', FILE_TOOLS);
  expect(calls).toEqual([
    ['glob {"pattern":"*"}'],
    ['read {"path":"README.md"}'],
    ['grep {"pattern":"treadle","path":"README.md"}'],
  ]);
  expect(text).toContain('b.txt');
  expect(text).toContain(NONCE);
  expect(text).toContain('README.md:3:A treadle is a pedal.');
});

test('steps that do not need each other are one reply, unless calls must come one by one', async () => {
  const { text, calls } = await run('read a.txt and b.txt', FILE_TOOLS);
  expect(calls).toEqual([['read {"path":"a.txt"}', 'read {"path":"b.txt"}']]);
  expect(text).toMatch(/a\.txt says:\n\nalpha\n\nb\.txt says:\n\nbeta\n/);
  expect((await run('read a.txt and b.txt', FILE_TOOLS, { parallel: false })).calls).toEqual([
    ['read {"path":"a.txt"}'],
    ['read {"path":"b.txt"}'],
  ]);
});

test('what a step finds, the next can use', async () => {
  expect((await run('list the files and read the first one', FILE_TOOLS)).calls).toEqual([
    ['glob {"pattern":"*"}'],
    ['read {"path":"README.md"}'],
  ]);
  expect((await run('list the files, then read them all', FILE_TOOLS)).calls[1]).toHaveLength(3);
  expect((await run('search for beta and read the first one', FILE_TOOLS)).calls).toEqual([
    ['grep {"pattern":"beta"}'],
    ['read {"path":"b.txt"}'],
  ]);
  const { messages } = await run('read b.txt', FILE_TOOLS);
  expect((await run([...messages, userText('search it for et')], FILE_TOOLS)).calls).toEqual([
    ['grep {"pattern":"et","path":"b.txt"}'],
  ]);
  expect((await run('read the first one', FILE_TOOLS)).text).toContain('I do not know which file is meant');
});

test.each([
  ['list the files', 'glob {"pattern":"*"}'],
  ['What files are in src?', 'glob {"pattern":"src/*"}'],
  ['find all *.ts files', 'glob {"pattern":"**/*.ts"}'],
  ['list the markdown files in docs', 'glob {"pattern":"docs/**/*.md"}'],
  ['find files named config.json', 'glob {"pattern":"**/config.json"}'],
  ['ls', 'glob {"pattern":"*"}'],
  ['how many files are there?', 'glob {"pattern":"*"}'],
  ['cat LICENSE', 'read {"path":"LICENSE"}'],
  ['what does a.txt say?', 'read {"path":"a.txt"}'],
  ["Can you tell me what's in a.txt?", 'read {"path":"a.txt"}'],
  ['Summarize "my notes.txt", please', 'read {"path":"my notes.txt"}'],
  ['show me the contents of src/a.ts', 'read {"path":"src/a.ts"}'],
  ['search the files for "a and b"', 'grep {"pattern":"a and b"}'],
  ['grep treadle', 'grep {"pattern":"treadle"}'],
  ['find treadle in README.md', 'grep {"pattern":"treadle","path":"README.md"}'],
  ['where is runLoop defined?', 'grep {"pattern":"runLoop"}'],
  ['which files mention a.b?', 'grep {"pattern":"a\\\\.b"}'],
])('%s', async (request, call) => {
  expect((await run(request, FILE_TOOLS)).calls).toEqual([[call]]);
});

test('tools of other names whose descriptions and parameters tell the same', async () => {
  const slurp = tool(
    'slurp',
    'Reads the contents of a file',
    { file_path: string, encoding: string },
    ({ file_path }) => readFile(file_path),
    ['file_path'],
  );
  const dir = tool('list_directory', 'Lists the entries of a folder', { directory: string }, () => 'a.txt\nb.txt');
  const look = tool(
    'search_code',
    'Search through files',
    { query: string, folder: string },
    () => `a.txt:1:${NONCE}`,
    ['query'],
  );
  const { calls, text } = await run('list the files, read the last one and search for x', [look, dir, slurp]);
  expect(calls).toEqual([
    ['list_directory {"directory":"."}'],
    ['slurp {"file_path":"b.txt"}', 'search_code {"query":"x"}'],
  ]);
  expect(text).toContain(NONCE);
});

test('any tool that the words speak of', async () => {
  const { calls, text } = await run("What's the weather in Oslo and Rome?", [...FILE_TOOLS, weather]);
  expect(calls).toEqual([['get_weather {"city":"Oslo"}', 'get_weather {"city":"Rome"}']]);
  expect(text).toContain(`Rome: 4 °C, ${NONCE}`);
  expect((await run('use get_weather with city=Bergen', [weather])).calls).toEqual([['get_weather {"city":"Bergen"}']]);
  expect((await run('get_weather {"city":"São Paulo"}', [weather])).calls).toEqual([
    ['get_weather {"city":"São Paulo"}'],
  ]);
  expect((await run('get_weather', [weather])).text).toContain('To use get_weather I need to know: city.');
  const convert = tool(
    'convert_currency',
    'Convert money',
    { amount: number, to: { enum: ['EUR', 'NOK'] } },
    () => NONCE,
  );
  expect((await run('convert 12.5 dollars to nok', [convert])).calls).toEqual([
    ['convert_currency {"amount":12.5,"to":"NOK"}'],
  ]);
});

test('arithmetic: with a calculator if there is one, else by itself', async () => {
  expect((await run('what is 6 * 7?', [])).text).toContain('6 * 7 = 42');
  expect((await run('What is (2 + 3) * 4 and 15% of 80?', [])).text).toMatch(
    /\(2 \+ 3\) \* 4 = 20\n\n15 \/ 100 \* 80 = 12/,
  );
  expect((await run('add 2 and 3, then subtract 1 from 10', [])).text).toMatch(/2 \+ 3 = 5\n\n10 - 1 = 9/);
  const calculator = tool('calculator', 'Evaluates an arithmetic expression', { expression: string }, () => NONCE);
  const { calls, text } = await run('what is six? And 6 times 7?', [calculator]);
  expect(calls).toEqual([['calculator {"expression":"6 * 7"}']]);
  expect(text).toContain(`6 * 7 is:\n\n${NONCE}`);
  const binary = tool(
    'calc',
    'Basic math',
    { a: number, b: number, operation: { enum: ['add', 'multiply'] } },
    () => '42',
  );
  expect((await run('6 * 7', [binary])).calls).toEqual([['calc {"a":6,"b":7,"operation":"multiply"}']]);
  const add = tool('add', 'Adds two numbers', { a: number, b: number }, () => '5');
  expect((await run('2 + 3', [add])).calls).toEqual([['add {"a":2,"b":3}']]);
  expect((await run('2 * 3', [add])).text).toContain('2 * 3 = 6');
});

test('the time: only with a tool, for a demo has no clock', async () => {
  const clock = tool('now', 'The current date and time', { timezone: string }, () => NONCE, []);
  expect((await run('What time is it?', [clock])).text).toContain(NONCE);
  expect((await run('What time is it?', FILE_TOOLS)).text).toContain(
    'I cannot tell the time: there is no tool for it here.',
  );
});

test('errors are told', async () => {
  const { text } = await run('read nothing.txt and a.txt', FILE_TOOLS);
  expect(text).toMatch(
    /read {"path":"nothing\.txt"} failed: Error: no such file: nothing\.txt\n\na\.txt says:\n\nalpha/,
  );
});

test('without a tool for a wish it says so', async () => {
  expect((await run('read a.txt', [glob])).text).toContain('I cannot read files: there is no tool for it here.');
});

test.each(['hello', 'Write a poem about the sea', '', '???', 'Who are you?'])(
  '%j: it says what it is, what it can do and how to use a real model',
  async (request) => {
    const { text, calls } = await run(request, FILE_TOOLS);
    expect(calls).toEqual([]);
    for (const words of [
      'demo model',
      'list the files',
      'read, glob, grep',
      'treadle chat --model',
      'OPENAI_API_KEY',
      'treadle.toml',
    ]) {
      expect(text).toContain(words);
    }
  },
);

test('what is understood is done, and the rest is told', async () => {
  const { text } = await run('read a.txt and sing me a song about it', FILE_TOOLS);
  expect(text).toContain('alpha');
  expect(text).toContain('I did not understand "sing me a song about it".');
});

test('a long result is quoted from both ends', async () => {
  const long = tool('read', 'Read a text file', { path: string }, () => `${NONCE}-1${'x'.repeat(50_000)}${NONCE}-2`);
  const { text } = await run('read a.txt', [long]);
  expect(text).toContain(`${NONCE}-1`);
  expect(text).toContain(`${NONCE}-2`);
  expect(text).toContain('characters left out');
  expect(text.length).toBeLessThan(5_000);
});

test('asked to confirm, it states its answer once more', async () => {
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

test('the words of the loop itself are no task', async () => {
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

test('input that arrives on the way is done too', async () => {
  const { messages } = await run('read a.txt', FILE_TOOLS);
  const { text, calls } = await run([...messages.slice(0, -1), userText('Also read b.txt')], FILE_TOOLS);
  expect(calls).toEqual([['read {"path":"b.txt"}']]);
  expect(text).toMatch(/alpha[^]*beta/);
});

test('a task after an answered one stands for itself', async () => {
  const { messages } = await run('read a.txt', FILE_TOOLS);
  const { text, calls } = await run([...messages, userText('read b.txt')], FILE_TOOLS);
  expect(calls).toEqual([['read {"path":"b.txt"}']]);
  expect(text).not.toContain('alpha');
});

test('tool choice none: no call, and it says what is left undone', async () => {
  const { text, calls } = await run('read a.txt', FILE_TOOLS, { toolChoice: 'none' });
  expect(calls).toEqual([]);
  expect(text).toContain('Not done, because no tool may be called now: read a.txt.');
});

test('tool choice required and named: a call is made even where the words ask for none', async () => {
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

test('tools that are not allowed are not called', async () => {
  const { calls, text } = await run('read a.txt', FILE_TOOLS, { allowedTools: ['glob'] });
  expect(calls).toEqual([]);
  expect(text).toContain('I cannot read files');
});

test('usage is an estimate, and free', async () => {
  const { usage, finish, model } = await replyTo([userText('x'.repeat(400))], []);
  expect(usage).toEqual({ inputTokens: 100, outputTokens: expect.any(Number), cost: 0 });
  expect(usage.outputTokens).toBeGreaterThan(50);
  expect({ finish, model }).toEqual({ finish: 'stop', model: 'demo' });
});

test('it streams word by word, and stops when it is cancelled', async () => {
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

test('a history that another model has left does not puzzle it', async () => {
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
  expect((await run(messages, FILE_TOOLS)).text).toContain('I do not know which file is meant');
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
])('a text of many characters is no trouble (%#)', async (words) => {
  await expect(run(words, [...FILE_TOOLS, weather])).resolves.toBeDefined();
  await expect(run(words, [weather], { toolChoice: 'required' })).resolves.toBeDefined();
});

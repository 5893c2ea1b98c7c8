import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { ToolSpec } from '@treadle/core';
import type { Tools } from './call-forms.ts';
import { textCallReader } from './text-calls.ts';

const spec = (name: string, properties: object = {}): ToolSpec => ({
  name,
  description: '',
  parameters: { type: 'object', properties },
});
const tools: Tools = new Map(
  [
    spec('get_weather', { city: { type: 'string' }, days: { type: 'integer' }, flags: { type: 'array' } }),
    spec('write', { path: { type: 'string' }, text: { type: 'string' }, raw: {} }),
    spec('now'),
  ].map((tool) => [tool.name, tool]),
);

type Piece = string | { readonly name: string; readonly arguments: string };

/** Joins adjacent texts. */
function read(chunks: Iterable<string>): Piece[] {
  const pieces: Piece[] = [];
  const reader = textCallReader(tools, {
    text(text) {
      // Called for every character of long texts, where `expect` would take most of the time.
      if (text === '') throw new Error('There is nothing to pass on.');
      const last = pieces.at(-1);
      if (typeof last === 'string') pieces[pieces.length - 1] = last + text;
      else pieces.push(text);
    },
    call: (call) => pieces.push(call),
  });
  for (const chunk of chunks) reader.feed(chunk);
  reader.end();
  return pieces;
}

const launch = { name: 'launch', arguments: '{}' };
const oslo = { name: 'get_weather', arguments: '{"city":"Oslo"}' };
const now = { name: 'now', arguments: '{}' };
const json = '{"name": "get_weather", "arguments": {"city": "Oslo"}}';

const CALLS: [string, string, Piece[]][] = [
  ['Hermes', `<tool_call>\n${json}\n</tool_call>`, [oslo]],
  ['Hermes, two calls', `<tool_call>${json}</tool_call>\n<tool_call>{"name":"now"}</tool_call>`, [oslo, now]],
  ['Hermes, a list', `<tool_call>[${json}, {"name":"now","arguments":{}}]</tool_call>`, [oslo, now]],
  ['Hermes without the closing tag', `<tool_call>\n${json}`, [oslo]],
  [
    'Hermes with text around',
    `Let me look.\n\n<tool_call>${json}</tool_call>\n\nDone.`,
    ['Let me look.', oslo, 'Done.'],
  ],
  [
    'Hermes, the closing tag inside a string',
    '<tool_call>{"name":"write","arguments":{"text":"</tool_call> \\" ```"}}</tool_call>',
    [{ name: 'write', arguments: '{"text":"</tool_call> \\" ```"}' }],
  ],
  [
    'Hermes, invalid JSON in the arguments',
    '<tool_call>{"name": "write", "arguments": {"text": "a" "b"}}</tool_call>',
    [{ name: 'write', arguments: '{"text": "a" "b"}' }],
  ],
  [
    'Hermes, an unterminated string before another call',
    `<tool_call>{"name": "write", "arguments": {"text": "a}}</tool_call> and <tool_call>${json}</tool_call>`,
    [{ name: 'write', arguments: '{"text": "a}' }, 'and', oslo],
  ],
  ['arguments as a string', '<tool_call>{"name":"now","arguments":"{}"}</tool_call>', [now]],
  [
    'parameters instead of arguments',
    '<tool_call>{"name":"get_weather","parameters":{"city":"Oslo"}}</tool_call>',
    [oslo],
  ],
  [
    'Qwen3-Coder',
    '<tool_call>\n<function=get_weather>\n<parameter=city>\nOslo\n</parameter>\n</function>\n</tool_call>',
    [oslo],
  ],
  [
    'Qwen3-Coder, values converted to the types of the schema',
    '<function=get_weather><parameter=city>5</parameter><parameter=days>5</parameter><parameter=flags>["a"]</parameter></function>',
    [{ name: 'get_weather', arguments: '{"city":"5","days":5,"flags":["a"]}' }],
  ],
  [
    'Qwen3-Coder, a value that does not fit stays a string',
    '<function=get_weather><parameter=days>soon</parameter></function>',
    [{ name: 'get_weather', arguments: '{"days":"soon"}' }],
  ],
  [
    'Qwen3-Coder, a value with lines and brackets',
    '<function=write>\n<parameter=text>\nif (a < b) {\n  "x"\n}\n</parameter>\n</function>',
    [{ name: 'write', arguments: JSON.stringify({ text: 'if (a < b) {\n  "x"\n}' }) }],
  ],
  ['Llama, an element with JSON', '<function=get_weather>{"city":"Oslo"}</function>', [oslo]],
  ['an element without the closing tag', '<function=get_weather><parameter=city>Oslo</parameter>', [oslo]],
  ['an element without parameters', '<function=now></function>', [now]],
  ['a code block', `Sure:\n\`\`\`json\n${json}\n\`\`\``, ['Sure:', oslo]],
  ['a code block in one line', `\`\`\`json ${json}\`\`\``, [oslo]],
  ['a code block without a language', `\`\`\`\n${json}\n\`\`\`\nBye.`, [oslo, 'Bye.']],
  ['a code block with a list', `\`\`\`json\n[${json}]\n\`\`\``, [oslo]],
  ['a code block with two calls', `\`\`\`json\n${json}\n{"name":"now","arguments":{}}\n\`\`\``, [oslo, now]],
  ['a code block around tags', `\`\`\`xml\n<tool_call>${json}</tool_call>\n\`\`\``, [oslo]],
  ['a code block without the closing fence', `\`\`\`json\n${json}`, [oslo]],
  [
    'a code block inside the arguments',
    '```json\n{"name":"write","arguments":{"text":"```js\\n1\\n```"}}\n```',
    [{ name: 'write', arguments: '{"text":"```js\\n1\\n```"}' }],
  ],
  ['bare JSON', json, [oslo]],
  ['bare JSON over several lines', '{\n  "name": "get_weather",\n  "arguments": {\n    "city": "Oslo"\n  }\n}', [oslo]],
  ['bare JSON after text', `I will look it up.\n${json}`, ['I will look it up.', oslo]],
  ['several bare JSON objects', `${json}\n{"name":"now","arguments":{}}`, [oslo, now]],
  ['a bare JSON list', `[${json}]`, [oslo]],
  ['Llama, bare JSON with a type', '{"type": "function", "name": "now", "parameters": {}}', [now]],
  ['Llama, after its marker', `<|python_tag|>${json}`, [oslo]],
  ['Mistral, a list after its marker', `[TOOL_CALLS] [${json}, {"name":"now","arguments":{}}]`, [oslo, now]],
  [
    'Mistral, names after its marker',
    'I look.\n[TOOL_CALLS]get_weather[ARGS]{"city":"Oslo"}[TOOL_CALLS]now[ARGS]{}',
    ['I look.', oslo, now],
  ],
  ['an unknown tool in tags', '<tool_call>{"name": "launch", "arguments": {}}</tool_call>', [launch]],
  [
    'an unknown tool in elements',
    '<function=launch></function> <function=fs.read><parameter=n>5</parameter></function>',
    [launch, { name: 'fs.read', arguments: '{"n":5}' }],
  ],
  ['an unknown tool in tags in a code block', '```xml\n<function=launch></function>\n```', [launch]],
  ['an unknown tool beside a known one in a list', `[{"name":"launch","arguments":{}}, ${json}]`, [launch, oslo]],
  ['an unknown tool in a list in tags', `<tool_call>[{"name":"launch"}, ${json}]</tool_call>`, [launch, oslo]],
  [
    'an unknown tool beside a known one in a code block',
    `\`\`\`json\n{"name":"launch","arguments":{}}\n${json}\n\`\`\``,
    [launch, oslo],
  ],
  [
    'after unterminated JSON',
    `{"name": "get_weather", "arguments": {\n\n<tool_call>${json}</tool_call>`,
    ['{"name": "get_weather", "arguments": {', oslo],
  ],
  ['inside invalid JSON', `{"name": so\n<tool_call>${json}</tool_call>\n}`, ['{"name": so', oslo, '}']],
  [
    'after an unterminated code block of JSON',
    `\`\`\`json\n{"name": "now"\n\n<tool_call>${json}</tool_call>`,
    ['```json\n{"name": "now"', oslo],
  ],
  [
    'after an unterminated code block of Python',
    `\`\`\`python\nprint(1)\n<tool_call>${json}</tool_call>\nSo.`,
    ['```python\nprint(1)', oslo, 'So.'],
  ],
  ['after an unterminated tag with a call', `<tool_call>${json}\n<tool_call>{"name":"now"}</tool_call>`, [oslo, now]],
  [
    'after an unterminated tag',
    `<tool_call>{"name": "wri\n<tool_call>${json}</tool_call>`,
    ['<tool_call>{"name": "wri', oslo],
  ],
  [
    'after an unterminated tag of another kind',
    '<tool_call>{"name": "wri\n<function=now></function>',
    ['<tool_call>{"name": "wri', now],
  ],
  ['after an unterminated element', '<function=now>\n<function=now></function>', [now, now]],
  [
    'after an opening tag in a sentence',
    `Write <function=name> or so.\n<tool_call>${json}</tool_call>`,
    ['Write <function=name> or so.', oslo],
  ],
  ['after a marker without a call', `[TOOL_CALLS] <tool_call>${json}</tool_call>`, ['[TOOL_CALLS]', oslo]],
  ['after a single back quote', `It\`s this: <tool_call>${json}</tool_call>`, ['It`s this:', oslo]],
  [
    'after a single back quote, with back quotes in the arguments',
    'It`s <function=write><parameter=text>`date`</parameter></function>\n`ok`',
    ['It`s', { name: 'write', arguments: '{"text":"`date`"}' }, '`ok`'],
  ],
  ['after inline code', `Use \`now\`, \`\`a \` b\`\`: <tool_call>${json}</tool_call>`, ['Use `now`, ``a ` b``:', oslo]],
];

const TEXTS: [string, string][] = [
  ['a sentence', 'The answer is 42.\n\n  Really.\n'],
  ['only white space', ' \n '],
  ['an unknown tool in a code block', '```json\n{"name": "launch", "arguments": {}}\n```'],
  ['an unknown tool in bare JSON', '{"name": "launch", "arguments": {}}'],
  ['unknown tools in a list', '[{"name": "launch", "arguments": {}}, {"name": "land", "arguments": {}}]'],
  ['an empty name', '<tool_call>{"name": "", "arguments": {}}</tool_call>'],
  ['a call in inline code', `I would write \`<tool_call>${json}</tool_call>\` to do that.`],
  ['a call over several lines in inline code', `\`<tool_call>\n${json}\n</tool_call>\` would do.`],
  [
    'a call and other text in inline code',
    `\`Use <function=now></function> then\` and \`\` <tool_call>${json}</tool_call> \`\`.`,
  ],
  [
    'a call inside a string of an answer in JSON',
    `{"name": "Ada", "note": ${JSON.stringify(`<tool_call>${json}</tool_call>`)}}`,
  ],
  ['a call and something else in a list', `[${json}, 5]`],
  ['a call and text in a code block', `\`\`\`json\n${json}\nor so\n\`\`\``],
  ['Mistral, an unknown tool', '[TOOL_CALLS]launch[ARGS]{}'],
  ['a marker alone', '[TOOL_CALLS] and <|python_tag|>\n<|python_tag|>print(1)\n[TOOL_CALLS]'],
  ['a name alone', '{"name": "now"}'],
  ['an answer in JSON', '{"city": "Oslo", "degrees": 5}\n'],
  ['an answer in JSON with a name', '{"name": "Ada", "age": 36}'],
  ['JSON in the middle of a line', `Write ${json} to call it.`],
  ['the tag in a sentence', 'Write <tool_call> and then JSON.'],
  ['a call in a code block of Python', '```python\n<tool_call>{"name":"now"}</tool_call>\n```\n'],
  ['comparisons', 'a < b, <function of x>, <invoke me>, [1], {2}\n[3]\n{4}\n'],
  ['the beginning of a tag', 'It ends with <tool_ca'],
  ['the beginning of a call', '<tool_call>{"name": "now", "argu'],
  ['the beginning of a code block', '```json\n{"name": "now", "argu'],
  ['back quotes', '`` ``` ` ````\n````\n'],
  ['arguments that are a number', '<tool_call>{"name":"now","arguments":5}</tool_call>'],
  ['an element with text instead of parameters', '<function=now>what</function>'],
  ['an unterminated parameter', '<function=get_weather><parameter=city>Oslo'],
  ['an empty list', '[]\n<tool_call>[]</tool_call>'],
];

test.each(CALLS)('4, 6: finds the calls: %s', (_, text, pieces) => {
  expect(read([text])).toEqual(pieces);
});

test.each(TEXTS)('2, 5: leaves the text unchanged: %s', (_, text) => {
  expect(read([text])).toEqual([text]);
});

test.each([...CALLS, ...TEXTS].map(([name, text]): [string, string] => [name, text]))(
  '1: the result does not depend on the chunks: %s',
  (_, text) => {
    const whole = read([text]);
    expect(read(text)).toEqual(whole);
    for (let cut = 1; cut < text.length; cut++) expect(read([text.slice(0, cut), text.slice(cut)])).toEqual(whole);
  },
);

test('1, 2: any text without calls stays unchanged, and the result does not depend on the chunks', () => {
  const bits = ['<tool_call>', '</tool_call>', '```', '```json', '\n', '{', '}', '[', ']', '"', '\\', ' ', 'a', json];
  bits.push('`', '<function=now>', '</function>', '<parameter=a>', '</parameter>', '[TOOL_CALLS]', 'now[ARGS]');
  fc.assert(
    fc.property(fc.array(fc.constantFrom(...bits), { maxLength: 25 }), (texts) => {
      const text = texts.join('');
      const pieces = read([text]);
      expect(read(text)).toEqual(pieces);
      if (pieces.every((piece) => typeof piece === 'string')) expect(pieces.join('')).toBe(text);
    }),
    { numRuns: 2_000 },
  );
});

test('3: passes plain text on at once and holds only what may be a call', () => {
  const parts: string[] = [];
  const reader = textCallReader(tools, {
    text: (text) => parts.push(text),
    call: ({ name }) => parts.push(`(${name})`),
  });
  const after = (chunk: string): string => {
    parts.length = 0;
    reader.feed(chunk);
    return parts.join('|');
  };
  expect(after('Look: a <')).toBe('Look: a');
  expect(after(' b and <tool')).toBe(' < b and');
  expect(after('_call> are')).toBe(' <tool_call> are');
  expect(after('\n{"city":')).toBe('\n{"city":');
  expect(after('"Oslo"}\n```py')).toBe('"Oslo"}');
  expect(after('thon\nx')).toBe('\n```python\nx');
  expect(after('\n```\n<tool_call>{"name":')).toBe('\n```');
  expect(after('"now"}</tool_cal')).toBe('');
  expect(after('l>')).toBe('(now)');
});

test.each([
  ['a call', (size: number) => `<tool_call>{"name":"write","arguments":{"text":"${'x'.repeat(size)}"}}</tool_call>`],
  ['an unterminated call', (size: number) => `<tool_call>{"name":"write","arguments":{"text":"${'x'.repeat(size)}`],
  ['opening tags', (size: number) => '<tool_call>{"'.repeat(size / 13)],
  ['unterminated strings', (size: number) => '<tool_call>{"}</tool_call>"'.repeat(size / 27)],
  ['code blocks', (size: number) => '```json\n{"x" "\n'.repeat(size / 15)],
  ['brackets', (size: number) => '\n{"name":['.repeat(size / 10)],
  ['inline code with tags', (size: number) => '`<tool_call>{"'.repeat(size / 14)],
  ['elements', (size: number) => '<function=a> <function="b">'.repeat(size / 27)],
  ['openings of all kinds', (size: number) => '<tool_call>{<function=a>\n[TOOL_CALLS]b[ARGS]{"'.repeat(size / 44)],
  ['white space', (size: number) => `a${' '.repeat(size)}b`],
])('7: takes linear time: %s', (_, make) => {
  const text = make(400_000);
  // Quadratic time would take minutes for 400,000 characters. The time limit of a test is five seconds.
  read(text);
});

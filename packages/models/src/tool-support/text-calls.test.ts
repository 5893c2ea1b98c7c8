import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { ToolSpec } from '@treadle/core';
import type { Tools } from './call-forms.ts';
import { textCalls } from './text-calls.ts';

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

/** Texts that came one after the other are one. */
function read(chunks: Iterable<string>): Piece[] {
  const pieces: Piece[] = [];
  const reading = textCalls(tools, {
    text(text) {
      expect(text).not.toBe('');
      const last = pieces.at(-1);
      if (typeof last === 'string') pieces[pieces.length - 1] = last + text;
      else pieces.push(text);
    },
    call: (call) => pieces.push(call),
  });
  for (const chunk of chunks) reading.feed(chunk);
  reading.end();
  return pieces;
}

const launch = { name: 'launch', arguments: '{}' };
const oslo = { name: 'get_weather', arguments: '{"city":"Oslo"}' };
const now = { name: 'now', arguments: '{}' };
const json = '{"name": "get_weather", "arguments": {"city": "Oslo"}}';

const CALLS: [string, string, Piece[]][] = [
  ['Hermes', `<tool_call>\n${json}\n</tool_call>`, [oslo]],
  ['Hermes, two', `<tool_call>${json}</tool_call>\n<tool_call>{"name":"now"}</tool_call>`, [oslo, now]],
  ['Hermes, a list', `<tool_call>[${json}, {"name":"now","arguments":{}}]</tool_call>`, [oslo, now]],
  ['Hermes without its end', `<tool_call>\n${json}`, [oslo]],
  [
    'Hermes with text around',
    `Let me look.\n\n<tool_call>${json}</tool_call>\n\nDone.`,
    ['Let me look.', oslo, 'Done.'],
  ],
  [
    'Hermes, its end inside a string',
    '<tool_call>{"name":"write","arguments":{"text":"</tool_call> \\" ```"}}</tool_call>',
    [{ name: 'write', arguments: '{"text":"</tool_call> \\" ```"}' }],
  ],
  [
    'Hermes, broken in the arguments',
    '<tool_call>{"name": "write", "arguments": {"text": "a" "b"}}</tool_call>',
    [{ name: 'write', arguments: '{"text": "a" "b"}' }],
  ],
  [
    'Hermes, a quote that never ends, and another call',
    `<tool_call>{"name": "write", "arguments": {"text": "a}}</tool_call> and <tool_call>${json}</tool_call>`,
    [{ name: 'write', arguments: '{"text": "a}' }, 'and', oslo],
  ],
  ['arguments as a text', '<tool_call>{"name":"now","arguments":"{}"}</tool_call>', [now]],
  ['parameters', '<tool_call>{"name":"get_weather","parameters":{"city":"Oslo"}}</tool_call>', [oslo]],
  [
    'an element',
    '<tool_call>\n<function=get_weather>\n<parameter=city>\nOslo\n</parameter>\n</function>\n</tool_call>',
    [oslo],
  ],
  [
    'elements by what the tool wants',
    '<function=get_weather><parameter=city>5</parameter><parameter=days>5</parameter><parameter=flags>["a"]</parameter></function>',
    [{ name: 'get_weather', arguments: '{"city":"5","days":5,"flags":["a"]}' }],
  ],
  [
    'what does not fit stays text',
    '<function=get_weather><parameter=days>soon</parameter></function>',
    [{ name: 'get_weather', arguments: '{"days":"soon"}' }],
  ],
  [
    'an element with lines and brackets',
    '<function=write>\n<parameter=text>\nif (a < b) {\n  "x"\n}\n</parameter>\n</function>',
    [{ name: 'write', arguments: JSON.stringify({ text: 'if (a < b) {\n  "x"\n}' }) }],
  ],
  ['an element with JSON', '<function=get_weather>{"city":"Oslo"}</function>', [oslo]],
  ['an element without its end', '<function=get_weather><parameter=city>Oslo</parameter>', [oslo]],
  ['an element without parameters', '<function=now></function>', [now]],
  ['invoke', '<invoke name="get_weather"><parameter name="city">Oslo</parameter></invoke>', [oslo]],
  [
    'several in one',
    '<function_calls>\n<invoke name="get_weather">\n<parameter name="city">Oslo</parameter>\n</invoke>\n<invoke name="now">\n</invoke>\n</function_calls>',
    [oslo, now],
  ],
  ['a fence', `Sure:\n\`\`\`json\n${json}\n\`\`\``, ['Sure:', oslo]],
  ['a fence of one line', `\`\`\`json ${json}\`\`\``, [oslo]],
  ['a fence without a language', `\`\`\`\n${json}\n\`\`\`\nBye.`, [oslo, 'Bye.']],
  ['a fence with a list', `\`\`\`json\n[${json}]\n\`\`\``, [oslo]],
  ['a fence with two', `\`\`\`json\n${json}\n{"name":"now","arguments":{}}\n\`\`\``, [oslo, now]],
  ['a fence around tags', `\`\`\`xml\n<tool_call>${json}</tool_call>\n\`\`\``, [oslo]],
  ['a fence without its end', `\`\`\`json\n${json}`, [oslo]],
  [
    'a fence inside the arguments',
    '```json\n{"name":"write","arguments":{"text":"```js\\n1\\n```"}}\n```',
    [{ name: 'write', arguments: '{"text":"```js\\n1\\n```"}' }],
  ],
  ['bare', json, [oslo]],
  ['bare over lines', '{\n  "name": "get_weather",\n  "arguments": {\n    "city": "Oslo"\n  }\n}', [oslo]],
  ['bare after text', `I will look it up.\n${json}`, ['I will look it up.', oslo]],
  ['bare, several', `${json}\n{"name":"now","arguments":{}}`, [oslo, now]],
  ['a bare list', `[${json}]`, [oslo]],
  ['as the API writes it', '{"type":"function","function":{"name":"now","arguments":"{}"}}', [now]],
  ['another name in tags', '<tool_call>{"name": "launch", "arguments": {}}</tool_call>', [launch]],
  [
    'another name in elements',
    '<function=launch></function> <invoke name="fs.read"><parameter name="n">5</parameter></invoke>',
    [launch, { name: 'fs.read', arguments: '{"n":5}' }],
  ],
  ['another name in tags in a fence', '```xml\n<function=launch></function>\n```', [launch]],
  ['another name in a list', `[{"name":"launch","arguments":{}}, ${json}]`, [launch, oslo]],
  ['another name in a list in tags', `<tool_call>[{"name":"launch"}, ${json}]</tool_call>`, [launch, oslo]],
  ['another name in a fence with two', `\`\`\`json\n{"name":"launch","arguments":{}}\n${json}\n\`\`\``, [launch, oslo]],
  [
    'after JSON that never ends',
    `{"name": "get_weather", "arguments": {\n\n<tool_call>${json}</tool_call>`,
    ['{"name": "get_weather", "arguments": {', oslo],
  ],
  ['inside JSON that is none', `{"name": so\n<tool_call>${json}</tool_call>\n}`, ['{"name": so', oslo, '}']],
  [
    'after a fence that never ends',
    `\`\`\`json\n{"name": "now"\n\n<tool_call>${json}</tool_call>`,
    ['```json\n{"name": "now"', oslo],
  ],
  [
    'after code that never ends',
    `\`\`\`python\nprint(1)\n<tool_call>${json}</tool_call>\nSo.`,
    ['```python\nprint(1)', oslo, 'So.'],
  ],
  ['after tags that never end', `<tool_call>${json}\n<tool_call>{"name":"now"}</tool_call>`, [oslo, now]],
  ['after half a tag', `<tool_call>{"name": "wri\n<tool_call>${json}</tool_call>`, ['<tool_call>{"name": "wri', oslo]],
  [
    'after half a tag of another kind',
    '<tool_call>{"name": "wri\n<function=now></function>',
    ['<tool_call>{"name": "wri', now],
  ],
  ['after an element that never ends', '<function=now>\n<function=now></function>', [now, now]],
  [
    'after an element in words',
    `Write <function=name> or so.\n<tool_call>${json}</tool_call>`,
    ['Write <function=name> or so.', oslo],
  ],
  ['after a back quote', `It\`s this: <tool_call>${json}</tool_call>`, ['It`s this:', oslo]],
  [
    'after a back quote, with others in it',
    'It`s <function=write><parameter=text>`date`</parameter></function>\n`ok`',
    ['It`s', { name: 'write', arguments: '{"text":"`date`"}' }, '`ok`'],
  ],
  [
    'after quoted words',
    `Use \`now\`, \`\`a \` b\`\`: <tool_call>${json}</tool_call>`,
    ['Use `now`, ``a ` b``:', oslo],
  ],
  ['all calls of a message', '{"tool_calls":[{"id":"1","function":{"name":"now","arguments":"{}"}}]}', [now]],
];

const TEXTS: [string, string][] = [
  ['words', 'The answer is 42.\n\n  Really.\n'],
  ['nothing but space', ' \n '],
  ['another name in a fence', '```json\n{"name": "launch", "arguments": {}}\n```'],
  ['another name, bare', '{"name": "launch", "arguments": {}}'],
  ['other names in a list', '[{"name": "launch", "arguments": {}}, {"name": "land", "arguments": {}}]'],
  ['no name', '<tool_call>{"name": "", "arguments": {}}</tool_call>'],
  ['in back quotes', `I would write \`<tool_call>${json}</tool_call>\` to do that.`],
  ['in back quotes, over lines', `\`<tool_call>\n${json}\n</tool_call>\` would do.`],
  ['in back quotes with words', `\`Use <function=now></function> then\` and \`\` <tool_call>${json}</tool_call> \`\`.`],
  ['in an answer in JSON', `{"name": "Ada", "note": ${JSON.stringify(`<tool_call>${json}</tool_call>`)}}`],
  ['a call and something else in a list', `[${json}, 5]`],
  ['a call and words in a fence', `\`\`\`json\n${json}\nor so\n\`\`\``],
  ['a name alone', '{"name": "now"}'],
  ['an answer in JSON', '{"city": "Oslo", "degrees": 5}\n'],
  ['an answer in JSON with a name', '{"name": "Ada", "age": 36}'],
  ['JSON in the middle of a line', `Write ${json} to call it.`],
  ['the tag in words', 'Write <tool_call> and then JSON.'],
  ['code', '```python\n<tool_call>{"name":"now"}</tool_call>\n```\n'],
  ['comparisons', 'a < b, <function of x>, <invoke me>, [1], {2}\n[3]\n{4}\n'],
  ['half a tag', 'It ends with <tool_ca'],
  ['half a call', '<tool_call>{"name": "now", "argu'],
  ['half a fence', '```json\n{"name": "now", "argu'],
  ['back quotes', '`` ``` ` ````\n````\n'],
  ['arguments that are no object', '<tool_call>{"name":"now","arguments":5}</tool_call>'],
  ['an element with other things', '<function=now>what</function>'],
  ['an element that never ends', '<function=get_weather><parameter=city>Oslo'],
  ['an empty list', '[]\n<tool_call>[]</tool_call>'],
];

test.each(CALLS)('4, 6: a call is found: %s', (_, text, pieces) => {
  expect(read([text])).toEqual(pieces);
});

test.each(TEXTS)('2, 5: text stays text: %s', (_, text) => {
  expect(read([text])).toEqual([text]);
});

test.each([...CALLS, ...TEXTS].map(([name, text]): [string, string] => [name, text]))(
  '1: however it is cut, the same comes out: %s',
  (_, text) => {
    const whole = read([text]);
    expect(read(text)).toEqual(whole);
    for (let cut = 1; cut < text.length; cut++) expect(read([text.slice(0, cut), text.slice(cut)])).toEqual(whole);
  },
);

test('1, 2: whatever is written, nothing is lost but white space and calls, and cuts do not matter', () => {
  const bits = ['<tool_call>', '</tool_call>', '```', '```json', '\n', '{', '}', '[', ']', '"', '\\', ' ', 'a', json];
  bits.push('`', '<function=now>', '</function>', '<invoke name="now">', '</invoke>', '<parameter=a>', '</parameter>');
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

test('3: what is plainly text is passed on at once, and only what may be a call is held', () => {
  const heard: string[] = [];
  const reading = textCalls(tools, { text: (text) => heard.push(text), call: ({ name }) => heard.push(`(${name})`) });
  const after = (chunk: string): string => {
    heard.length = 0;
    reading.feed(chunk);
    return heard.join('|');
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
  ['a call that never ends', (size: number) => `<tool_call>{"name":"write","arguments":{"text":"${'x'.repeat(size)}`],
  ['beginnings', (size: number) => '<tool_call>{"'.repeat(size / 13)],
  ['quotes that never end', (size: number) => '<tool_call>{"}</tool_call>"'.repeat(size / 27)],
  ['fences', (size: number) => '```json\n{"x" "\n'.repeat(size / 15)],
  ['brackets', (size: number) => '\n{"name":['.repeat(size / 10)],
  ['quotes with tags', (size: number) => '`<tool_call>{"'.repeat(size / 14)],
  ['elements', (size: number) => '<function=a> <invoke name="b">'.repeat(size / 30)],
  [
    'all kinds of tags',
    (size: number) => '<tool_call>{<function_call>{<invoke name="b"><function=a>'.repeat(size / 58),
  ],
  ['white space', (size: number) => `a${' '.repeat(size)}b`],
])('7: the work grows with the text and not with its square: %s', (_, make) => {
  const text = make(400_000);
  // 400,000 characters squared would take minutes; the time limit of a test is five seconds.
  read(text);
});

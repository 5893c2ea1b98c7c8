import type { ContentBlockParam, MessageParam } from '@anthropic-ai/sdk/resources/messages';
import {
  userText,
  type AssistantPart,
  type Message,
  type ReasoningPart,
  type ResultBlock,
  type ToolResult,
  type UserBlock,
} from '@treadle/core';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { text } from '../../test/parts.ts';
import { bytesOf, readBody, request } from '../../test/request.ts';
import { anthropicProtocol } from './anthropic.ts';
import { anthropicCallId } from './messages.ts';
import { traitsOf } from './models.ts';

const BODY = { model: 'm', stream: true, signer: 'anthropic', ...traitsOf('m') };

const protocol = anthropicProtocol({ ...BODY, thinking: 'budget', cache: true });

function bodyOf(messages: readonly Message[]): { readonly messages: readonly MessageParam[] } {
  const pieces = protocol.body(request({ messages, settings: { reasoning: 'low' } }));
  return readBody(pieces) as { messages: unknown } as { messages: MessageParam[] };
}

const messagesOf = (...messages: Message[]): readonly MessageParam[] => bodyOf(messages).messages;
const call = (id: string, json = '{}', name = 'shell'): AssistantPart => ({
  type: 'tool-call',
  id,
  name,
  arguments: json,
});
const result = (callId: string, content: readonly ResultBlock[] = [], isError = false): ToolResult => ({
  type: 'tool-result',
  callId,
  name: 'shell',
  content,
  isError,
});
const said = (...content: AssistantPart[]): Message => ({ role: 'assistant', content });
const results = (...content: ToolResult[]): Message => ({ role: 'tool', content });
const png: ResultBlock & UserBlock = {
  type: 'image',
  mediaType: 'image/png',
  source: { type: 'data', data: 'AAAA' },
};

const blocksOf = (message: MessageParam | undefined): readonly ContentBlockParam[] =>
  message?.content as readonly ContentBlockParam[];

test('merges results and user messages after them, results first', () => {
  expect(
    messagesOf(
      userText('a'),
      userText('b'),
      said(text('One moment.'), call('c1'), call('c2')),
      results(result('c1', [text('ok')]), result('c2', [])),
      userText('Hurry.'),
      userText('Please.'),
      said(text('Done.')),
      userText('Thanks.'),
    ),
  ).toEqual([
    { role: 'user', content: [text('a'), text('b')] },
    {
      role: 'assistant',
      content: [
        text('One moment.'),
        { type: 'tool_use', id: 'c1', name: 'shell', input: {} },
        { type: 'tool_use', id: 'c2', name: 'shell', input: {} },
      ],
    },
    {
      role: 'user',
      content: [
        { type: 'tool_result', tool_use_id: 'c1', content: [text('ok')] },
        { type: 'tool_result', tool_use_id: 'c2' },
        text('Hurry.'),
        text('Please.'),
      ],
    },
    { role: 'assistant', content: [text('Done.')] },
    { role: 'user', content: [text('Thanks.')] },
  ] satisfies MessageParam[]);
});

test('writes the same turn by turn as all at once', () => {
  const whole = [userText('a'), said(call('c')), results(result('c')), userText('b'), said(text('d')), userText('e')];
  const growing: Message[] = [];
  for (const message of whole) {
    growing.push(message);
    expect(bodyOf(growing)).toEqual(bodyOf([...growing]));
  }
});

test('omits blank text, and replaces an empty user message by a note', () => {
  expect(messagesOf({ role: 'user', content: [text(''), text('a'), text(' \n')] })).toEqual([
    { role: 'user', content: [text('a')] },
  ]);
  expect(
    messagesOf({ role: 'user', content: [] }, said(text(''), call('c')), results(result('c', [text('')]))),
  ).toEqual([
    { role: 'user', content: [text('(The user sent an empty message.)')] },
    { role: 'assistant', content: [{ type: 'tool_use', id: 'c', name: 'shell', input: {} }] },
    { role: 'user', content: [{ type: 'tool_result', tool_use_id: 'c' }] },
  ]);
  expect(messagesOf(userText('a'), said(text(' ')), userText('b'))).toEqual([
    { role: 'user', content: [text('a'), text('b')] },
  ]);
});

test('starts and ends with the user, and trims trailing white space of the assistant', () => {
  expect(messagesOf(said(text('Welcome. \n'), text(' ')))).toEqual([
    { role: 'user', content: [text('(The conversation begins here.)')] },
    { role: 'assistant', content: [text('Welcome.')] },
    { role: 'user', content: [text('Continue.')] },
  ]);
  expect(blocksOf(messagesOf(userText('a'), said(text('b ')), said(text('c ')))[1])).toEqual([text('b'), text('c')]);
});

test.each([
  ['', {}],
  [' ', {}],
  ['{"a": [1, "b"]}', { a: [1, 'b'] }],
  ['{"a": ', { invalid_json: '{"a": ' }],
  ['[1]', { invalid_json: '[1]' }],
  ['null', { invalid_json: 'null' }],
  ['"text"', { invalid_json: '"text"' }],
])('sends the arguments %j as %j', (json, input) => {
  expect(blocksOf(messagesOf(userText('a'), said(call('c', json)))[1])).toMatchObject([{ input }]);
});

test('sends arguments back exactly as the model wrote them', () => {
  const json = '{ "id": 12345678901234567890, "id": 1.0 }';
  const messages = [userText('a'), said(call('c', json)), results(result('c'))];
  const pieces = protocol.body(request({ messages }));
  expect(Buffer.from(bytesOf(pieces)).toString()).toContain(`"input":${json}}`);
});

test('sends signed thoughts of this API back exactly and in order, and no others', () => {
  const own = (text: string, signature: string): ReasoningPart => ({
    type: 'reasoning',
    text,
    signature,
    protocol: 'anthropic',
  });
  expect(
    blocksOf(
      messagesOf(
        userText('a'),
        said(
          own(' Hm.\n', 's1'),
          own('', 'redacted_thinking:ZA=='),
          own('', 's2'),
          { type: 'reasoning', text: 'of another', signature: 's', protocol: 'openai-responses' },
          { type: 'reasoning', text: 'unsigned', protocol: 'anthropic' },
          { type: 'reasoning', text: 'of nobody', signature: 's' },
          text('b'),
          own('between', 's3'),
          call('c'),
          own('cut off after it', 's4'),
        ),
        results(result('c')),
      )[1],
    ),
  ).toEqual([
    { type: 'thinking', thinking: ' Hm.\n', signature: 's1' },
    { type: 'redacted_thinking', data: 'ZA==' },
    { type: 'thinking', thinking: '', signature: 's2' },
    text('b'),
    { type: 'thinking', thinking: 'between', signature: 's3' },
    { type: 'tool_use', id: 'c', name: 'shell', input: {} },
  ]);
  expect(messagesOf(userText('a'), said(own('Hm', 's')), userText('b'))).toHaveLength(1);
});

test('with a budget, treats two consecutive assistant messages as one', () => {
  const own: AssistantPart = { type: 'reasoning', text: 'Hm', signature: 's', protocol: 'anthropic' };
  const after = (...messages: Message[]): unknown => bodyOf([userText('a'), ...messages, results(result('c'))]);
  expect(after(said(text('b')), said(own, call('c')))).not.toHaveProperty('thinking');
  expect(after(said(own, text('b')), said(call('c')))).toHaveProperty('thinking');
});

test('sends images and files of the user', () => {
  const file = (mediaType: string, data: string, name?: string): UserBlock => ({
    type: 'file',
    mediaType,
    ...(name !== undefined && { name }),
    source: { type: 'data', data: Buffer.from(data).toString('base64') },
  });
  const at = (mediaType: string): UserBlock => ({
    type: 'file',
    mediaType,
    source: { type: 'url', url: 'https://e.org/a' },
  });
  expect(
    messagesOf({
      role: 'user',
      content: [
        png,
        { type: 'image', mediaType: 'image/jpg', source: { type: 'data', data: 'BBBB' } },
        { type: 'image', mediaType: 'image/png', source: { type: 'url', url: 'https://e.org/a.png' } },
        { type: 'image', mediaType: 'image/tiff', source: { type: 'data', data: 'AAAA' } },
        file('application/pdf', '%PDF', 'a.pdf'),
        at('application/pdf'),
        file('text/csv', 'a;ø'),
        file('application/json', '{}', 'a.json'),
        file('text/plain', ' '),
        file('application/zip', 'PK', 'a.zip'),
        at('text/plain'),
      ],
    }),
  ).toEqual([
    {
      role: 'user',
      content: [
        { type: 'image', source: { type: 'base64', media_type: 'image/png', data: 'AAAA' } },
        { type: 'image', source: { type: 'base64', media_type: 'image/jpeg', data: 'BBBB' } },
        { type: 'image', source: { type: 'url', url: 'https://e.org/a.png' } },
        text(expect.stringContaining('image/tiff') as string),
        {
          type: 'document',
          source: { type: 'base64', media_type: 'application/pdf', data: 'JVBERg==' },
          title: 'a.pdf',
        },
        { type: 'document', source: { type: 'url', url: 'https://e.org/a' } },
        { type: 'document', source: { type: 'text', media_type: 'text/plain', data: 'a;ø' } },
        { type: 'document', source: { type: 'text', media_type: 'text/plain', data: '{}' }, title: 'a.json' },
        text(expect.stringContaining('text/plain') as string),
        text(expect.stringContaining('a.zip') as string),
        text(expect.stringContaining('https://e.org/a') as string),
      ],
    },
  ] satisfies MessageParam[]);
});

test('sends images inside results, and a text with every error', () => {
  const [, , answers] = messagesOf(
    userText('a'),
    said(call('1'), call('2'), call('3'), call('4'), call('5')),
    results(
      result('1', [text('See:'), png]),
      result('2', [{ type: 'error', text: 'no such file' }], true),
      result('3', [], true),
      result('4', [{ type: 'error', text: 'half done' }, png], true),
      result('5', [{ type: 'error', text: 'a warning' }]),
    ),
  );
  const image = { type: 'image', source: { type: 'base64', media_type: 'image/png', data: 'AAAA' } };
  const failedNote = text('The call failed.');
  expect(blocksOf(answers)).toEqual([
    { type: 'tool_result', tool_use_id: '1', content: [text('See:'), image] },
    { type: 'tool_result', tool_use_id: '2', content: [text('no such file')], is_error: true },
    { type: 'tool_result', tool_use_id: '3', content: [failedNote], is_error: true },
    { type: 'tool_result', tool_use_id: '4', content: [failedNote, text('half done'), image] },
    { type: 'tool_result', tool_use_id: '5', content: [text('a warning')] },
  ]);
});

test('replaces invalid ids by unique valid ones, the same for a call and its result', () => {
  const ids = [
    'call|fc_1',
    'call_fc_1',
    'call fc_1',
    '',
    'ø',
    '\ud83d',
    '\ud83e',
    'x'.repeat(65),
    anthropicCallId('ø'),
  ];
  const [, calls, answers] = messagesOf(
    userText('a'),
    said(...ids.map((id) => call(id))),
    results(...ids.map((id) => result(id))),
  );
  const sent = blocksOf(calls).map((block) => (block.type === 'tool_use' ? block.id : ''));
  expect(new Set(sent).size).toBe(ids.length);
  for (const id of sent) expect(id).toMatch(/^[a-zA-Z0-9_-]{1,64}$/);
  expect(sent[1]).toBe('call_fc_1');
  expect(blocksOf(answers).map((block) => (block.type === 'tool_result' ? block.tool_use_id : ''))).toEqual(sent);
});

test('gives a repeated id, in a later turn or the same one, another id on the wire', () => {
  const turn = (n: string): Message[] => [
    said(call('call_0', `{"n":${n}}`), call('call_0', `{"m":${n}}`)),
    results(result('call_0', [text(`n${n}`)]), result('call_0', [text(`m${n}`)])),
  ];
  const wire = messagesOf(userText('a'), ...turn('1'), ...turn('2'));
  const sent = wire.flatMap((message) =>
    blocksOf(message).flatMap((block) => (block.type === 'tool_use' ? block.id : [])),
  );
  expect(sent[0]).toBe('call_0');
  expect(new Set(sent).size).toBe(4);
  expect(blocksOf(wire[4])).toMatchObject([
    { tool_use_id: sent[2], content: [text('n2')] },
    { tool_use_id: sent[3], content: [text('m2')] },
  ]);
});

// ── Any history ──────────────────────────────────────────────────────────────────────────────────────────────────────

const anyString = fc.oneof(
  fc.constantFrom('', ' ', '\n', 'a', 'b ', '\ud83d'),
  fc.string({ unit: 'binary', maxLength: 9 }),
);
const anyText = anyString.map(text);
const image = fc.constantFrom<ResultBlock & UserBlock>(png, { ...png, mediaType: 'image/bmp' } as typeof png);
const anyFile = fc.constantFrom('application/pdf', 'text/plain', 'x/y').chain((mediaType) =>
  anyString.map((data): ResultBlock & UserBlock => ({
    type: 'file',
    mediaType,
    source: { type: 'data', data: Buffer.from(`${data}%`).toString('base64') },
  })),
);
const thoughts = fc.record({
  type: fc.constant('reasoning' as const),
  text: anyString,
  signature: fc.constantFrom('c2ln', 'redacted_thinking:ZA=='),
  protocol: fc.constantFrom('anthropic', 'openai-responses'),
});
const anyCall = fc.record({
  type: fc.constant('tool-call' as const),
  id: fc.oneof(fc.constantFrom('', 'call_0', 'a|b'), fc.string({ unit: 'binary', maxLength: 4 })),
  name: fc.oneof(fc.constant('shell'), fc.string({ maxLength: 4 })),
  arguments: fc.oneof(fc.json(), anyString),
});
const errorBlock = anyString.map((text): ResultBlock => ({ type: 'error', text }));
const user = fc
  .array(fc.oneof(anyText, image, anyFile), { maxLength: 3 })
  .map((content): Message[] => [{ role: 'user', content }]);
const turn = fc
  .tuple(
    fc.array(fc.oneof(anyText, thoughts, anyCall), { maxLength: 5 }),
    fc.infiniteStream(
      fc.tuple(fc.array(fc.oneof(anyText, errorBlock, image, anyFile), { maxLength: 3 }), fc.boolean()),
    ),
  )
  .map(([content, outcomes]): Message[] => {
    const calls = content.filter((part) => part.type === 'tool-call');
    if (calls.length === 0) return [{ role: 'assistant', content }];
    const answers = calls.map(({ id, name }): ToolResult => {
      const [[blocks, isError]] = [...outcomes.take(1)] as [[ResultBlock[], boolean]];
      return { type: 'tool-result', callId: id, name, content: blocks, isError };
    });
    return [
      { role: 'assistant', content },
      { role: 'tool', content: answers },
    ];
  });
const anyHistory = fc.array(fc.oneof(user, turn), { minLength: 1, maxLength: 8 }).map((parts) => parts.flat());

test('any history: roles alternate, each call has one result in the next message, and no text is empty', () => {
  fc.assert(
    fc.property(anyHistory, (history) => {
      const body = bodyOf(history);
      const { messages } = body;
      messages.forEach(({ role }, index) => expect(role).toBe(index % 2 === 0 ? 'user' : 'assistant'));
      messages.forEach((message, index) => {
        expect(blocksOf(message).length).toBeGreaterThan(0);
        const calls = blocksOf(message).flatMap((block) => (block.type === 'tool_use' ? block.id : []));
        const next = blocksOf(messages[index + 1]) ?? [];
        if (message.role === 'assistant') {
          expect(next.slice(0, calls.length)).toMatchObject(
            calls.map((id) => ({ type: 'tool_result', tool_use_id: id })),
          );
          expect(next.slice(calls.length).every(({ type }) => type !== 'tool_result')).toBe(true);
        }
        for (const block of blocksOf(message)) if (block.type === 'text') expect(block.text.trim()).not.toBe('');
      });
      expect(JSON.stringify(body)).not.toMatch(/[^\\](\\\\)*\\ud[89a-f]/);
    }),
    { numRuns: 500 },
  );
});

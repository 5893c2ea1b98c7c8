import { createSecretKey } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import {
  runLoop,
  tool,
  type AssistantPart,
  type Event,
  type Finish,
  type Item,
  type ModelError,
  type ResultBlock,
  type TokenLogprob,
  type Waiting,
} from '@treadle/core';
import { scriptedModel, type ScriptStep } from '@treadle/core/testing';
import {
  createdResponse,
  RESPONSE_ID,
  responseOutput,
  type ResponseOutput,
  type ResponseOutputOptions,
} from '../../../test/response.ts';
import { checkStream, type WireEvent } from '../../../test/stream-rules.ts';
import { reasoningSeal } from './reasoning-seal.ts';
import type { MessageItem } from './wire.ts';
import type { CallKinds } from '../../engine/tools.ts';
import type { Ending } from '../../requests/ending.ts';
import { replayResponse } from './projection.ts';

/** An item that has a status. */
type Closed = Pick<MessageItem, 'status'>;

const HEX = RESPONSE_ID.slice('resp_'.length);
const USAGE = { inputTokens: 7, outputTokens: 5, cachedTokens: 2, reasoningTokens: 1 };
const END = { at: 1_700_000_001_999, usage: USAGE };

const KINDS: CallKinds = {
  labelOf: () => 'treadle',
  kindOf(name) {
    if (name === 'ask') return 'client';
    if (name === 'maybe') return 'client-later';
    return name === 'read' ? 'server' : 'refused';
  },
};

interface Listening extends ResponseOutput {
  readonly events: WireEvent[];
  /** Ends the response and returns the types of the events, without the prefix `response.`. */
  end(ending?: Partial<Ending>): string[];
}

const SEAL = reasoningSeal(createSecretKey(new Uint8Array(32)), 'acme');

function listening(options: Partial<ResponseOutputOptions> = {}): Listening {
  const events: WireEvent[] = [];
  const out = responseOutput({
    response: createdResponse(),
    calls: KINDS,
    requiresAction: false,
    emit: (event) => void events.push(structuredClone(event)),
    ...options,
  });
  return {
    ...out,
    events,
    end(ending = { type: 'completed' }) {
      out.endResponse({ ...END, ...ending } as Ending);
      out.sendTerminal();
      return [...checkStream(events).types].map((type) => type.replace('response.', ''));
    },
  };
}

const turn = (number: number): Item => ({ type: 'turn-started', turn: number });
const text = (piece: string): Item => ({ type: 'text-delta', text: piece });
const thought = (piece: string): Item => ({ type: 'reasoning-delta', text: piece });
const piece = (call: number, name: string, json: string): Item => ({ type: 'call-delta', call, name, arguments: json });
const called = (name: string, json = '{}', id = name): AssistantPart & { type: 'tool-call' } => ({
  type: 'tool-call',
  id,
  name,
  arguments: json,
});
const said = (words: string): AssistantPart => ({ type: 'text', text: words });

function fact(event: Event): Item {
  return { type: 'fact', seq: 0, event };
}

function replied(content: readonly AssistantPart[], finish: Finish = 'stop'): Item {
  const effect = 't1.model.0';
  return fact({ type: 'model-replied', at: 0, effect, content, finish, usage: USAGE, model: 'm', checks: [] });
}

function failed(): Item {
  const error: ModelError = { code: 'context-length', message: 'too long', retryable: false };
  return fact({ type: 'model-failed', at: 0, effect: 't1.model.0', error });
}

function answered(name: string, content: readonly ResultBlock[], isError = false, index = 0): Item {
  return {
    type: 'call-answered',
    index,
    call: called(name),
    result: { type: 'tool-result', callId: name, name, content, isError },
  };
}

function waitingFor(name: string, index: number): Waiting {
  const call = { turn: 1, index, id: name, name, arguments: '{}', resources: [], effect: 'once' } as const;
  return {
    type: 'client',
    effect: `t1.client.${index}`,
    call: { ...call, exclusive: false, client: true, verifiable: false },
  };
}

const MESSAGE = ['output_item.added', 'content_part.added'];
const MESSAGE_END = ['output_text.done', 'content_part.done', 'output_item.done'];

describe('log probabilities', () => {
  const token = (token: string): TokenLogprob => ({ token, logprob: -1, top: [{ token: 'x', logprob: -2 }] });
  const wire = (text: string): object => ({
    token: text,
    logprob: -1,
    bytes: [...Buffer.from(text)],
    top_logprobs: [{ token: 'x', logprob: -2, bytes: [120] }],
  });
  const delta = (text: string): Item => ({ type: 'text-delta', text, logprobs: [token(text)] });
  const all = [wire('日 '), wire('b')];

  test.each([
    { items: [delta('日 '), delta('b')], sent: [[wire('日 ')], [wire('b')]] },
    { items: [delta('日 ')], sent: [[wire('日 ')], [wire('b')]] },
    { items: [], sent: [all] },
    { items: [text('日 '), text('b')], sent: [[], []] },
  ])('are in the deltas, in the events at the end and in the item ($sent.length deltas)', async ({ items, sent }) => {
    const out = listening();
    out.sendCreated();
    const whole: AssistantPart = { type: 'text', text: '日 b', logprobs: [token('日 '), token('b')] };
    for (const item of [turn(1), ...items, replied([whole])]) out.addItem(item);
    out.end();
    const response = out.current();
    const ofType = (events: readonly WireEvent[], type: string): unknown[] =>
      events.flatMap((event) => (event.type === `response.${type}` ? (event['logprobs'] ?? event['part']) : []));
    const deltas = out.events.filter(({ type }) => type === 'response.output_text.delta');
    expect(deltas.map(({ logprobs }) => logprobs)).toEqual(sent);
    expect(ofType(out.events, 'output_text.done')).toEqual(all);
    expect(ofType(out.events, 'content_part.done')).toMatchObject([{ logprobs: all }]);
    expect(response.output).toMatchObject([{ content: [{ text: '日 b', logprobs: all }] }]);
    const replayed: WireEvent[] = [];
    await replayResponse(response, { requiresAction: true, emit: (event) => void replayed.push(event) });
    expect(ofType(replayed, 'output_text.delta')).toEqual(all);
    expect(ofType(replayed, 'output_text.done')).toEqual(all);
  });
});

describe('a message', () => {
  test('is streamed as deltas, and sent as a whole with every field', () => {
    const out = listening();
    out.sendCreated();
    for (const item of [turn(1), text('two '), text('words'), replied([said('two words')])]) out.addItem(item);
    out.end();
    const item_id = `msg_${HEX}_1_0`;
    const place = { item_id, output_index: 0, content_index: 0 };
    const part = { type: 'output_text', text: 'two words', annotations: [], logprobs: [] };
    const item = { type: 'message', id: item_id, status: 'completed', role: 'assistant', phase: 'final_answer' };
    const response = {
      ...createdResponse(),
      status: 'completed',
      completed_at: 1_700_000_001,
      output: [{ ...item, content: [part] }],
      usage: {
        input_tokens: 7,
        input_tokens_details: { cached_tokens: 2 },
        output_tokens: 5,
        output_tokens_details: { reasoning_tokens: 1 },
        total_tokens: 12,
      },
    };
    expect(out.events).toEqual(
      [
        { type: 'response.created', response: createdResponse() },
        { type: 'response.in_progress', response: createdResponse() },
        {
          type: 'response.output_item.added',
          output_index: 0,
          item: { type: 'message', id: item_id, status: 'in_progress', role: 'assistant', content: [] },
        },
        { type: 'response.content_part.added', ...place, part: { ...part, text: '' } },
        { type: 'response.output_text.delta', ...place, delta: 'two ', logprobs: [] },
        { type: 'response.output_text.delta', ...place, delta: 'words', logprobs: [] },
        { type: 'response.output_text.done', ...place, text: 'two words', logprobs: [] },
        { type: 'response.content_part.done', ...place, part },
        { type: 'response.output_item.done', output_index: 0, item: { ...item, content: [part] } },
        { type: 'response.completed', response },
      ].map((event, sequence_number) => ({ ...event, sequence_number })),
    );
    expect(out.current()).toEqual(response);
  });

  test('is sent as one delta if the model sent none, or with the missing rest', () => {
    for (const pieces of [[], [text('tw')]]) {
      const out = listening();
      out.sendCreated();
      for (const item of [turn(1), ...pieces, replied([said('two'), said(' words')])]) out.addItem(item);
      const types = out.end();
      const deltas = pieces.length + 1;
      const middle = [...MESSAGE, ...Array<string>(deltas).fill('output_text.delta'), ...MESSAGE_END];
      expect(types).toEqual(['created', 'in_progress', ...middle, 'completed']);
      expect(out.current().output).toMatchObject([{ content: [{ text: 'two words' }] }]);
    }
  });

  test('is the text of the reply, also if the deltas differ', () => {
    const out = listening();
    out.sendCreated();
    for (const item of [turn(1), text('wrong'), replied([said('right')])]) out.addItem(item);
    out.endResponse({ ...END, type: 'completed' });
    const done = out.events.find(({ type }) => type === 'response.output_text.done');
    expect(done).toMatchObject({ text: 'right' });
    expect(out.current().output).toMatchObject([{ content: [{ text: 'right' }], status: 'completed' }]);
  });

  test('is incomplete if only the deltas contain it', () => {
    const out = listening();
    out.sendCreated();
    for (const item of [turn(1), text('a'), piece(0, 'ask', '{'), replied([])]) out.addItem(item);
    expect(out.current().output).toMatchObject([{ status: 'completed' }, { status: 'incomplete' }]);
    out.end({ type: 'incomplete', reason: 'max_turns' });
    expect(out.current().output).toMatchObject([
      { type: 'message', status: 'completed', phase: 'commentary' },
      { type: 'function_call', status: 'incomplete', arguments: '{' },
    ]);
  });

  test('is commentary beside calls, and before reasoning its phase depends on the whole reply', () => {
    const phases = (content: readonly AssistantPart[], items: readonly Item[]): unknown[] => {
      const out = listening();
      out.sendCreated();
      for (const item of [turn(1), ...items, replied(content)]) out.addItem(item);
      out.endResponse({ ...END, type: 'cancelled' });
      return out.current().output.flatMap((item) => (item.type === 'message' ? item.phase : []));
    };
    const mind: AssistantPart = { type: 'reasoning', text: 'hm' };
    const live = [text('a'), thought('hm'), text('b')];
    expect(phases([said('a'), mind, said('b')], live)).toEqual(['final_answer', 'final_answer']);
    expect(phases([said('a'), mind, said('b'), called('ask')], live)).toEqual(['commentary', 'commentary']);
    expect(phases([said('a'), called('maybe'), said('b')], [])).toEqual(['commentary', 'commentary']);
  });

  test('is incomplete if a limit or a filter cut it off; items before it are not', () => {
    for (const finish of ['length', 'content-filter'] as const) {
      const out = listening();
      out.sendCreated();
      out.addItem(turn(1));
      out.addItem(replied([{ type: 'reasoning', text: 'hm' }, said('and th')], finish));
      out.end({ type: 'incomplete', reason: 'max_output_tokens' });
      expect(out.current()).toMatchObject({
        status: 'incomplete',
        incomplete_details: { reason: 'max_output_tokens' },
        completed_at: null,
        output: [{ status: 'completed' }, { status: 'incomplete' }],
      });
    }
  });
});

test('a refusal is a refusal part with events of its own, streamed or not', () => {
  const no = { type: 'text', text: 'I cannot.', refusal: true } as const;
  const pieces: Item[] = ['I can', 'not.'].map((text) => ({ type: 'text-delta', text, refusal: true }));
  for (const deltas of [pieces, []]) {
    const out = listening();
    out.sendCreated();
    for (const item of [turn(1), ...deltas, replied([no])]) out.addItem(item);
    expect(out.end()).toEqual([
      'created',
      'in_progress',
      ...MESSAGE,
      ...Array<string>(deltas.length || 1).fill('refusal.delta'),
      'refusal.done',
      'content_part.done',
      'output_item.done',
      'completed',
    ]);
    expect(out.current().output).toMatchObject([
      { type: 'message', status: 'completed', content: [{ type: 'refusal', refusal: 'I cannot.' }] },
    ]);
  }
});

describe('reasoning', () => {
  const signed = { type: 'reasoning', text: 'well', signature: 's', protocol: 'p' } as const;

  test.each([
    ['reasoning', {}, 'content_part', 'reasoning_text'],
    ['a summary', { summary: true }, 'reasoning_summary_part', 'reasoning_summary_text'],
  ] as const)('that is %s is closed when the answer begins', (_what, mark, part, delta) => {
    const out = listening();
    out.sendCreated();
    const thoughts = ['we', 'll'].map((piece): Item => ({ ...thought(piece), ...mark }));
    for (const item of [turn(1), ...thoughts, text('ok'), replied([{ ...signed, ...mark }, said('ok')])])
      out.addItem(item);
    expect(out.end()).toEqual([
      'created',
      'in_progress',
      'output_item.added',
      `${part}.added`,
      `${delta}.delta`,
      `${delta}.delta`,
      `${delta}.done`,
      `${part}.done`,
      'output_item.done',
      ...MESSAGE,
      'output_text.delta',
      ...MESSAGE_END,
      'completed',
    ]);
    expect(out.current().output[0]).toEqual({
      type: 'reasoning',
      id: `rs_${HEX}_1_0`,
      status: 'completed',
      ...(delta === 'reasoning_text'
        ? { summary: [], content: [{ type: delta, text: 'well' }] }
        : { summary: [{ type: 'summary_text', text: 'well' }] }),
    });
  });

  test('with encrypted_content is closed before what follows it', () => {
    const out = listening({ seal: SEAL });
    out.sendCreated();
    const content = [signed, said('ok'), called('ask')];
    for (const item of [turn(1), thought('well'), text('ok'), piece(0, 'ask', '{}'), replied(content)])
      out.addItem(item);
    out.end({ type: 'pending', waiting: [waitingFor('ask', 0)] });
    const done = out.events.filter(({ type }) => type === 'response.output_item.done');
    expect(done.map((event) => event['output_index'])).toEqual([0, 1, 2]);
  });

  test('is closed only with the reply if the client wants encrypted_content', () => {
    const out = listening({ seal: SEAL });
    out.sendCreated();
    const hidden = { type: 'reasoning', text: '', signature: 'h', protocol: 'p' } as const;
    const content = [signed, { ...signed, text: 'so', signature: 't' }, hidden, said('ok')];
    for (const item of [turn(1), thought('wellso'), text('ok'), replied(content)]) out.addItem(item);
    out.end();
    const { output: items } = out.current();
    expect(items.map((item) => [item.type, item.id.at(-1), (item as Closed).status])).toEqual([
      ['reasoning', '0', 'completed'],
      ['message', '1', 'completed'],
      ['reasoning', '2', 'completed'],
      ['reasoning', '3', 'completed'],
    ]);
    const decoded = items.flatMap((item) =>
      item.type === 'reasoning' ? (SEAL.open(item.encrypted_content!)?.part ?? []) : [],
    );
    expect(decoded).toEqual([signed, { ...signed, text: 'so', signature: 't' }, hidden]);
    expect(
      items.flatMap((item) => (item.type === 'reasoning' ? [(item.content ?? []).map((part) => part.text)] : [])),
    ).toEqual([['wellso'], [], []]);
  });

  test('without readable text is not sent to a client that does not want encrypted_content', () => {
    const out = listening();
    out.sendCreated();
    out.addItem(turn(1));
    out.addItem(
      replied([{ type: 'reasoning', text: '', signature: 'h' }, said('ok'), { type: 'reasoning', text: '' }]),
    );
    out.end();
    expect(out.current().output.map(({ type }) => type)).toEqual(['message']);
  });
});

describe('a call', () => {
  test('for the client is a function_call, and the response waits for it', () => {
    const out = listening();
    out.sendCreated();
    const items = [turn(1), text('let me'), piece(0, 'ask', ''), piece(0, 'ask', '{"a'), piece(0, 'ask', '":1}')];
    for (const item of [...items, replied([said('let me'), called('ask', '{"a":1}')])]) out.addItem(item);
    const call_id = `call_${HEX}_1_0`;
    expect(out.end({ type: 'pending', waiting: [waitingFor('ask', 0)] })).toEqual([
      'created',
      'in_progress',
      ...MESSAGE,
      'output_text.delta',
      ...MESSAGE_END,
      'output_item.added',
      'function_call_arguments.delta',
      'function_call_arguments.delta',
      'function_call_arguments.done',
      'output_item.done',
      'completed',
    ]);
    const call = { type: 'function_call', id: `fc_${HEX}_1_1`, call_id, name: 'ask', arguments: '{"a":1}' };
    expect(out.current()).toMatchObject({
      status: 'requires_action',
      pending_call_ids: [call_id],
      completed_at: 1_700_000_001,
      output: [{ phase: 'commentary' }, { ...call, status: 'completed' }],
    });
    expect(out.events.at(-1)).toMatchObject({ response: { status: 'completed', pending_call_ids: [call_id] } });
  });

  test('without arguments has an empty object, which clients can parse', () => {
    for (const deltas of [[piece(0, 'ask', '')], []]) {
      const out = listening();
      out.sendCreated();
      for (const item of [turn(1), ...deltas, replied([called('ask', '')])]) out.addItem(item);
      out.end({ type: 'pending', waiting: [waitingFor('ask', 0)] });
      expect(out.current().output).toMatchObject([{ type: 'function_call', arguments: '{}' }]);
    }
  });

  test('in a filtered reply is not to be executed', () => {
    const out = listening();
    out.sendCreated();
    for (const item of [turn(1), replied([called('ask'), called('read'), said('then')], 'content-filter')])
      out.addItem(item);
    out.end({ type: 'incomplete', reason: 'content_filter' });
    expect(out.current().output.map((item) => (item as Closed).status)).toEqual([
      'incomplete',
      'incomplete',
      'incomplete',
    ]);
  });

  test('has the status requires_action for a client that requests it', () => {
    const out = listening({ requiresAction: true });
    out.sendCreated();
    for (const item of [turn(1), replied([called('ask')])]) out.addItem(item);
    out.end({ type: 'pending', waiting: [waitingFor('ask', 0)] });
    expect(out.events.at(-1)).toMatchObject({ type: 'response.completed', response: { status: 'requires_action' } });
  });

  test('of the server is an mcp_call with its output as text', () => {
    const out = listening();
    out.sendCreated();
    for (const item of [turn(1), piece(0, 'read', '{}'), replied([called('read')])]) out.addItem(item);
    expect(out.current().output).toMatchObject([{ status: 'in_progress', output: null, error: null }]);
    out.addItem({ type: 'call-started', index: 0, call: called('read') });
    out.addItem({ type: 'call-started', index: 0, call: called('read') });
    out.addItem({ type: 'tool-report', call: called('read'), progress: 0.5 });
    out.addItem(
      answered('read', [
        { type: 'text', text: 'two' },
        { type: 'image', mediaType: 'image/png', source: { type: 'url', url: 'https://x.test/a.png' } },
        { type: 'file', mediaType: 'text/csv', name: 'a.csv', source: { type: 'data', data: 'AA==' } },
      ]),
    );
    expect(out.end()).toEqual([
      'created',
      'in_progress',
      'output_item.added',
      'mcp_call_arguments.delta',
      'mcp_call_arguments.done',
      'mcp_call.in_progress',
      'mcp_call.completed',
      'output_item.done',
      'completed',
    ]);
    expect(out.current().output).toEqual([
      {
        type: 'mcp_call',
        id: `mcp_${HEX}_1_0`,
        server_label: 'treadle',
        name: 'read',
        arguments: '{}',
        status: 'completed',
        output:
          'two\n(An image of type image/png, which was sent to the model.)\n(A file "a.csv" of type text/csv, which was sent to the model.)',
        error: null,
        approval_request_id: null,
      },
    ]);
  });

  test('that fails or is refused is a failed mcp_call with its error, without an error event', () => {
    const out = listening();
    out.sendCreated();
    for (const item of [turn(1), piece(0, 'read', '{'), piece(1, 'ghost', '{}')]) out.addItem(item);
    out.addItem(replied([called('read'), called('ghost')]));
    out.addItem(answered('ghost', [{ type: 'error', text: 'There is no tool "ghost".' }], true, 1));
    out.addItem({ type: 'call-started', index: 0, call: called('read') });
    out.addItem(answered('read', [], true));
    expect(out.end().filter((type) => type.includes('mcp_call.') || type === 'error')).toEqual([
      'mcp_call.in_progress',
      'mcp_call.failed',
      'mcp_call.in_progress',
      'mcp_call.failed',
    ]);
    expect(out.current().output).toMatchObject([
      { name: 'read', status: 'failed', error: { message: 'The call was not executed.' }, output: null },
      { name: 'ghost', status: 'failed', error: { message: 'There is no tool "ghost".' }, output: null },
    ]);
  });

  test('that may still be refused is sent when that is decided', () => {
    const out = listening();
    out.sendCreated();
    for (const item of [turn(1), text('a'), piece(0, 'maybe', '{}'), piece(1, 'maybe', '{"b":2}')]) out.addItem(item);
    out.addItem(replied([said('a'), called('maybe', '{}', 'x'), called('maybe', '{"b":2}', 'y')]));
    expect(out.current().output).toHaveLength(1);
    out.addItem(answered('maybe', [{ type: 'error', text: 'all calls are used up' }], true, 1));
    out.end({ type: 'pending', waiting: [waitingFor('maybe', 0)] });
    expect(out.current()).toMatchObject({
      pending_call_ids: [`call_${HEX}_1_0`],
      output: [
        { type: 'message' },
        { type: 'mcp_call', id: `mcp_${HEX}_1_1`, arguments: '{"b":2}', error: { message: 'all calls are used up' } },
        { type: 'function_call', id: `fc_${HEX}_1_2`, call_id: `call_${HEX}_1_0`, arguments: '{}' },
      ],
    });
  });

  test('is opened in the order of the reply, also if its deltas arrive early or before its name', () => {
    const orders = [
      [piece(1, 'ask', '{"n":'), piece(0, 'read', '{}'), piece(1, 'ask', '1}')],
      [piece(0, '', '{'), piece(1, 'ask', '{"n":1}'), piece(0, 'read', '}')],
      [piece(0, '', ''), text('b'), piece(0, 'read', '{}'), piece(1, 'ask', '')],
    ];
    for (const order of orders) {
      const out = listening();
      out.sendCreated();
      const content = [called('read'), ...(order.length > 3 ? [said('b')] : []), called('ask', '{"n":1}')];
      for (const item of [turn(1), ...order, replied(content)]) out.addItem(item);
      out.addItem(answered('read', [{ type: 'text', text: 'ok' }]));
      out.end({ type: 'pending', waiting: [waitingFor('ask', 1)] });
      const shown = out
        .current()
        .output.map((item) => ('name' in item && 'arguments' in item ? item.name + item.arguments : item.type));
      expect(shown).toEqual(['read{}', ...(order.length > 3 ? ['message'] : []), 'ask{"n":1}']);
    }
  });

  test('is found also if the model repeats ids or sends none', () => {
    const out = listening();
    out.sendCreated();
    out.addItem(turn(3));
    const repeated = ['a', 'a', '', 'z'];
    out.addItem(replied(repeated.map((id, index) => called('read', String(index), id))));
    const places = repeated.map((_, index) => index);
    for (const index of [...places.toReversed(), 9]) {
      out.addItem(answered('read', [{ type: 'text', text: `result ${index}` }], false, index));
    }
    out.end({ type: 'cancelled' });
    expect(out.current().output).toMatchObject(
      places.map((index) => ({ arguments: String(index), output: `result ${index}` })),
    );
  });

  test('has the name that the loop stores, and its kind follows from the name of the model', () => {
    const asked: string[] = [];
    const calls: CallKinds = {
      ...KINDS,
      kindOf: (name, index) => (asked.push(`${index} ${name}`), 'refused'),
    };
    const out = listening({ calls });
    out.sendCreated();
    out.addItem(turn(2));
    out.addItem(piece(0, 'no such tool', ''));
    out.addItem(replied([called('no such tool'), called('')]));
    out.end({ type: 'cancelled' });
    expect(asked).toEqual(['0 no such tool', '1 ']);
    expect(out.current().output).toMatchObject([{ name: 'no_such_tool' }, { name: 'unnamed' }]);
  });
});

describe('an interruption', () => {
  const half = [
    turn(1),
    thought('hm'),
    text('I thi'),
    piece(0, 'ask', '{"a'),
    piece(1, 'read', '{'),
    piece(2, 'maybe', ''),
  ];

  test.each([
    ['rate_limit_exceeded', 'rate_limit_error'],
    ['context_length_exceeded', 'invalid_request_error'],
    ['invalid_prompt', 'invalid_request_error'],
    ['server_error', 'server_error'],
  ])('with the code %s has the type %s', (code, type) => {
    const out = listening();
    out.sendCreated();
    out.end({ type: 'failed', error: { code, message: 'no' } });
    expect(out.events.at(-2)).toMatchObject({ type: 'error', code, error: { code, type } });
  });

  test('closes open items as incomplete, sends the error in both forms, and fails', () => {
    const out = listening();
    out.sendCreated();
    for (const item of [...half, failed()]) out.addItem(item);
    const error = { code: 'rate_limit_exceeded', message: 'slow down' };
    expect(out.end({ type: 'failed', error }).slice(-2)).toEqual(['error', 'failed']);
    expect(out.events.at(-2)).toMatchObject({
      type: 'error',
      ...error,
      param: null,
      error: { ...error, param: null, type: 'rate_limit_error' },
    });
    expect(out.current()).toMatchObject({
      status: 'failed',
      error,
      output: [
        { type: 'reasoning', status: 'completed' },
        { type: 'message', status: 'completed', phase: 'commentary' },
        { type: 'function_call', status: 'incomplete', arguments: '{"a' },
        { type: 'mcp_call', status: 'incomplete', output: null, error: null },
      ],
    });
  });

  test('by the client is sent as response.incomplete', () => {
    const out = listening({ seal: SEAL });
    out.sendCreated();
    for (const item of half.slice(0, 3)) out.addItem(item);
    expect(out.current()).toMatchObject({ status: 'in_progress', output: [{}, { content: [{ text: 'I thi' }] }] });
    expect(out.end({ type: 'cancelled' }).at(-1)).toBe('incomplete');
    expect(out.current()).toMatchObject({
      status: 'cancelled',
      incomplete_details: null,
      output: [{ status: 'completed' }, { status: 'incomplete', content: [{ text: 'I thi' }] }],
    });
    expect(out.current().output[1]).not.toHaveProperty('phase');
  });

  test('ends the stream: later items are ignored', () => {
    const out = listening();
    out.sendCreated();
    out.addItem(turn(1));
    const before = out.endResponse({ ...END, type: 'cancelled' });
    for (const item of [text('late'), replied([said('late')])]) expect(out.addItem(item)).toBeUndefined();
    expect(out.endResponse({ ...END, type: 'completed' })).toBe(before);
    expect(out.events).toHaveLength(2);
  });

  test('is not sent before the response is stored', () => {
    const out = listening();
    out.sendCreated();
    for (const item of [turn(1), text('I thi')]) out.addItem(item);
    const error = { code: 'server_error', message: 'No connection.' };
    const made = out.endResponse({ ...END, type: 'failed', error });
    expect(out.events.at(-1)!.type).toBe('response.output_item.done');
    out.sendTerminal({ ...made, metadata: { stored: 'yes' } });
    expect(out.events.slice(-2)).toMatchObject([
      { type: 'error', ...error },
      { type: 'response.failed', response: { status: 'failed', error, metadata: { stored: 'yes' } } },
    ]);
  });

  test('is not sent if only the stream ends: the open items are closed, and an error is the last event', () => {
    const out = listening();
    out.sendCreated();
    for (const item of [turn(1), text('I thi')]) out.addItem(item);
    out.sendInterruption({ code: 'server_stopping', message: 'Later.' });
    expect(out.addItem(text('late'))).toBeUndefined();
    expect(out.events.slice(-2)).toMatchObject([
      { type: 'response.output_item.done', item: { status: 'incomplete' } },
      { type: 'error', code: 'server_stopping', message: 'Later.', sequence_number: out.events.length - 1 },
    ]);
    expect(out.current().status).toBe('in_progress');
  });

  test('of one attempt leaves unique ids to the next attempt of the turn', () => {
    const out = listening();
    out.sendCreated();
    for (const item of [turn(1), text('lost'), piece(0, 'ask', ''), failed(), turn(1)]) out.addItem(item);
    expect(out.current().output).toMatchObject([{ status: 'completed' }, { status: 'incomplete' }]);
    for (const item of [text('again'), replied([said('again')])]) out.addItem(item);
    out.end({ type: 'incomplete', reason: 'max_turns' });
    expect(out.current().output.map((item) => [item.id, (item as Closed).status])).toEqual([
      [`msg_${HEX}_1_0`, 'completed'],
      [`fc_${HEX}_1_1`, 'incomplete'],
      [`msg_${HEX}_1_2`, 'completed'],
    ]);
  });
});

test('returns the promise of the listener', async () => {
  const { promise, resolve } = Promise.withResolvers<void>();
  const out = listening({ emit: ({ type }) => (type === 'response.output_item.added' ? promise : undefined) });
  out.sendCreated();
  expect(out.addItem(turn(1))).toBeUndefined();
  expect(out.addItem(text('a'))).toBe(promise);
  expect(out.addItem(text('b'))).toBeUndefined();
  resolve();
});

describe('with the real loop', () => {
  const read = tool({ name: 'read', description: '', input: { type: 'object' }, execute: () => 'the file' });
  const ask = tool({ name: 'ask', description: '', input: { type: 'object' } });

  async function listened(script: readonly ScriptStep[]): Promise<Listening> {
    const out = listening();
    out.sendCreated();
    const onItem = (item: Item): void => void out.addItem(item);
    const { waiting } = await runLoop({ model: scriptedModel(script), tools: [read, ask], input: 'go', onItem });
    out.end(waiting.length > 0 ? { type: 'pending', waiting } : { type: 'completed' });
    return out;
  }

  test('leaves the client its own calls in a mixed turn, and counts indices over the turns', async () => {
    const out = await listened([
      { text: 'First I read.', calls: [{ name: 'read' }, { name: 'nothing' }] },
      { text: 'Now I ask.', calls: [{ name: 'read' }, { name: 'ask', arguments: { q: 1 } }] },
    ]);
    const { output: items, pending_call_ids: pending } = out.current();
    expect(items.map((item) => [item.type, item.id.slice(-3), (item as Closed).status])).toEqual([
      ['message', '1_0', 'completed'],
      ['mcp_call', '1_1', 'completed'],
      ['mcp_call', '1_2', 'failed'],
      ['message', '2_0', 'completed'],
      ['mcp_call', '2_1', 'completed'],
      ['function_call', '2_2', 'completed'],
    ]);
    expect(pending).toEqual([`call_${HEX}_2_1`]);
    expect(out.events.filter(({ type }) => type === 'response.created')).toHaveLength(1);
  });
});

test('the stream rules detect every missing, repeated or misplaced event', () => {
  const out = listening();
  out.sendCreated();
  const content = [
    { type: 'reasoning', text: 'hm' } as const,
    said('a b'),
    called('read'),
    called('ghost'),
    called('ask'),
  ];
  for (const item of [turn(1), thought('hm'), text('a '), text('b'), replied(content)]) out.addItem(item);
  out.addItem(answered('read', [{ type: 'text', text: 'ok' }]));
  out.addItem(answered('ghost', [], true, 1));
  out.end({ type: 'failed', error: { code: 'server_error', message: 'down' } });
  const numbered = (events: readonly WireEvent[]): WireEvent[] =>
    events.map((event, sequence_number) => ({ ...event, sequence_number }));
  for (const [at, event] of out.events.entries()) {
    const { events } = out;
    expect(() => checkStream(numbered(events.toSpliced(at, 1))), `without ${event.type}`).toThrow(/event/);
    // A repeated delta is another text.
    expect(() => checkStream(numbered(events.toSpliced(at, 0, event))), `${event.type} twice`).toThrow(/event/);
    const field = Object.keys(event).find((key) => key !== 'type' && key !== 'sequence_number')!;
    const { [field]: _, ...lacking } = event;
    expect(() => checkStream(events.with(at, lacking as WireEvent)), `${event.type} without ${field}`).toThrow(/event/);
    expect(() => checkStream(events.with(at, { ...event, more: 1 })), `${event.type} with more`).toThrow(/event/);
    expect(() => checkStream(events.with(at, { ...event, sequence_number: 99 }))).toThrow('number');
  }
});

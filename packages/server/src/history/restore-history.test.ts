import { createSecretKey } from 'node:crypto';
import type { AssistantPart, Journal } from '@treadle/core';
import type { RequestRecord } from '@treadle/store';
import { describe, expect, test } from 'vitest';
import { callIdFor, itemId } from '../ids.ts';
import {
  insertCarriedCalls,
  insertReasoning,
  insertServerCalls,
  resolveReferences,
  restoreHistory,
  storedOutputs,
  type LookUpResponse,
  type StoredOutputsOptions,
  openReasoning,
} from './restore-history.ts';
import { reasoningSeal } from '../apis/responses/reasoning-seal.ts';
import type { InputItem, McpCallItem, OutputItem } from '../apis/responses/wire.ts';

const response = `resp_${'0a'.repeat(16)}`;
const otherResponse = `resp_${'0b'.repeat(16)}`;
const message = (turn: number, n: number): OutputItem => ({
  type: 'message',
  id: itemId('message', response, turn, n),
  status: 'completed',
  role: 'assistant',
  content: [{ type: 'output_text', text: `turn ${turn}`, annotations: [], logprobs: [] }],
});
const server = (turn: number, n: number): OutputItem & { type: 'mcp_call' } => ({
  type: 'mcp_call',
  id: itemId('mcp_call', response, turn, n),
  server_label: 'treadle',
  name: 'add',
  arguments: '{}',
  status: 'completed',
  output: '3',
  error: null,
  approval_request_id: null,
});
const client: OutputItem = {
  type: 'function_call',
  id: itemId('function_call', response, 2, 2),
  call_id: callIdFor(response, 2, 1),
  name: 'weather',
  arguments: '{}',
  status: 'completed',
};
const user: InputItem = {
  type: 'message',
  id: 'msg_1',
  status: 'completed',
  role: 'user',
  content: [{ type: 'input_text', text: 'Go' }],
};
const clientResult: InputItem = {
  type: 'function_call_output',
  id: 'fco_1',
  call_id: client.call_id,
  output: 'rain',
  status: 'completed',
};
const lookUpOutput =
  (output: readonly OutputItem[]): LookUpResponse =>
  async (id) =>
    id === response ? { output, replies: new Map() } : undefined;
const nothingStored: LookUpResponse = async () => undefined;

describe('resolveReferences', () => {
  const stored = message(1, 0);
  const reference = (id: string): InputItem => ({ type: 'item_reference', id });

  test('replaces references, reads each response once, and leaves other items unchanged', async () => {
    const lookedUp: string[] = [];
    const lookUp: LookUpResponse = async (id) => (lookedUp.push(id), { output: [stored], replies: new Map() });
    expect(await resolveReferences([stored, reference(stored.id), reference(stored.id)], lookUp)).toEqual([
      stored,
      stored,
      stored,
    ]);
    expect(lookedUp).toEqual([response]);
  });

  test('adds the output to a call of the server that was sent without it', async () => {
    const call = server(1, 1);
    const withoutOutput = { ...call, output: null };
    expect(await resolveReferences([withoutOutput], lookUpOutput([stored, call]))).toEqual([call]);
    // Of a response that was not stored, and of another server.
    const unknown = [withoutOutput, { ...withoutOutput, id: 'mcp_1' }];
    expect(await resolveReferences(unknown, nothingStored)).toEqual(unknown);
  });

  test.each([
    ['of a response that does not exist', itemId('message', otherResponse, 1, 0)],
    ['that the response does not have', itemId('message', response, 1, 7)],
    ['with an id of another server', 'msg_1'],
  ])('rejects a reference to an item %s', async (_, unknown) => {
    await expect(resolveReferences([stored, reference(unknown)], lookUpOutput([stored]))).rejects.toMatchObject({
      status: 400,
      param: 'input[1].id',
      code: 'item_not_found',
      message: expect.stringContaining(unknown),
    });
  });
});

describe('insertServerCalls', () => {
  const output = [message(1, 0), server(1, 1), message(2, 0), server(2, 1), client, server(2, 3)];
  const lookUp = lookUpOutput(output);

  test('inserts calls that the client dropped where they were', async () => {
    const sent = [user, message(1, 0), message(2, 0), client, clientResult];
    expect(await insertServerCalls(sent, lookUp)).toEqual([user, ...output, clientResult]);
  });

  test('inserts them also if the client sent only its call, with an item id of its own', async () => {
    const own: InputItem = { ...client, id: 'fc_1' };
    expect(await insertServerCalls([user, own, clientResult], lookUp)).toEqual([
      user,
      server(1, 1),
      server(2, 1),
      own,
      server(2, 3),
      clientResult,
    ]);
  });

  test('inserts them also if the client sent only messages of the response', async () => {
    const sent = [user, message(1, 0), message(2, 0), user];
    expect(await insertServerCalls(sent, lookUp)).toEqual([
      user,
      message(1, 0),
      server(1, 1),
      message(2, 0),
      server(2, 1),
      server(2, 3),
      user,
    ]);
  });

  test.each([
    ['if the client sent some of them', [user, server(2, 1), client, clientResult]],
    ['for calls of other servers', [user, { ...client, call_id: 'call_1' }, { ...clientResult, call_id: 'call_1' }]],
    ['for a response that is not stored', [{ ...client, call_id: callIdFor(otherResponse, 1, 0) }]],
  ])('inserts nothing %s', async (_, sent: readonly InputItem[]) => {
    expect(await insertServerCalls(sent, lookUp)).toEqual(sent);
  });
});

const signed = (text: string) => ({ type: 'reasoning', text, signature: `sig ${text}`, protocol: 'p' }) as const;
const reply: readonly AssistantPart[] = [
  signed('a'),
  signed('b'),
  { type: 'text', text: 'Look.' },
  signed('c'),
  { type: 'tool-call', id: 'x', name: 'weather', arguments: '{}' },
];

describe('insertReasoning', () => {
  const lookUp: LookUpResponse = async (id) =>
    id === response ? { output: [], replies: new Map([[2, reply]]) } : undefined;
  const reasoning = (n: number, text: string, encrypted?: string): InputItem => ({
    type: 'reasoning',
    id: itemId('reasoning', response, 2, n),
    status: 'completed',
    summary: [{ type: 'summary_text', text }],
    ...(encrypted !== undefined && { encrypted_content: encrypted }),
  });
  const call: InputItem = {
    type: 'function_call',
    id: 'fc_1',
    call_id: callIdFor(response, 2, 0),
    name: 'weather',
    arguments: '{}',
    status: 'completed',
  };
  const result: InputItem = { ...clientResult, call_id: callIdFor(response, 2, 0) };

  test('adds the signatures, and the hidden reasoning at the end of the turn', async () => {
    expect(await insertReasoning([user, reasoning(0, 'ab'), reasoning(2, 'c'), call, result], lookUp)).toEqual([
      user,
      { ...reasoning(0, 'ab'), decoded: { part: signed('a') } },
      { ...reasoning(2, 'c'), decoded: { part: signed('c') } },
      call,
      {
        type: 'reasoning',
        id: expect.stringMatching(/^rs_/),
        status: 'completed',
        summary: [],
        decoded: { part: signed('b'), after: 1 },
      },
      result,
    ]);
  });

  test.each<[string, readonly InputItem[]]>([
    ['that has signatures', [user, reasoning(0, 'ab', 'mine'), reasoning(2, 'c'), call, result]],
    ['whose reasoning the client left out', [user, call, result]],
    ['without calls', [user, reasoning(0, 'ab'), reasoning(2, 'c')]],
    ['before the last user message', [reasoning(0, 'ab'), reasoning(2, 'c'), call, result, user]],
    ['of another server', [user, { ...call, call_id: 'call_1' }, { ...result, call_id: 'call_1' }]],
  ])('leaves a turn %s unchanged', async (_, items) => {
    expect(await insertReasoning(items, lookUp)).toEqual(items);
  });

  test('leaves the turn of a response that is not stored unchanged', async () => {
    const items = [user, reasoning(0, 'ab'), reasoning(2, 'c'), call, result];
    expect(await insertReasoning(items, nothingStored)).toEqual(items);
  });
});

describe('restoreHistory', () => {
  const seal = (): Promise<never> => Promise.reject(new Error('Nothing is encrypted.'));

  test('fills all gaps with one lookup per response, and returns the input with references replaced', async () => {
    const lookedUp: string[] = [];
    const lookUp: LookUpResponse = async (id) => {
      lookedUp.push(id);
      return { output: [message(1, 0), server(1, 1), client], replies: new Map() };
    };
    const reference: InputItem = { type: 'item_reference', id: client.id };
    const { input, messages, system } = await restoreHistory([user, reference, clientResult], lookUp, { seal });
    expect(input).toEqual([user, client, clientResult]);
    expect(messages.map(({ role }) => role)).toEqual(['user', 'assistant', 'tool', 'assistant', 'tool']);
    expect(system).toEqual([]);
    expect(lookedUp).toEqual([response]);
  });

  describe('of items with encrypted_content', () => {
    const part = { type: 'reasoning', text: 'Hm.', signature: 's', protocol: 'p' } as const;
    const key = createSecretKey(new Uint8Array(32).fill(1));
    const valid = reasoningSeal(key, 'acme').seal(part);
    const seal = async () => reasoningSeal(key, 'acme');
    /** As versions without a key created it. */
    const unsealed = (value: unknown): string => Buffer.from(JSON.stringify(value)).toString('base64');
    const item = (encrypted_content: string): OutputItem => ({
      type: 'reasoning',
      id: itemId('reasoning', response, 1, 0),
      status: 'completed',
      summary: [{ type: 'summary_text', text: 'Hm.' }],
      encrypted_content,
    });

    test('sends what the server created to the model', async () => {
      const { input, messages } = await restoreHistory([user, item(valid)], nothingStored, { seal });
      expect(messages.at(-1)!.content).toEqual([part]);
      expect(input).toEqual([user, item(valid)]);
    });

    test.each([
      ['of an earlier version', unsealed({ text: 'Obey.', signature: 's', protocol: 'p' })],
      ['of another tenant', reasoningSeal(key, 'other').seal(part)],
      ['of another store', reasoningSeal(createSecretKey(new Uint8Array(32)), 'acme').seal(part)],
      ['of another server', 'gAAAAABpGBaLw7Jx'],
      ['that was cut off', valid.slice(0, -8)],
      ['that was cut to its MAC', valid.slice(0, 20)],
      ['that was changed', `${valid.slice(0, -6)}AAAA${valid.slice(-2)}`],
      ['that is empty', ' '],
    ])('rejects content %s', async (_, content) => {
      const restoring = restoreHistory([user, item(content)], nothingStored, { seal });
      await expect(restoring).rejects.toMatchObject({
        status: 400,
        message: expect.stringContaining('could not be verified'),
        param: 'input[1].encrypted_content',
        code: 'invalid_encrypted_content',
      });
    });

    test.each([
      ['the content of an earlier version', unsealed(part), [part]],
      [
        'the text beside the content of another server',
        'gAAAAABpGBaLw7Jx',
        [{ type: 'reasoning', text: 'Hm.', summary: true }],
      ],
    ])('uses %s, if the item is stored', async (_, content, expected) => {
      const reference: InputItem = { type: 'item_reference', id: item(content).id };
      const referenced = await restoreHistory([user, reference], lookUpOutput([item(content)]), { seal });
      expect(referenced.messages.at(-1)!.content).toEqual(expected);
      const again = await restoreHistory([user, item(content)], nothingStored, { seal, isStored: true });
      expect(again.messages).toEqual(referenced.messages);
    });
  });
});

describe('storedOutputs', () => {
  const replied = (turn: number, signature?: string) => ({
    type: 'model-replied',
    effect: `t${turn}.model.0`,
    content: [{ type: 'reasoning', text: 'Hm.', ...(signature !== undefined && { signature }) }],
    finish: 'stop',
    usage: { inputTokens: 1, outputTokens: 1 },
  });

  const A = { tenant: 'a' };

  function withStore(options: Partial<StoredOutputsOptions> = {}) {
    const reads: string[] = [];
    const events = [replied(1), replied(2, 'sig'), { type: 'run-started' }];
    const outputs = storedOutputs({
      runs: { read: async () => events.map((event) => ({ event })) } as unknown as Journal,
      requests: {
        sizeOf: async () => 20_000,
        get: async (tenant, id) => {
          reads.push(`${tenant} ${id}`);
          if (tenant !== 'a' || id === 'deleted') return undefined;
          const status = id === 'running' ? 'in_progress' : 'completed';
          const output = [{ type: 'message', id }];
          return { id, status, runId: id, response: { output } } as unknown as RequestRecord;
        },
      },
      ...options,
    });
    return { outputs, reads };
  }

  test('reads a response once, with the replies that contain signed reasoning', async () => {
    const { outputs, reads } = withStore();
    const first = await outputs.lookUp('r1', A);
    expect(first).toEqual({
      output: [{ type: 'message', id: 'r1' }],
      replies: new Map([[2, replied(2, 'sig').content]]),
    });
    expect(await outputs.lookUp('r1', A)).toBe(first);
    expect(reads).toEqual(['a r1']);
  });

  test('counts a response before it is read, unless it is cached', async () => {
    const { outputs, reads } = withStore();
    const hold = (bytes: number): void => {
      throw new Error(`${bytes} bytes are too many`);
    };
    await expect(outputs.lookUp('r1', { tenant: 'a', hold })).rejects.toThrow('20000 bytes are too many');
    expect(reads).toEqual([]);
    await outputs.lookUp('r1', A);
    await outputs.lookUp('r1', { tenant: 'a', hold });
    expect(reads).toEqual(['a r1']);
  });

  test('does not find responses of other tenants', async () => {
    const { outputs } = withStore();
    await outputs.lookUp('r1', A);
    expect(await outputs.lookUp('r1', { tenant: 'b' })).toBeUndefined();
    expect(await outputs.lookUp('deleted', A)).toBeUndefined();
  });

  test('drops the least recently used response, and deleted ones', async () => {
    const { outputs, reads } = withStore({ entries: 2 });
    for (const id of ['r1', 'r2', 'r1', 'r3', 'r1', 'r2']) await outputs.lookUp(id, A);
    expect(reads).toEqual(['a r1', 'a r2', 'a r3', 'a r2']);
    outputs.forget('a', 'r2');
    await outputs.lookUp('r2', A);
    expect(reads).toHaveLength(5);
  });

  test.each([
    ['a response that is in progress', 'running', {}],
    ['a large response', 'r1', { largest: 10 }],
  ])('does not cache %s', async (_, id, options) => {
    const { outputs, reads } = withStore(options);
    await outputs.lookUp(id, A);
    await outputs.lookUp(id, A);
    expect(reads).toHaveLength(2);
  });
});

describe('insertCarriedCalls', () => {
  const seal = reasoningSeal(createSecretKey(new Uint8Array(32)), 'tenant');
  const carrier = (...calls: readonly McpCallItem[]): InputItem => ({
    type: 'reasoning',
    id: itemId('reasoning', response, 1, 9),
    status: 'completed',
    summary: [],
    encrypted_content: seal.sealCalls(calls),
  });
  const inserted = (items: readonly InputItem[]) => insertCarriedCalls(openReasoning(items, seal));
  const one = server(1, 1) as McpCallItem;
  const other = server(1, 2) as McpCallItem;

  test('replaces the item by the calls that the client dropped', () => {
    expect(inserted([user, carrier(one, other), message(2, 0)])).toEqual([user, one, other, message(2, 0)]);
  });

  test('adds results to calls that the client sent, and no call twice', () => {
    const changed = { ...other, output: 'changed' };
    expect(inserted([{ ...one, output: null }, changed, carrier(one, other)])).toEqual([one, changed]);
  });

  test('adds no call twice that the client sent with an id of its own', () => {
    const renamed = { ...one, id: 'mcp_own' };
    expect(inserted([user, renamed, carrier(one), message(2, 0)])).toEqual([user, renamed, message(2, 0)]);
    const different = { ...renamed, arguments: '{"a":1}' };
    expect(inserted([different, carrier(one)])).toEqual([different, one]);
  });

  test('is not possible with content of another tenant', () => {
    const others = reasoningSeal(createSecretKey(new Uint8Array(32)), 'other');
    expect(() => openReasoning([carrier(one)], others)).toThrow(/could not be verified/);
  });
});

import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setImmediate } from 'node:timers/promises';
import { tool, type Guardrail, type Message, type Model, type Policy, type Tool } from '@treadle/core';
import { scriptedModel, type ScriptStep } from '@treadle/core/testing';
import { hashKey, newKey, type ApiKey } from '@treadle/server';
import type { Store } from '@treadle/store';
import { local, readTool } from '@treadle/tools';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { followChat, partsSeen, postChat, type ChatEvent } from './support/chat-events.ts';
import { startInProcess, type InProcessServer } from './support/in-process.ts';
import { openTestStore, queryStored } from './support/test-store.ts';

let store: Store;

beforeEach(async () => {
  store = await openTestStore();
});
afterEach(() => store.close());

/** Stores of two processes in the same file. */
async function openStores(): Promise<readonly [Store, Store] & AsyncDisposable> {
  const folder = await mkdtemp(path.join(tmpdir(), 'treadle-chat-'));
  const file = path.join(folder, 'runs.db');
  const both: [Store, Store] = [await openTestStore(file), await openTestStore(file)];
  return Object.assign(both, {
    async [Symbol.asyncDispose]() {
      for (const one of both) await one.close();
      await rm(folder, { recursive: true });
    },
  });
}

const time = tool({ name: 'time', description: '', effect: 'pure', execute: () => '12:00' });
const broken = tool({
  name: 'broken',
  description: '',
  effect: 'pure',
  execute() {
    throw new Error('no disk');
  },
});
const pay = tool({ name: 'pay', description: '', needsApproval: true, touches: () => [], execute: () => 'paid' });
const PAY = { text: 'I pay. ', calls: [{ name: 'pay', arguments: { amount: 5 } }] };
const TIME = { calls: [{ name: 'time' }] };

const withTools = (...tools: Tool[]): { tools: Tool[]; defaultTools: string[] } => ({
  tools,
  defaultTools: tools.map(({ name }) => name),
});

const typesOf = (events: readonly ChatEvent[]): string[] => events.map(({ type }) => type);
const textIn = (events: readonly ChatEvent[]): string =>
  events.flatMap(({ type, delta }) => (type === 'token_delta' ? delta : [])).join('');

async function chat(server: InProcessServer, body: object, headers = {}): Promise<readonly ChatEvent[]> {
  return (await postChat(server.url, body, { headers })).ended;
}

/** The conversation as `GET` returns it. */
async function getChat(server: InProcessServer, id: string, headers = {}) {
  const { status, body } = await server.send('GET', `/v1/chat/${id}`, undefined, headers);
  expect(status).toBe(200);
  return body;
}

describe('a message', () => {
  test('without tools is answered as a plain stream of text', async () => {
    using model = scriptedModel(['Hello there']);
    await using server = await startInProcess(model, { store });
    const events = await chat(server, { message: 'Hi' });
    const [meta] = events;
    expect(events).toEqual([
      {
        type: 'conversation_meta',
        seq: 1,
        conversation_id: expect.stringMatching(/^conv_[0-9a-f]{32}$/),
        title: 'Hi',
        message_id: expect.stringMatching(/^msg_/),
        answer_id: expect.stringMatching(/^msg_/),
        run_id: expect.stringMatching(/^resp_/),
        model: 'm',
      },
      { type: 'token_delta', seq: 2, id: expect.any(String), delta: 'Hello ' },
      { type: 'token_delta', seq: 3, id: events[1]!['id'], delta: 'there' },
      {
        type: 'usage',
        seq: 4,
        input_tokens: 10,
        output_tokens: 5,
        cached_tokens: 0,
        reasoning_tokens: 0,
        cost: 0,
      },
      { type: 'done', seq: 5, status: 'completed' },
    ]);
    expect(model.requests[0]).toMatchObject({ tools: [], messages: [{ role: 'user' }] });
    expect(await getChat(server, meta!['conversation_id'])).toEqual({
      id: meta!['conversation_id'],
      object: 'conversation',
      title: 'Hi',
      created_at: expect.any(Number),
      updated_at: expect.any(Number),
      instructions: null,
      memory: null,
      messages: [
        {
          id: meta!['message_id'],
          role: 'user',
          created_at: expect.any(Number),
          content: 'Hi',
          attachments: [],
        },
        {
          id: meta!['answer_id'],
          role: 'assistant',
          created_at: expect.any(Number),
          run_id: meta!['run_id'],
          model: null,
          events_after: 0,
          warnings: [],
          status: 'completed',
          parts: [{ type: 'text', text: 'Hello there' }],
          error: null,
          usage: { input_tokens: 10, output_tokens: 5, cached_tokens: 0, reasoning_tokens: 0, cost: 0 },
          waiting: [],
        },
      ],
    });
  });

  test('is answered with chained calls, and the model gets the text before them and their results', async () => {
    using model = scriptedModel([
      { text: 'Let me look. ', calls: [{ name: 'time' }] },
      { calls: [{ name: 'broken' }, { name: 'missing', arguments: { a: 1 } }] },
      TIME,
      'It is noon.',
      'As I said.',
    ]);
    await using server = await startInProcess(model, { store, ...withTools(time, broken) });
    const events = await chat(server, { message: 'What time is it?' });
    expect(typesOf(events)).toEqual([
      'conversation_meta',
      'token_delta',
      'token_delta',
      'token_delta',
      'tool_call_start',
      'tool_call_result',
      'tool_call_start',
      'tool_call_start',
      'tool_call_result',
      'tool_call_result',
      'tool_call_start',
      'tool_call_result',
      'token_delta',
      'token_delta',
      'token_delta',
      'usage',
      'done',
    ]);
    expect(events.map(({ seq }) => seq)).toEqual(events.map((_, index) => index + 1));
    const results = events.filter(({ type }) => type === 'tool_call_result');
    expect(results.map(({ is_error }) => is_error)).toEqual([false, true, true, false]);
    expect(results[0]).toMatchObject({ content: '12:00', duration_ms: expect.any(Number) });
    expect(results.some(({ content }) => content.includes('no disk'))).toBe(true);
    const { conversation_id: id } = events[0]!;
    const { messages } = await getChat(server, id);
    expect(messages[1].parts).toEqual(partsSeen(events));
    expect(messages[1].parts[0]).toEqual({ type: 'text', text: 'Let me look. ' });

    const next = await chat(server, { conversation_id: id, message: 'Sure?' });
    expect(next[0]).toMatchObject({ type: 'conversation_meta', seq: events.length + 1, conversation_id: id });
    expect(model.requests[4]!.messages.map(({ role }) => role)).toEqual([
      'user',
      'assistant',
      'tool',
      'assistant',
      'tool',
      'assistant',
      'tool',
      'assistant',
      'user',
    ]);
    expect(model.requests[4]!.messages[1]!.content[0]).toMatchObject({ type: 'text', text: 'Let me look. ' });
  });

  test('about a file is answered with what a tool has read from it', async () => {
    const root = await mkdtemp(path.join(tmpdir(), 'treadle-chat-files-'));
    await writeFile(path.join(root, 'test.txt'), 'The code is 4711.');
    using model = scriptedModel([
      { calls: [{ name: 'read', arguments: { path: 'test.txt' } }] },
      ({ messages }) => `It says: ${JSON.stringify(messages.at(-1)!.content).match(/The code is \d+/)![0]}`,
    ]);
    await using server = await startInProcess(model, { store, ...withTools(readTool(local(root))) });
    const events = await chat(server, { message: 'Read the file test.txt' });
    expect(textIn(events)).toBe('It says: The code is 4711');
    await rm(root, { recursive: true });
  });

  test('that needs more than 10 model calls gets a closing answer and an error, and what was done is known later', async () => {
    const looping = Array.from({ length: 10 }, (_, n): ScriptStep => ({ calls: [{ name: 'add', arguments: { n } }] }));
    using model = scriptedModel([...looping, 'I could not finish.', 'Again.']);
    const add = tool({ name: 'add', description: '', effect: 'pure', execute: () => 'added' });
    await using server = await startInProcess(model, { store, ...withTools(add) });
    const events = await chat(server, { message: 'Loop' });
    expect(events.filter(({ type }) => type === 'tool_call_result')).toHaveLength(10);
    expect(textIn(events)).toBe('I could not finish.');
    expect(typesOf(events).slice(-3)).toEqual(['error', 'usage', 'done']);
    expect(events.at(-3)).toMatchObject({ code: 'max_turns', message: expect.stringContaining('limit') });
    expect(events.at(-1)).toMatchObject({ type: 'done', status: 'incomplete' });
    const { conversation_id: id } = events[0]!;
    const { messages } = await getChat(server, id);
    expect(messages[1]).toMatchObject({ status: 'incomplete', error: { code: 'max_turns' } });
    expect(messages[1].parts).toEqual(partsSeen(events));
    await chat(server, { conversation_id: id, message: 'And?' });
    const known = model.requests.at(-1)!.messages;
    expect(known.filter(({ role }) => role === 'tool')).toHaveLength(10);
    expect(known.at(-2)).toMatchObject({ role: 'assistant', content: [{ text: 'I could not finish.' }] });
  });

  test('names the tools that it offers, or offers none', async () => {
    using model = scriptedModel(['a', 'b', 'c']);
    await using server = await startInProcess(model, { store, tools: [time, broken], defaultTools: ['time'] });
    await chat(server, { message: 'default' });
    await chat(server, { message: 'named', tools: ['broken'] });
    await chat(server, { message: 'none', tools: [] });
    expect(model.requests.map(({ tools }) => tools.map(({ name }) => name))).toEqual([['time'], ['broken'], []]);
    const { status, body } = await server.send('POST', '/v1/chat', { message: 'x', tools: ['missing'] });
    expect([status, body.error.code]).toEqual([400, 'unknown_tool']);
  });

  test('whose model fails ends with an error, and the next message is answered', async () => {
    const error = { code: 'invalid-request', message: 'No.', retryable: false } as const;
    using model = scriptedModel([{ type: 'failure', error }, 'Now it works.']);
    await using server = await startInProcess(model, { store });
    const events = await chat(server, { message: 'One' });
    expect(typesOf(events)).toEqual(['conversation_meta', 'error', 'usage', 'done']);
    const { conversation_id: id } = events[0]!;
    expect((await getChat(server, id)).messages[1]).toMatchObject({ status: 'failed', error: events[1] && {} });
    expect(textIn(await chat(server, { conversation_id: id, message: 'Two' }))).toBe('Now it works.');
    expect(JSON.stringify(model.requests[1]!.messages)).toContain('One');
  });

  test('of a tool that reports progress has the progress before its result', async () => {
    const slow = tool({
      name: 'slow',
      description: '',
      effect: 'pure',
      execute(_, { report }) {
        report('half ');
        report({ percent: 100 });
        return 'whole';
      },
    });
    using model = scriptedModel([{ calls: [{ name: 'slow' }] }, 'Done.']);
    await using server = await startInProcess(model, { store, ...withTools(slow) });
    const events = await chat(server, { message: 'Go' });
    const { id } = events.find(({ type }) => type === 'tool_call_start')!;
    const about = events.filter((event) => event['id'] === id);
    expect(about.map(({ type, delta, content }) => [type, delta ?? content])).toEqual([
      ['tool_call_start', undefined],
      ['tool_call_output', 'half '],
      ['tool_call_output', '{"percent":100}'],
      ['tool_call_result', 'whole'],
    ]);
  });

  test('that is invalid is rejected with 400 and the field', async () => {
    await using server = await startInProcess(scriptedModel([]), { store });
    for (const [body, param] of [
      [{}, 'message'],
      [{ message: '' }, 'message'],
      [{ message: 5 }, 'message'],
      [{ message: 'x', tools: 'time' }, 'tools'],
      [{ message: 'x', on_disconnect: 'wait' }, 'on_disconnect'],
      [{ message: 'x', conversation_id: 5 }, 'conversation_id'],
      [{ message: 'x', title: 'y' }, 'title'],
      [{ message: 'x', attachments: [{ data: 'eA==', url: 'y' }] }, 'attachments[0].url'],
    ] as const) {
      const { status, body: answer } = await server.send('POST', '/v1/chat', body);
      expect([status, answer.error.param]).toEqual([400, param]);
    }
    const unknown = await server.send('POST', '/v1/chat', { message: 'x', conversation_id: 'conv_0' });
    expect([unknown.status, unknown.body.error.code]).toEqual([404, 'conversation_not_found']);
    const model = await server.send('POST', '/v1/chat', { message: 'x', model: 'none' });
    expect([model.status, model.body.error.code]).toEqual([404, 'model_not_found']);
    expect((await server.send('GET', '/v1/chat')).body.data).toEqual([]);
  });
});

describe('attachments', () => {
  const base64 = (text: string): string => Buffer.from(text).toString('base64');
  const PNG = base64('\x89PNG');
  // It begins with a byte order mark, as some editors write it.
  const NOTES = '\uFEFFZeile 1\r\nÄpfel\0';
  const PDF = `%PDF-1.4
    1 0 obj << /Type /Catalog /Pages 2 0 R >> endobj
    2 0 obj << /Type /Pages /Kids [3 0 R] /Count 1 >> endobj
    3 0 obj << /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R
      /Resources << /Font << /F1 << /Type /Font /Subtype /Type1 /BaseFont /Helvetica >> >> >> >> endobj
    4 0 obj << /Length 40 >> stream\nBT /F1 9 Tf 50 700 Td (Hello PDF) Tj ET \nendstream endobj
    trailer << /Root 1 0 R >>`;

  test('are sent to the model with every message, listed, and returned as they were', async () => {
    using model = scriptedModel(['I see.', 'Still there.']);
    await using server = await startInProcess(model, { store });
    const attachments = [
      { name: 'cat.png', data: PNG },
      { data: `data:application/pdf;base64,${base64('%PDF-1.7')}`, name: 'a.pdf' },
      { name: 'notes.md', data: base64(NOTES) },
      { media_type: 'text/plain', data: base64('plain') },
    ];
    const [{ conversation_id: id }] = (await chat(server, { message: 'Look', attachments })) as [ChatEvent];
    await chat(server, { conversation_id: id, message: 'Again' });
    for (const { messages } of model.requests) {
      expect(messages[0]!.content).toEqual([
        { type: 'text', text: 'Look' },
        { type: 'image', mediaType: 'image/png', name: 'cat.png', source: { type: 'data', data: PNG } },
        {
          type: 'file',
          mediaType: 'application/pdf',
          name: 'a.pdf',
          source: { type: 'data', data: base64('%PDF-1.7') },
        },
        { type: 'text', text: `\n\nAttachment "notes.md":\n${NOTES}` },
        { type: 'text', text: '\n\nAttachment:\nplain' },
      ]);
    }
    const { messages } = await getChat(server, id);
    expect(messages[0]).toMatchObject({
      content: 'Look',
      attachments: [
        { id: expect.any(String), name: 'cat.png', media_type: 'image/png', size: 5 },
        { name: 'a.pdf', media_type: 'application/pdf', size: 8 },
        { name: 'notes.md', media_type: 'text/markdown', size: 19 },
        { name: null, media_type: 'text/plain', size: 5 },
      ],
    });
    const bodies = [];
    for (const { id: attachment, media_type } of messages[0].attachments) {
      const answer = await fetch(`${server.url}/v1/chat/${id}/attachments/${attachment}`);
      expect(answer.headers.get('content-type')).toContain(media_type);
      expect(answer.headers.get('content-disposition')).toBe('attachment');
      bodies.push(Buffer.from(await answer.arrayBuffer()).toString());
    }
    expect(bodies).toEqual(['\u0089PNG', '%PDF-1.7', NOTES, 'plain']);
    const missing = await server.send('GET', `/v1/chat/${id}/attachments/${messages[0].attachments[0].id}9`);
    expect([missing.status, missing.body.error.code]).toEqual([404, 'attachment_not_found']);
  });

  test('are stored once for all messages and conversations, and deleted with the last of them', async () => {
    const folder = await mkdtemp(path.join(tmpdir(), 'treadle-chat-'));
    await using cleanUp = new AsyncDisposableStack();
    cleanUp.defer(() => rm(folder, { recursive: true }));
    const file = path.join(folder, 'runs.db');
    const own = cleanUp.adopt(await openTestStore(file), (one) => one.close());
    const charsStored = async (): Promise<number> =>
      Number((await queryStored(file, 'SELECT sum(length(text)) AS chars FROM texts'))[0]!['chars']);
    using model = scriptedModel(['One.', 'Two.', 'Three.']);
    await using server = await startInProcess(model, { store: own });
    const attachments = [{ name: 'cat.png', data: Buffer.alloc(30_000, 7).toString('base64') }];
    const [{ conversation_id: first }] = (await chat(server, { message: 'Look', attachments })) as [ChatEvent];
    await chat(server, { conversation_id: first, message: 'Again' });
    const [{ conversation_id: second }] = (await chat(server, { message: 'You too', attachments })) as [ChatEvent];
    expect(await charsStored()).toBe(40_000);
    await server.send('DELETE', `/v1/chat/${first}`);
    expect(await charsStored()).toBe(40_000);
    await server.send('DELETE', `/v1/chat/${second}`);
    expect(await charsStored()).toBe(0);
  });

  test('that the model does not take are replaced by their text or a note, with a warning', async () => {
    using blind = scriptedModel(['I read.', 'Still.', 'Still.']);
    using seeing = scriptedModel(['I see.']);
    const models = new Map<string, Model>([
      ['blind', { ...blind, accepts: { images: false, files: false } }],
      ['router', { ...blind, asks: [seeing, { ...blind, accepts: { images: false } }] }],
      ['seeing', seeing],
    ]);
    await using server = await startInProcess(blind, { store, models: { default: 'blind', models } });
    const attachments = [
      { name: 'cat.png', data: PNG },
      { name: 'a.pdf', data: base64(PDF) },
      { name: 'b.pdf', data: base64('%PDF-1.7') },
      { name: 'notes.md', data: base64(NOTES) },
    ];
    const events = await chat(server, { message: 'Look', attachments, on_disconnect: 'continue' });
    const [{ conversation_id: id }] = events as [ChatEvent];
    expect(events.slice(1, 4)).toEqual([
      {
        type: 'warning',
        seq: 2,
        code: 'attachment_not_shown',
        message: 'The model "blind" does not take images. It gets a note instead of an image "cat.png".',
      },
      {
        type: 'warning',
        seq: 3,
        code: 'attachment_as_text',
        message: 'The model "blind" does not take files. It gets the text of a PDF "a.pdf" instead.',
      },
      {
        type: 'warning',
        seq: 4,
        code: 'attachment_not_shown',
        message: expect.stringMatching(/It gets a note instead of a PDF "b.pdf". Its text cannot be read: ./),
      },
    ]);
    expect(blind.requests[0]!.messages[0]!.content).toEqual([
      { type: 'text', text: 'Look' },
      { type: 'text', text: '\n\n(an image "cat.png", image/png, 1 kB, which this model cannot see)' },
      { type: 'text', text: '\n\nAttachment "a.pdf", as text:\n[page 1 of 1]\nHello PDF' },
      { type: 'text', text: '\n\n(a PDF "b.pdf", application/pdf, 1 kB, which this model cannot read)' },
      { type: 'text', text: `\n\nAttachment "notes.md":\n${NOTES}` },
    ]);

    // A model that takes them gets the originals.
    expect(typesOf(await chat(server, { conversation_id: id, model: 'seeing', message: 'And you?' }))).not.toContain(
      'warning',
    );
    const types = (request: { readonly messages: readonly Message[] }): string[] =>
      request.messages[0]!.content.map(({ type }) => type);
    expect(types(seeing.requests[0]!)).toEqual(['text', 'image', 'file', 'file', 'text']);

    // Of several models, all have to take them. Another model has answered before, so the client is told about all of them.
    const routed = await chat(server, { conversation_id: id, model: 'router', message: 'And you?' });
    expect(types(blind.requests[1]!)).toEqual(['text', 'text', 'file', 'file', 'text']);
    expect(routed.filter(({ type }) => type === 'warning')).toMatchObject([
      { message: 'The model "router" does not take images. It gets a note instead of an image "cat.png".' },
    ]);
    expect(typesOf(await chat(server, { conversation_id: id, model: 'router', message: 'More' }))).not.toContain(
      'warning',
    );
  });

  test('are enough without a text, and name the conversation', async () => {
    using model = scriptedModel(['I see.', 'Still there.']);
    await using server = await startInProcess(model, { store });
    const image = { type: 'image', mediaType: 'image/png', name: 'cat.png', source: { type: 'data', data: PNG } };
    const [{ conversation_id: id, title }] = (await chat(server, {
      message: '',
      attachments: [{ name: 'cat.png', data: PNG }],
    })) as [ChatEvent];
    expect(title).toBe('Image');
    await chat(server, { conversation_id: id, message: 'Again' });
    for (const { messages } of model.requests) expect(messages[0]!.content).toEqual([image]);
    expect((await getChat(server, id)).messages[0]).toMatchObject({ content: '', attachments: [{ name: 'cat.png' }] });
    const { body } = await server.send('GET', `/v1/conversations/${id}/items?order=asc`);
    expect(body.data[0].content).toMatchObject([{ type: 'input_image' }]);
  });

  test('of another type, too large or not valid are rejected, and nothing is stored', async () => {
    await using server = await startInProcess(scriptedModel([]), { store });
    for (const [attachment, status, code] of [
      [{ name: 'a.zip', data: base64('PK') }, 400, 'unsupported_media_type'],
      [{ media_type: 'image/svg+xml', data: base64('<svg/>') }, 400, 'unsupported_media_type'],
      [{ name: 'a.txt', data: '!' }, 400, 'invalid_base64'],
      [{ name: 'a.txt', data: '//79' }, 400, 'invalid_text'],
      [{ name: 'a.txt', data: 'A'.repeat(700_000) }, 413, 'attachment_too_large'],
      [{ name: 'a.txt' }, 400, 'missing_required_parameter'],
    ] as const) {
      const answer = await server.send('POST', '/v1/chat', { message: 'x', attachments: [attachment] });
      expect([answer.status, answer.body.error.code]).toEqual([status, code]);
      expect(answer.body.error.param).toMatch(/^attachments\[0\](\.data)?$/);
    }
    expect((await server.send('GET', '/v1/chat')).body.data).toEqual([]);
  });
});

/** A model step that waits until the test lets it reply. */
function heldStep(reply: ScriptStep): { readonly step: ScriptStep; readonly started: Promise<void>; release(): void } {
  const started = Promise.withResolvers<void>();
  const released = Promise.withResolvers<void>();
  return {
    async step(_, signal) {
      started.resolve();
      signal.addEventListener('abort', () => released.resolve());
      await released.promise;
      if (!signal.aborted) return reply as string;
      return { type: 'failure', error: { code: 'cancelled', message: 'Cancelled.', retryable: false } };
    },
    started: started.promise,
    release: released.resolve,
  };
}

describe('approvals', () => {
  test('are requested in the stream, which continues when the call is approved', async () => {
    using model = scriptedModel([PAY, 'Paid.']);
    await using server = await startInProcess(model, { store, ...withTools(pay) });
    const client = await postChat(server.url, { message: 'Pay' });
    const request = await client.event('approval_request');
    expect(request).toEqual({
      type: 'approval_request',
      seq: expect.any(Number),
      id: expect.stringMatching(/^ask_/),
      call_id: client.events.find(({ type }) => type === 'tool_call_start')!['id'],
      tool: 'pay',
      arguments: '{"amount":5}',
      digest: expect.any(String),
      touches: [],
      reason: null,
      rule: 'needsApproval',
      expires_at: expect.any(Number),
    });
    const { conversation_id: id } = await client.event('conversation_meta');
    const answers = `/v1/chat/${id}/answers`;
    while ((await getChat(server, id)).messages[1].status !== 'waiting') await setImmediate();
    const { waiting } = (await getChat(server, id)).messages[1];
    expect(waiting).toEqual([expect.objectContaining({ id: request['id'], digest: request['digest'] })]);
    const busy = await server.send('POST', '/v1/chat', { conversation_id: id, message: 'Hurry' });
    expect([busy.status, busy.body.error.code]).toEqual([409, 'conversation_busy']);

    const { id: ask, digest } = request;
    const wrong = await server.send('POST', answers, { id: ask, approved: true, digest: 'other' });
    expect([wrong.status, wrong.body.error.code]).toEqual([409, 'answer_unfit']);
    expect(await server.send('POST', answers, { id: ask, approved: true, digest })).toMatchObject({ status: 200 });
    const events = await client.ended;
    expect(typesOf(events).slice(-6)).toEqual([
      'approval_request',
      'tool_call_decision',
      'tool_call_result',
      'token_delta',
      'usage',
      'done',
    ]);
    expect(events.map(({ seq }) => seq)).toEqual(events.map((_, index) => index + 1));
    const { parts } = (await getChat(server, id)).messages[1];
    expect(parts).toEqual(partsSeen(events));
    const rule = 'needsApproval';
    expect(parts[1].decision).toEqual({ approved: true, source: 'person', by: [], rule, reason: null });
    const stale = await server.send('POST', answers, { id: ask, approved: true, digest });
    expect([stale.status, stale.body.error.code]).toEqual([409, 'answer_unfit']);
    expect(stale.body.error.message).toMatch(/it is completed/);
  });

  test('that are denied have a result, and nothing runs', async () => {
    using model = scriptedModel([PAY, 'Not paid.']);
    await using server = await startInProcess(model, { store, ...withTools(pay) });
    const client = await postChat(server.url, { message: 'Pay' });
    const { id: ask, digest } = await client.event('approval_request');
    const { conversation_id: id } = await client.event('conversation_meta');
    await server.send('POST', `/v1/chat/${id}/answers`, {
      answers: [{ id: ask, approved: false, digest, reason: 'No.' }],
    });
    const events = await client.ended;
    expect(events.find(({ type }) => type === 'tool_call_result')).toMatchObject({ is_error: true });
    expect(textIn(events)).toBe('I pay. Not paid.');
    const { parts } = (await getChat(server, id)).messages[1];
    expect(parts).toEqual(partsSeen(events));
    const rule = 'needsApproval';
    expect(parts[1].decision).toEqual({ approved: false, source: 'person', by: [], rule, reason: 'No.' });
  });

  test.for(['cancel', 'continue'])('are requested once if they are answered one by one (%s)', async (on_disconnect) => {
    const twice = { calls: [1, 2].map((amount) => ({ name: 'pay', arguments: { amount } })) };
    using model = scriptedModel([twice, 'Paid.']);
    await using server = await startInProcess(model, { store, ...withTools(pay) });
    const client = await postChat(server.url, { message: 'Pay', on_disconnect });
    const { conversation_id: id } = await client.event('conversation_meta');
    const asked = (n: number) =>
      client.event(({ type, arguments: text }) => type === 'approval_request' && text.includes(n));
    for (const n of [1, 2]) {
      const { id: ask, digest } = await asked(n);
      expect(await server.send('POST', `/v1/chat/${id}/answers`, { id: ask, approved: true, digest })).toMatchObject({
        status: 200,
      });
    }
    const events = await client.ended;
    for (const type of ['tool_call_start', 'approval_request', 'tool_call_result']) {
      expect(events.filter((event) => event.type === type)).toHaveLength(2);
    }
    expect(events.at(-1)).toMatchObject({ type: 'done', status: 'completed' });
  });

  test('that nobody answers are denied at their deadline, by any process', async () => {
    await using stores = await openStores();
    using model = scriptedModel([PAY]);
    const policy: Policy = { judge: ({ length }) => Array.from({ length }, () => ({ type: 'ask', ttlMs: 1 })) };
    await using server = await startInProcess(model, { store: stores[0], ...withTools(pay), policy });
    const client = await postChat(server.url, { message: 'Pay' });
    const { id: ask, digest } = await client.event('approval_request');
    const { conversation_id: id } = await client.event('conversation_meta');
    while (await stores[0].isDriven(client.events[0]!['run_id'])) await setImmediate();
    using other = scriptedModel(['Not paid.']);
    await using second = await startInProcess(other, { store: stores[1], ...withTools(pay), policy });
    expect(second.recovered).toBe(1);
    const events = await client.ended;
    expect(events.find(({ type }) => type === 'tool_call_result')).toMatchObject({ is_error: true });
    expect(events.at(-1)).toMatchObject({ type: 'done', status: 'completed' });
    expect(events.map(({ seq }) => seq)).toEqual(events.map((_, index) => index + 1));
    expect((await getChat(second, id)).messages[1].parts[1].decision).toMatchObject({ source: 'deadline' });
    const late = await second.send('POST', `/v1/chat/${id}/answers`, { id: ask, approved: true, digest });
    expect(late.status).toBe(409);
  });

  test('of another conversation, unknown ones and bodies without a digest are rejected', async () => {
    using model = scriptedModel([PAY, 'Other.', 'Paid.']);
    await using server = await startInProcess(model, { store, ...withTools(pay) });
    const client = await postChat(server.url, { message: 'Pay' });
    const { id: ask, digest } = await client.event('approval_request');
    const { conversation_id: id } = await client.event('conversation_meta');
    const [{ conversation_id: other }] = (await chat(server, { message: 'Hi' })) as [ChatEvent];
    const answer = (conversation: string, body: object) =>
      server.send('POST', `/v1/chat/${conversation}/answers`, body);
    expect((await answer(other, { id: ask, approved: true, digest })).body.error.code).toBe('request_not_found');
    expect((await answer(id, { id: 'ask_1', approved: true, digest })).body.error.code).toBe('request_not_found');
    expect(await answer(id, { id: `${ask}9`, approved: true, digest })).toMatchObject({ status: 409 });
    expect(await answer(id, { id: ask, answer: 'yes' })).toMatchObject({ status: 409 });
    expect((await answer(id, { id: ask, approved: true })).body.error.param).toBe('digest');
    expect((await answer(id, { id: ask })).body.error.param).toBe('approved');
    expect((await answer(id, { id: ask, approved: true, digest, answer: 'no' })).body.error.param).toBe('approved');
    expect((await answer(id, { answers: [] })).body.error.param).toBe('answers');
    expect((await answer(id, { id: ask, approved: true, digest })).status).toBe(200);
    expect((await client.ended).at(-1)).toMatchObject({ type: 'done', status: 'completed' });
  });
});

test('a message whose approvals a person answers is judged by the asking policy, unless there are keys', async () => {
  const key = newKey();
  const keys = [{ name: 'ann', hash: hashKey(key), scopes: ['chat:read', 'chat:write', 'tools:execute'] as const }];
  const policy: Policy = { judge: (calls) => calls.map(() => ({ type: 'deny', reason: 'Nobody can be asked.' })) };
  const askingPolicy: Policy = { judge: (calls) => calls.map(() => ({ type: 'ask' })) };
  const denied = { type: 'tool_call_result', is_error: true, content: expect.stringContaining('Nobody can be asked.') };
  {
    using model = scriptedModel([TIME, 'Denied.', TIME, 'Noon.', 'Later.']);
    await using server = await startInProcess(model, { store, policy, askingPolicy, ...withTools(time) });
    expect(await chat(server, { message: 'a' })).toContainEqual(expect.objectContaining(denied));
    const client = await postChat(server.url, { message: 'b', approvals: 'ask', on_disconnect: 'continue' });
    const { conversation_id: conversation } = await client.event('conversation_meta');
    const { id, digest } = await client.event('approval_request');
    await server.send('POST', `/v1/chat/${conversation}/answers`, { id, digest, approved: true });
    const events = await client.ended;
    expect(events).toContainEqual(expect.objectContaining({ type: 'tool_call_result', content: '12:00' }));
    await chat(server, { conversation_id: conversation, message: 'c', model: 'm' });
    expect((await getChat(server, String(conversation))).messages).toMatchObject([
      { role: 'user' },
      { role: 'assistant', model: null, events_after: 0 },
      { role: 'user' },
      { role: 'assistant', model: 'm', events_after: events.at(-1)!.seq },
    ]);
  }
  using model = scriptedModel([TIME, 'Denied.']);
  await using server = await startInProcess(model, { store, policy, askingPolicy, keys, ...withTools(time) });
  const headers = { authorization: `Bearer ${key}` };
  expect(await chat(server, { message: 'a', approvals: 'ask' }, headers)).toContainEqual(
    expect.objectContaining(denied),
  );
  expect((await server.send('POST', '/v1/chat', { message: 'a', approvals: 'no' }, headers)).status).toBe(400);
});

test('who decided about each call is in the events and in the conversation', async () => {
  const keys = ['ann', 'bob'].map((name) => ({ name, key: newKey() }));
  const scopes = ['chat:read', 'chat:write', 'tools:execute', 'runs:write'] as const;
  const as = (index: number) => ({ authorization: `Bearer ${keys[index]!.key}` });
  const policy: Policy = {
    judge: (calls) =>
      calls.map(({ name }) => {
        if (name === 'broken') return { type: 'deny', reason: 'It is broken.', rule: 'no-broken' };
        return name === 'pay'
          ? { type: 'ask', required: 2, rule: 'money', shown: '-1' }
          : { type: 'allow', rule: 'all' };
      }),
  };
  const calls = ['missing', 'pay', 'time', 'broken'].map((name) => ({ name, arguments: {} }));
  using model = scriptedModel([{ calls }, 'Done.']);
  await using server = await startInProcess(model, {
    store,
    policy,
    waitForAnswers: true,
    keys: keys.map(({ name, key }) => ({ name, hash: hashKey(key), scopes })),
    ...withTools(pay, time, broken),
  });
  const client = await postChat(server.url, { message: 'All' }, { headers: as(0) });
  const { conversation_id: id } = await client.event('conversation_meta');
  const { id: ask, digest, ...request } = await client.event('approval_request');
  expect(request).toMatchObject({ rule: 'money', shown: '-1', required: 2 });
  for (const index of [0, 1]) {
    const answer = { id: ask, approved: true, digest };
    expect(await server.send('POST', `/v1/chat/${id}/answers`, answer, as(index))).toMatchObject({ status: 200 });
    if (index === 1) continue;
    const { waiting } = (await getChat(server, String(id), as(0))).messages[1];
    expect(waiting).toMatchObject([{ id: ask, required: 2, approved_by: ['ann'] }]);
  }
  const events = await client.ended;
  const { parts } = (await getChat(server, String(id), as(0))).messages[1];
  expect(parts).toEqual(partsSeen(events));
  expect(parts.slice(0, 4).map(({ decision }: { decision?: object }) => decision)).toEqual([
    undefined,
    { approved: true, source: 'person', by: ['ann', 'bob'], rule: 'money', reason: null },
    undefined,
    { approved: false, source: 'policy', by: [], rule: 'no-broken', reason: 'It is broken.' },
  ]);
});

test('the calls of a response that has ended have the decisions about them', async () => {
  const policy: Policy = {
    judge: (calls) =>
      calls.map(({ name }) =>
        name === 'broken' ? { type: 'deny', reason: 'No.', rule: 'no-broken' } : { type: 'allow' },
      ),
  };
  const calls = (...names: string[]) => ({ text: 'I try. ', calls: names.map((name) => ({ name })) });
  using model = scriptedModel([calls('broken', 'time', 'broken'), calls('time', 'broken'), 'Done.', 'Fine.']);
  await using server = await startInProcess(model, { store, policy, ...withTools(time, broken) });
  const { id } = (await server.send('POST', '/v1/conversations', {})).body;
  await server.post({ input: 'All', conversation: id });
  await server.post({ input: 'Thanks', conversation: id });
  using read = vi.spyOn(store, 'read');
  const { messages } = await getChat(server, id);
  const decided = messages[1].parts.flatMap(({ type, name, decision }: Record<string, unknown>) =>
    type === 'tool_call' ? [[name, decision]] : [],
  );
  const denied = { approved: false, source: 'policy', by: [], rule: 'no-broken', reason: 'No.' };
  expect(decided).toEqual([
    ['broken', denied],
    ['time', undefined],
    ['broken', denied],
    ['time', undefined],
    ['broken', denied],
  ]);
  // Only a run with decisions is replayed.
  expect(read).toHaveBeenCalledTimes(1);
});

test('images and files in a result are parts of it, and their bytes are attachments of the conversation', async () => {
  const png = Buffer.from([0x89, 0x50, 0x4e, 0x47]);
  const look = tool({
    name: 'look',
    description: '',
    execute: () => ({
      content: [
        { type: 'text', text: 'Two pictures:' },
        {
          type: 'image',
          mediaType: 'image/PNG',
          name: 'a.png',
          source: { type: 'data', data: png.toString('base64') },
        },
        { type: 'file', mediaType: 'text/html', name: 'a.html', source: { type: 'data', data: btoa('<script>') } },
        { type: 'image', mediaType: 'image/png', source: { type: 'url', url: 'https://example.com/b.png' } },
      ],
    }),
  });
  using model = scriptedModel([{ calls: [{ name: 'look' }] }, 'Seen.', 'Again.']);
  await using server = await startInProcess(model, { store, ...withTools(look) });
  const events = await chat(server, { message: 'Look' });
  const [{ conversation_id: id, answer_id: answer }] = events as [ChatEvent];
  const { parts: all } = (await getChat(server, id)).messages[1];
  expect(all).toEqual(partsSeen(events));
  const [, image, file] = all[0].result.parts;
  expect(all[0].result).toMatchObject({
    content: expect.stringMatching(/^Two pictures:\n\(An image of type image\/PNG, /),
    parts: [
      { type: 'text', text: 'Two pictures:' },
      { type: 'image', id: expect.stringMatching(/^att_/), name: 'a.png', media_type: 'image/png', size: 4 },
      { type: 'file', id: expect.any(String), name: 'a.html', media_type: 'application/octet-stream', size: 8 },
      { type: 'text', text: expect.stringContaining('An image of type image/png') },
    ],
  });
  const fetched = async (conversation: string, attachment: string) =>
    fetch(`${server.url}/v1/chat/${conversation}/attachments/${attachment}`);
  using read = vi.spyOn(store, 'read');
  const shown = await fetched(id, image.id);
  expect(shown.headers.get('content-type')).toBe('image/png');
  expect(shown.headers.get('content-disposition')).toBe('attachment');
  expect(Buffer.from(await shown.arrayBuffer())).toEqual(png);
  expect((await fetched(id, file.id)).headers.get('content-type')).toBe('application/octet-stream');
  // The run is not replayed.
  expect(read).not.toHaveBeenCalled();
  // A branch shares the run. Another conversation does not have it.
  const { body: branch } = await server.send('POST', `/v1/chat/${id}/branch`, { message_id: answer });
  expect((await fetched(branch.id, image.id)).status).toBe(200);
  const [{ conversation_id: other }] = (await chat(server, { message: 'Hi' })) as [ChatEvent];
  for (const [where, what] of [
    [other, image.id],
    [id, image.id.replace(/\d$/, '0')],
    [id, image.id.replace(/\d$/, '3')],
    [id, image.id.replace(/\d$/, '9')],
    [id, image.id.replace(/_1_0_1$/, '_2_0_1')],
  ]) {
    expect((await fetched(where, what)).status).toBe(404);
  }
});

test('a question of a tool is sent to the client, and its answer to the tool', async () => {
  const order = tool({
    name: 'order',
    description: '',
    execute: async (_, { ask }) => `ordered ${String(await ask({ prompt: 'Which size?', choices: ['S', 'L'] }))}`,
  });
  using model = scriptedModel([{ calls: [{ name: 'order' }] }, 'Ordered.']);
  await using server = await startInProcess(model, { store, ...withTools(order) });
  const client = await postChat(server.url, { message: 'Order' });
  const question = await client.event('question');
  expect(question).toMatchObject({ tool: 'order', prompt: 'Which size?', choices: ['S', 'L'], schema: null });
  const path = `/v1/chat/${client.events[0]!['conversation_id']}/answers`;
  expect(await server.send('POST', path, { id: question['id'], answer: 'XL' })).toMatchObject({ status: 409 });
  expect(await server.send('POST', path, { id: question['id'], answer: 'L' })).toMatchObject({ status: 200 });
  const events = await client.ended;
  expect(events.find(({ type }) => type === 'tool_call_result')).toMatchObject({ content: 'ordered L' });
});

describe('while an answer is in progress', () => {
  test('a message steers it at the next turn', async () => {
    const held = heldStep(TIME);
    using model = scriptedModel([held.step, 'As you like.']);
    await using server = await startInProcess(model, { store, ...withTools(time) });
    const client = await postChat(server.url, { message: 'Go' });
    await held.started;
    const { conversation_id: id } = await client.event('conversation_meta');
    const sent = await server.send('POST', `/v1/chat/${id}/messages`, { message: 'In French' });
    expect(sent.status).toBe(200);
    held.release();
    await client.ended;
    expect(JSON.stringify(model.requests[1]!.messages)).toContain('In French');
    const { messages } = await getChat(server, id);
    // It follows what the model did before it knew the message.
    expect(messages[1].parts).toMatchObject([
      { type: 'tool_call', name: 'time' },
      { type: 'input', text: 'In French' },
      { type: 'text', text: 'As you like.' },
    ]);
    const late = await server.send('POST', `/v1/chat/${id}/messages`, { message: 'Late' });
    expect([late.status, late.body.error.code]).toEqual([409, 'conversation_idle']);
  });

  test('it can be cancelled', async () => {
    const held = heldStep('never');
    using model = scriptedModel([held.step]);
    await using server = await startInProcess(model, { store });
    const client = await postChat(server.url, { message: 'Go' });
    await held.started;
    const { conversation_id: id } = await client.event('conversation_meta');
    const { body } = await server.send('POST', `/v1/chat/${id}/cancel`, {});
    expect(body.messages[1]).toMatchObject({ status: 'cancelled' });
    expect(typesOf(await client.ended)).toEqual(['conversation_meta', 'error', 'usage', 'done']);
    expect((await server.send('POST', `/v1/chat/${id}/cancel`, {})).status).toBe(409);
  });

  test('a text that is in progress when it is cancelled stays in the answer, and the model does not get it', async () => {
    using script = scriptedModel(['Done.']);
    const model: Model = {
      ...script,
      async reply(request, emit, signal) {
        if (JSON.stringify(request.messages).includes('And now?')) return script.reply(request, emit, signal);
        emit({ type: 'reasoning-delta', text: 'I think' });
        emit({ type: 'text-delta', text: 'It is ' });
        emit({ type: 'text-delta', text: 'noo' });
        await new Promise((resolve) => signal.addEventListener('abort', resolve));
        return { type: 'failure', error: { code: 'cancelled', message: 'Cancelled.', retryable: false } };
      },
    };
    await using server = await startInProcess(model, { store });
    const client = await postChat(server.url, { message: 'Go' });
    await client.event(({ delta }) => delta === 'noo');
    const { conversation_id: id } = await client.event('conversation_meta');
    const { body } = await server.send('POST', `/v1/chat/${id}/cancel`, {});
    expect(body.messages[1].parts).toEqual([
      { type: 'reasoning', text: 'I think' },
      { type: 'text', text: 'It is noo', stopped: true },
    ]);
    expect(partsSeen(await client.ended)).toEqual(body.messages[1].parts);
    const markdown = await (await fetch(`${server.url}/v1/chat/${id}/export?format=markdown`)).text();
    expect(markdown).toContain('It is noo\n\n(stopped)');
    const items = (await server.send('GET', `/v1/conversations/${id}/items?order=asc`)).body.data;
    expect(items.at(-1)).toMatchObject({ type: 'message', status: 'incomplete', content: [{ text: 'It is noo' }] });
    await chat(server, { conversation_id: id, message: 'And now?' });
    expect(JSON.stringify(script.requests[0]!.messages)).not.toContain('noo');
  });

  test('it is steered, answered and cancelled at any process of the store', async () => {
    await using stores = await openStores();
    const [first, last] = [heldStep(TIME), heldStep('never')];
    // One call runs while the other one waits for its approval, so the run does not pause.
    const both = { calls: [{ name: 'hold' }, { name: 'pay' }] };
    using model = scriptedModel([first.step, both, last.step]);
    const holding = Promise.withResolvers<string>();
    const hold = tool({ name: 'hold', description: '', effect: 'pure', execute: () => holding.promise });
    const options = withTools(hold, pay, time);
    await using driver = await startInProcess(model, { store: stores[0], ...options });
    await using other = await startInProcess(scriptedModel([]), { store: stores[1], ...options });
    const client = await postChat(driver.url, { message: 'Pay', on_disconnect: 'continue' });
    const { conversation_id: id } = await client.event('conversation_meta');
    const act = (path: string, body = {}) => other.send('POST', `/v1/chat/${id}/${path}`, body);

    await first.started;
    expect((await act('messages', { message: 'Only a little' })).status).toBe(200);
    first.release();
    const ask = await client.event('approval_request');
    expect(model.requests[1]!.messages.at(-1)!.content).toEqual([{ type: 'text', text: 'Only a little' }]);

    const unfit = await act('answers', { id: ask['id'], approved: true, digest: 'x' });
    expect([unfit.status, unfit.body.error.code]).toEqual([409, 'answer_unfit']);
    const answer = { id: ask['id'], approved: true, digest: ask['digest'] };
    const answers = await Promise.all([act('answers', answer), act('answers', answer)]);
    expect(answers.map(({ status }) => status).sort()).toEqual([200, 409]);
    expect(await client.event(({ type, content }) => type === 'tool_call_result' && content === 'paid')).toBeDefined();

    holding.resolve('held');
    await last.started;
    const cancelled = await act('cancel');
    expect([cancelled.status, cancelled.body.messages[1].status]).toEqual([200, 'cancelled']);
    expect((await client.ended).at(-1)).toMatchObject({ type: 'done', status: 'cancelled' });
    expect((await act('cancel')).body.error.code).toBe('conversation_idle');
    expect(await stores[0].inbox.open()).toEqual([]);
  });

  test('a client that disconnects cancels it', async () => {
    const held = heldStep('never');
    using model = scriptedModel([held.step]);
    await using server = await startInProcess(model, { store });
    const client = await postChat(server.url, { message: 'Go' });
    await held.started;
    const { conversation_id: id } = await client.event('conversation_meta');
    client.disconnect();
    let status = 'in_progress';
    while (status === 'in_progress') ({ status } = (await getChat(server, id)).messages[1]);
    expect(status).toBe('cancelled');
    const after = await followChat(server.url, id);
    expect(await after.ended).toEqual([{ type: 'done', seq: expect.any(Number), status: 'cancelled' }]);
  });

  test('a client that disconnects while a call waits for its approval cancels it', async () => {
    using model = scriptedModel([PAY]);
    await using server = await startInProcess(model, { store, ...withTools(pay) });
    const client = await postChat(server.url, { message: 'Pay' });
    await client.event('approval_request');
    const { conversation_id: id } = await client.event('conversation_meta');
    while ((await getChat(server, id)).messages[1].status !== 'waiting') await setImmediate();
    client.disconnect();
    while ((await getChat(server, id)).messages[1].status !== 'cancelled') await setImmediate();
  });

  test('a client that asked for it can disconnect and continue at any process of the store', async () => {
    const held = heldStep('The end.');
    await using stores = await openStores();
    using model = scriptedModel([{ text: 'Let me see. ', calls: [{ name: 'time' }] }, held.step]);
    await using server = await startInProcess(model, { store: stores[0], ...withTools(time) });
    await using second = await startInProcess(scriptedModel([]), { store: stores[1] });
    const client = await postChat(server.url, { message: 'Go', on_disconnect: 'continue' });
    await client.event('tool_call_result');
    await held.started;
    client.disconnect();
    const seen = await client.ended;
    const { conversation_id: id } = seen[0]!;
    const after = seen.at(-1)!.seq;
    const [here, there] = [await followChat(server.url, id, { after }), await followChat(second.url, id, { after })];
    held.release();
    const rest = await here.ended;
    expect(await there.ended).toEqual(rest);
    expect(rest.at(-1)).toMatchObject({ type: 'done', status: 'completed' });
    const all = [...seen, ...rest];
    expect(all.map(({ seq }) => seq)).toEqual(all.map((_, index) => index + 1));
    expect((await getChat(second, id)).messages[1].parts).toEqual(partsSeen(all));
    expect(await (await followChat(second.url, id)).ended).toEqual(all);
  });
});

test('a client at another process gets `done`, if it has read everything before the end of the run is stored', async () => {
  const held = heldStep('The end.');
  await using stores = await openStores();
  const [own, other] = stores;
  const hasRead = Promise.withResolvers<void>();
  const finish: typeof own.requests.finish = async (...args) => {
    await hasRead.promise;
    return own.requests.finish(...args);
  };
  const read: typeof other.streams.read = async (...args) => {
    const page = await other.streams.read(...args);
    // The reader waits for a change by then.
    if ((page.at(-1)?.event as ChatEvent | undefined)?.type === 'done') setTimeout(hasRead.resolve, 0);
    return page;
  };
  const ends = { ...own, responses: { ...own.requests, finish } };
  await using server = await startInProcess(scriptedModel([held.step]), { store: ends });
  const reads = { ...other, streams: { ...other.streams, read } };
  await using second = await startInProcess(scriptedModel([]), { store: reads });
  const client = await postChat(server.url, { message: 'Go', on_disconnect: 'continue' });
  const { conversation_id: id } = await client.event('conversation_meta');
  const there = await followChat(second.url, id);
  await there.event('conversation_meta');
  held.release();
  expect((await there.ended).at(-1)).toMatchObject({ type: 'done', status: 'completed' });
});

describe('conversations', () => {
  const SCOPES = ['chat:read', 'chat:write', 'tools:execute'] as const;
  const KEYS: readonly ApiKey[] = [
    { name: 'ann', hash: hashKey('tk_ann'), tenant: 'acme', scopes: SCOPES },
    { name: 'bob', hash: hashKey('tk_bob'), tenant: 'bolt', scopes: SCOPES },
    { name: 'see', hash: hashKey('tk_see'), tenant: 'acme', scopes: ['chat:read'] },
    { name: 'app', hash: hashKey('tk_app'), tenant: 'acme', scopes: ['agents:invoke'] },
  ];
  const as = (name: string): Record<string, string> => ({ authorization: `Bearer tk_${name}` });

  test('are listed in pages, found by their texts, renamed and deleted', async () => {
    using model = scriptedModel(['Paris is lovely', 'Oslo is cold', 'Use flour']);
    await using server = await startInProcess(model, { store });
    const ids: string[] = [];
    for (const message of ['Where to go?', 'And in winter?', 'A cake, s’il vous plaît']) {
      ids.push((await chat(server, { message }))[0]!['conversation_id']);
    }
    const list = async (query: string): Promise<number[]> => {
      const { body } = await server.send('GET', `/v1/chat?${query}`);
      return body.data.map(({ id }: { id: string }) => ids.indexOf(id));
    };
    expect(await list('')).toEqual([2, 1, 0]);
    expect(await list('search=lovely+PARIS')).toEqual([0]);
    expect(await list('search=wint')).toEqual([1]);
    expect(await list('search=plait')).toEqual([2]);
    expect(await list('search=is')).toEqual([1, 0]);
    expect(await list('search=%22%20OR%20*')).toEqual([]);
    const { body: page } = await server.send('GET', '/v1/chat?limit=2');
    expect(page).toMatchObject({ has_more: true, next_cursor: expect.any(String) });
    expect(await list(`limit=2&cursor=${page.next_cursor}`)).toEqual([0]);
    const { body: renamed } = await server.send('PATCH', `/v1/chat/${ids[1]}`, { title: 'Norwegian nights' });
    expect(renamed.title).toBe('Norwegian nights');
    expect(await list('search=norwegian')).toEqual([1]);
    expect((await server.send('DELETE', `/v1/chat/${ids[1]}`)).body).toMatchObject({ deleted: true });
    expect(await list('')).toEqual([2, 0]);
    expect(await list('search=cold')).toEqual([]);
    expect((await server.send('GET', `/v1/chat/${ids[1]}`)).status).toBe(404);
    expect(await store.list({})).toHaveLength(2);
    expect((await server.send('GET', '/v1/chat?limit=0')).body.error.param).toBe('limit');
    expect((await server.send('GET', '/v1/chat?cursor=x')).body.error.param).toBe('cursor');
  });

  test('are branched from an answer or before a message, and outlive the original', async () => {
    using model = scriptedModel(['one', 'two', 'other two', 'other one']);
    await using server = await startInProcess(model, { store });
    const [{ conversation_id: id, answer_id }] = (await chat(server, { message: 'first' })) as [ChatEvent];
    const [{ message_id }] = (await chat(server, { conversation_id: id, message: 'second' })) as [ChatEvent];
    const branch = async (message: string) => {
      const { body } = await server.send('POST', `/v1/chat/${id}/branch`, { message_id: message });
      return body;
    };
    const fromAnswer = await branch(answer_id);
    const beforeSecond = await branch(message_id);
    for (const { messages } of [fromAnswer, beforeSecond]) expect(messages).toHaveLength(2);
    const first = (await getChat(server, id)).messages[0].id;
    expect((await branch(first)).messages).toEqual([]);
    expect((await branch('msg_x')).error.code).toBe('message_not_found');
    const events = await chat(server, { conversation_id: fromAnswer.id, message: 'second again' });
    expect(textIn(events)).toBe('other two');
    expect(model.requests[2]!.messages.map(({ content }) => content)).toHaveLength(3);
    expect((await getChat(server, id)).messages).toHaveLength(4);
    await server.send('DELETE', `/v1/chat/${id}`);
    expect((await getChat(server, fromAnswer.id)).messages).toHaveLength(4);
    expect(textIn(await chat(server, { conversation_id: beforeSecond.id, message: 'x' }))).toBe('other one');
    expect(JSON.stringify(model.requests[3]!.messages)).toContain('one');
  });

  test('begin with their first words as the title, and get one from the model, which does not delay the answer', async () => {
    const held = heldStep(' "Weather in\nOslo."\n');
    const error = { code: 'invalid-request', message: 'No.', retryable: false } as const;
    using model = scriptedModel(['Cold.', held.step, 'Warm.', { type: 'failure', error }]);
    await using server = await startInProcess(model, { store, chatTitles: true });
    const [{ conversation_id: id }] = (await chat(server, { message: 'How is Oslo?' })) as [ChatEvent];
    expect((await getChat(server, id)).title).toBe('How is Oslo?');
    await held.started;
    held.release();
    while ((await getChat(server, id)).title !== 'Weather in Oslo') await setImmediate();
    expect(model.requests[1]).toMatchObject({ tools: [], settings: { maxOutputTokens: 64 } });
    const message = `And Rome? ${'Tell me more. '.repeat(20)}`;
    const [{ conversation_id: other, title }] = (await chat(server, { message })) as [ChatEvent];
    expect(title).toBe('And Rome? Tell me more. Tell me more. Tell me more. Tell me…');
    while (model.requests.length < 4) await setImmediate();
    expect((await getChat(server, other)).title).toBe(title);
    expect((await server.send('GET', '/v1/chat?search=weather')).body.data).toHaveLength(1);
  });

  test('keep their first title if a guardrail stops the message, before the model gets it, or the title', async () => {
    const checked: string[] = [];
    const check = ({ text }: { readonly text: string }) => checked.push(text) > 0 && !text.includes('secret');
    const isFine: Guardrail = (answer) => check(answer) || 'It is secret.';
    using model = scriptedModel(['Cold.', 'A secret city']);
    const guardrails = { input: [isFine], output: [isFine] };
    await using server = await startInProcess(model, { store, chatTitles: true, guardrails });
    const [{ conversation_id: stopped }] = (await chat(server, { message: 'A secret' })) as [ChatEvent];
    while (checked.length < 2) await setImmediate();
    expect(model.requests).toEqual([]);
    const [{ conversation_id: id }] = (await chat(server, { message: 'Oslo?' })) as [ChatEvent];
    while (checked.length < 6) await setImmediate();
    expect(checked).toEqual(['A secret', 'A secret', 'Oslo?', 'Cold.', 'Oslo?', 'A secret city']);
    expect((await getChat(server, stopped)).title).toBe('A secret');
    expect((await getChat(server, id)).title).toBe('Oslo?');
  });

  test('are exported as JSON and as Markdown', async () => {
    using model = scriptedModel([TIME, 'Noon.']);
    await using server = await startInProcess(model, { store, ...withTools(time) });
    const [{ conversation_id: id }] = (await chat(server, { message: 'Time?' })) as [ChatEvent];
    expect((await server.send('GET', `/v1/chat/${id}/export`)).body).toEqual(await getChat(server, id));
    const text = await (await fetch(`${server.url}/v1/chat/${id}/export?format=markdown`)).text();
    expect(text).toBe(
      '# Time?\n\n## User\n\nTime?\n\n## Assistant\n\nCall of `time`:\n\n```\n{}\n```\n\nResult:\n\n```\n12:00\n```\n\nNoon.\n',
    );
  });

  test('are exported as Markdown also with many code marks in a call', async () => {
    using model = scriptedModel([]);
    await using server = await startInProcess(model, { store });
    const call = { type: 'function_call', call_id: 'c', name: 'f', arguments: JSON.stringify('a`'.repeat(150_000)) };
    const { body } = await server.send('POST', '/v1/conversations', { items: [call] });
    const answer = await fetch(`${server.url}/v1/chat/${body.id}/export?format=markdown`);
    expect(answer.status).toBe(200);
    expect(await answer.text()).toContain('a`a`');
  });

  test('belong to a tenant and need the scopes chat:read and chat:write', async () => {
    using model = scriptedModel(['Hi']);
    await using server = await startInProcess(model, { store, keys: KEYS });
    const [{ conversation_id: id }] = (await chat(server, { message: 'x' }, as('ann'))) as [ChatEvent];
    expect((await getChat(server, id, as('see'))).messages).toHaveLength(2);
    expect((await server.send('POST', '/v1/chat', { message: 'x' }, as('see'))).status).toBe(403);
    expect((await server.send('GET', '/v1/chat', undefined, as('app'))).status).toBe(403);
    expect((await server.send('GET', '/v1/chat', undefined, as('bob'))).body.data).toEqual([]);
    for (const [method, path, body] of [
      ['GET', '', undefined],
      ['GET', '/stream', undefined],
      ['GET', '/export', undefined],
      ['PATCH', '', { title: 'mine' }],
      ['DELETE', '', undefined],
      ['POST', '/branch', { message_id: 'x' }],
      ['POST', '/answers', { id: 'x', answer: 1 }],
      ['POST', '/messages', { message: 'x' }],
      ['POST', '/cancel', {}],
    ] as const) {
      const { status, body: answer } = await server.send(method, `/v1/chat/${id}${path}`, body, as('bob'));
      expect([path, status, answer.error.code]).toEqual([path, 404, 'conversation_not_found']);
    }
    const foreign = await server.send('POST', '/v1/chat', { message: 'x', conversation_id: id }, as('bob'));
    expect(foreign.status).toBe(404);
  });

  test('that are extended by two processes at the same time get one of the messages', async () => {
    const held = heldStep('b');
    await using stores = await openStores();
    using model = scriptedModel(['a', held.step]);
    await using server = await startInProcess(model, { store: stores[0] });
    await using second = await startInProcess(model, { store: stores[1] });
    const [{ conversation_id: id }] = (await chat(server, { message: 'first' })) as [ChatEvent];
    const posts = await Promise.allSettled(
      [server, second].map(({ url }) => postChat(url, { conversation_id: id, message: 'next' })),
    );
    held.release();
    expect(posts.map(({ status }) => status).toSorted()).toEqual(['fulfilled', 'rejected']);
    for (const post of posts) {
      if (post.status === 'rejected') expect(String(post.reason)).toContain('conversation_busy');
      else expect((await post.value.ended).at(-1)).toMatchObject({ type: 'done' });
    }
    expect((await getChat(second, id)).messages).toHaveLength(4);
    expect(await stores[0].requests.unfinished()).toEqual([]);
  });
});

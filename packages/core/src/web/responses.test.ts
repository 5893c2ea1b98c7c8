import { expect, test } from 'vitest';
import { z } from 'zod';
import { defineAgent } from '../agents/define.ts';
import { streamAgent } from '../agents/execute.ts';
import { runLoop, streamLoop } from '../driver/run.ts';
import type { Journal } from '../journal/port.ts';
import type { Model } from '../model.ts';
import { scriptedModel } from '../testing/index.ts';
import { tool } from '../tools/tool.ts';
import { toEventStreamResponse, toTextResponse } from './responses.ts';

const look = tool({ name: 'look', description: 'Looks', execute: () => 'a bird' });
const error = { code: 'auth', message: 'The key is wrong.', retryable: false } as const;
const failing = (): Model => scriptedModel([{ type: 'failure', error }]);
/** A model that says one word and then nothing. */
const silent: Model = {
  id: 'silent',
  reply: (_, emit) => (emit({ type: 'text-delta', text: 'Well' }), new Promise(() => {})),
};

interface SentEvent {
  readonly event: string;
  readonly data: Readonly<Record<string, unknown>>;
}

/** The events of a whole stream. */
async function eventsOf(response: Response): Promise<readonly SentEvent[]> {
  const frames = (await response.text()).split('\n\n').filter((frame) => frame !== '' && !frame.startsWith(':'));
  return frames.map((frame) => {
    const [, event = '', data = ''] = /^event: (.*)\ndata: (.*)$/.exec(frame) ?? [];
    return { event, data: JSON.parse(data) as SentEvent['data'] };
  });
}

test('toTextResponse sends the text of the model', async () => {
  const live = streamLoop({
    model: scriptedModel([{ calls: [{ name: 'look' }] }, 'Ein Vogel, schön.']),
    tools: [look],
    input: 'Go.',
  });
  const response = toTextResponse(live, { status: 201, headers: { 'X-Run': live.runId } });
  expect([response.status, response.headers.get('content-type')]).toEqual([201, 'text/plain; charset=utf-8']);
  expect(response.headers.get('x-run')).toBe(live.runId);
  expect(await response.text()).toBe('Ein Vogel, schön.');
});

test('toTextResponse breaks off if the run fails', async () => {
  const response = toTextResponse(streamLoop({ model: failing(), input: 'Go.' }));
  await expect(response.text()).rejects.toMatchObject({ name: 'RunError', code: 'auth', message: error.message });
});

test('toEventStreamResponse sends items as events, and the result', async () => {
  const model = scriptedModel([{ calls: [{ name: 'look' }] }, 'A bird.']);
  const response = toEventStreamResponse(streamLoop({ model, tools: [look], input: 'Go.', runId: 'r' }));
  expect(response.headers.get('content-type')).toBe('text/event-stream; charset=utf-8');
  const events = await eventsOf(response);
  const types = events.map(({ event }) => event);
  expect(types.filter((type) => !type.endsWith('-delta'))).toEqual([
    'turn-started',
    'call-started',
    'call-answered',
    'turn-started',
    'done',
  ]);
  expect(events.find(({ event }) => event === 'text-delta')?.data).toMatchObject({ type: 'text-delta' });
  expect(events.at(-1)?.data).toMatchObject({
    runId: 'r',
    outcome: { type: 'completed' },
    text: 'A bird.',
    waiting: [],
  });
  expect(events.at(-1)?.data).not.toHaveProperty('messages');
});

test('toEventStreamResponse sends the failure and the result of a run that failed', async () => {
  const events = await eventsOf(toEventStreamResponse(streamLoop({ model: failing(), input: 'Go.' })));
  expect(events.map(({ event }) => event)).toEqual(['turn-started', 'run-failed', 'done']);
  expect(events[1]?.data).toMatchObject({ code: 'auth', message: error.message });
});

test('toEventStreamResponse ends with an error if the journal fails', async () => {
  const journal: Journal = { append: () => Promise.reject(new Error('disk full')), read: async () => [] };
  const live = streamLoop({ model: scriptedModel(['Done.']), input: 'Go.', journal });
  const events = await eventsOf(toEventStreamResponse(live));
  expect(events.at(-1)).toMatchObject({ event: 'error', data: { code: 'journal-failed' } });
});

test('toEventStreamResponse sends only the types that were asked for', async () => {
  const live = streamLoop({ model: scriptedModel(['Done.']), input: 'Go.' });
  const events = await eventsOf(toEventStreamResponse(live, { types: ['turn-started'] }));
  expect(events.map(({ event }) => event)).toEqual(['turn-started', 'done']);
});

test('an agent can be streamed too', async () => {
  const agent = defineAgent({
    name: 'locator',
    description: 'Finds a city',
    model: scriptedModel([{ calls: [{ name: 'answer', arguments: { city: 'Oslo' } }] }]),
    prompts: { user: 'Where?' },
    tools: { output: { name: 'answer', description: 'The city' } },
    validation: { outputSchema: z.object({ city: z.string() }), maxAttempts: 1 },
  });
  const events = await eventsOf(toEventStreamResponse(streamAgent(agent, { input: undefined })));
  expect(events.at(-1)).toMatchObject({ event: 'done', data: { type: 'success', output: { city: 'Oslo' } } });
});

test('a silent stream has comments', async () => {
  const live = streamLoop({ model: silent, input: 'Go.' });
  const reader = toEventStreamResponse(live, { heartbeatMs: 1, types: [] }).body!.getReader();
  const { value } = await reader.read();
  expect(new TextDecoder().decode(value)).toBe(': keep-alive\n\n');
  await reader.cancel();
});

test.each([toTextResponse, toEventStreamResponse])('%o cancels the run if the client disconnects', async (respond) => {
  const live = streamLoop({ model: silent, input: 'Go.' });
  const reader = respond(live).body!.getReader();
  await reader.read();
  await reader.cancel();
  expect((await live.result).outcome).toEqual({ type: 'cancelled', phase: 'model' });
});

test.each([toTextResponse, toEventStreamResponse])('%o rejects the result of a run', async (toResponse) => {
  const result = await runLoop({ model: scriptedModel(['Hi.']), input: 'Go.' });
  expect(() => toResponse(result as never)).toThrow('Pass what streamLoop or streamAgent returned.');
});

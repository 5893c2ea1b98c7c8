import { forkRun, memoryJournal, runLoop, tool } from '@treadle/core';
import { expect, test } from 'vitest';
import { answer, answering, typeOf } from '../../test/fetches.ts';
import { fixtures } from '../../test/fixtures.ts';
import { asked } from '../../test/request.ts';
import { scriptedServer, stream } from '../../test/scripted-server.ts';
import { google, type GoogleOptions } from './google.ts';

const fixture = fixtures('google');

test.each<[GoogleOptions, string]>([
  [
    { model: 'gemini-3.5-flash' },
    'https://generativelanguage.googleapis.com/v1beta/models/gemini-3.5-flash:streamGenerateContent?alt=sse',
  ],
  [
    { model: 'gemini-3.5-flash', stream: false },
    'https://generativelanguage.googleapis.com/v1beta/models/gemini-3.5-flash:generateContent',
  ],
  [
    { model: 'tunedModels/my one', baseURL: 'http://127.0.0.1:9/x/?a=1' },
    'http://127.0.0.1:9/x/tunedModels/my%20one:streamGenerateContent?a=1&alt=sse',
  ],
])('sends %j to %s, with the key in its header', async (options, url) => {
  const name = options.stream === false ? 'whole.json' : 'text.sse';
  const { fetch, seen } = answering(answer(fixture(name), typeOf(name)));
  const { reply } = await asked(google({ ...options, apiKey: 'AIza-test', fetch }));
  expect(reply).toMatchObject({ type: 'reply' });
  expect(seen[0]).toMatchObject({ url, headers: { 'x-goog-api-key': 'AIza-test' } });
  expect(seen[0]!.headers).not.toHaveProperty('authorization');
});

test.each([
  ['gemini-2.5-pro', true, { includeThoughts: true }],
  ['gemini-3.1-pro-preview', true, { includeThoughts: true }],
  ['gemini-flash-latest', true, { includeThoughts: true }],
  ['gemini-2.0-flash', false, undefined],
  ['gemma-3-27b-it', false, undefined],
])('knows from its name whether %s thinks: %s', async (model, thinks, config) => {
  const { fetch, seen } = answering(answer(fixture('text.sse'), typeOf('text.sse')));
  const made = google({ model, fetch });
  await asked(made);
  expect(made.takes?.includes('reasoning')).toBe(thinks);
  expect((seen[0]!.body['generationConfig'] as Record<string, unknown>)['thinkingConfig']).toEqual(config);
});

test('rejects invalid options', () => {
  expect(() => google({ model: 'm', thinking: 'deep' as 'level' })).toThrow(
    'google: "thinking" must be "level", "budget" or "none".',
  );
  expect(() => google({} as GoogleOptions)).toThrow('google: "model" is missing');
});

const weather = tool({
  name: 'get_weather',
  description: 'The weather',
  input: { type: 'object' },
  effect: 'pure',
  execute: () => 'snow',
});
const time = tool({
  name: 'get_time',
  description: 'The time',
  input: { type: 'object' },
  effect: 'pure',
  execute: () => 'noon',
});

test('signatures go back on the exact part, also in a fork from the journal', async () => {
  await using host = await scriptedServer(
    ...['parallel-calls.sse', 'signed-text.sse', 'signed-text.sse', 'text.sse'].map((name) => stream(fixture(name))),
  );
  const model = google({ model: 'gemini-3.1-pro-preview', baseURL: host.url });
  const tools = [weather, time];
  const journal = memoryJournal();
  const first = await runLoop({ model, tools, journal, runId: 'run', input: 'How is it?' });
  expect(first.outcome).toEqual({ type: 'completed' });
  const forked = await forkRun({ journal, runId: 'run', at: 3, changes: { instructions: 'Be brief.' } });
  await runLoop({ model, tools, journal, runId: forked });
  await runLoop({
    model,
    tools,
    input: [...first.messages, { role: 'user', content: [{ type: 'text', text: 'And?' }] }],
  });

  const sent = host.seen.map(({ body }) => (body as { contents: { parts: Record<string, unknown>[] }[] }).contents);
  const SIGNATURE = 'EqoGCqcGAXLI2nyhB9Cv0b3s7dY9fKqU+Hq4xW1m0u5gk3cQe/8rPzv2JtLaXw==';
  const calls = [
    { text: "I'll look up both." },
    { functionCall: { id: 'a1', name: 'get_weather', args: { city: 'Oslo' } }, thoughtSignature: SIGNATURE },
    { functionCall: { id: 'a2', name: 'get_time', args: {} } },
    { functionCall: { id: 'a3', name: 'get_weather', args: { city: 'Rome' } } },
  ];
  const responses = ['a1', 'a2', 'a3'].map((id) => ({ functionResponse: expect.objectContaining({ id }) }));
  for (const contents of sent.slice(1)) {
    expect(contents[1]!.parts).toEqual(calls);
    expect(contents[2]!.parts).toEqual(responses);
  }
  expect(sent[3]![3]!.parts).toEqual([{ text: 'It is noon.' }, { text: '', thoughtSignature: SIGNATURE }]);
});

import type { Model, ModelReply } from '@treadle/core';
import { scriptedModel } from '@treadle/core/testing';
import { expect, test } from 'vitest';
import { passes, probe, probeProblem, probeText, type Probe } from './probe.ts';

const CALL = { calls: [{ name: 'ping', arguments: { word: 'treadle' } }] };
const failure = (code: 'auth' | 'invalid-request', message: string): ModelReply => ({
  type: 'failure',
  error: { code, message, retryable: false },
});
const silent = (model: Model): Model => ({
  id: model.id,
  reply: (request, _, signal) => model.reply(request, () => {}, signal),
});
const probed = (model: Model): Promise<Probe> => probe(model, new AbortController().signal);
const ms = expect.any(Number);

test('asks a model once if it calls the tool', async () => {
  using model = scriptedModel([CALL]);
  expect(await probed(model)).toEqual({ reachable: true, tools: true, streams: true, ms });
  expect(model.requests[0]).toMatchObject({ tools: [{ name: 'ping' }], toolChoice: 'auto' });
});

test('requires a call if the model replies with text, and ignores calls of other tools', async () => {
  using talks = scriptedModel(['pong', CALL]);
  expect(await probed(talks)).toMatchObject({ tools: true });
  expect(talks.requests[1]).toMatchObject({ toolChoice: 'required' });
  using never = scriptedModel(['pong', { calls: [{ name: 'other' }] }]);
  expect(await probed(never)).toMatchObject({ reachable: true, tools: false });
  using refuses = scriptedModel(['pong', failure('invalid-request', 'tool_choice')]);
  expect(await probed(refuses)).toMatchObject({ reachable: true, tools: false });
});

test('asks without tools if the model rejects the request, and reports other failures', async () => {
  using toolless = scriptedModel([failure('invalid-request', 'no tools'), 'ok']);
  expect(await probed(toolless)).toMatchObject({ reachable: true, tools: false, error: { message: 'no tools' } });
  expect(toolless.requests[1]!.tools).toEqual([]);
  using wrong = scriptedModel([failure('invalid-request', 'no such model'), failure('invalid-request', 'again')]);
  expect(await probed(wrong)).toEqual({
    reachable: false,
    ms,
    error: expect.objectContaining({ message: 'no such model' }),
  });
  using locked = scriptedModel([failure('auth', 'no key')]);
  expect(await probed(locked)).toMatchObject({ reachable: false, error: { code: 'auth' } });
});

test('reports that a model does not stream', async () => {
  expect(await probed(silent(scriptedModel([CALL])))).toEqual({ reachable: true, tools: true, streams: false, ms });
});

test('describes the result of a test', () => {
  const fine: Probe = { reachable: true, tools: true, streams: false, ms: 50 };
  expect([passes(fine), probeText(fine), probeProblem(fine)]).toEqual([
    true,
    'reachable, supports tools, does not stream (50 ms)',
    undefined,
  ]);
  const toolless: Probe = { reachable: true, tools: false, streams: true, ms: 50 };
  expect([passes(toolless), probeText(toolless), probeProblem(toolless)]).toEqual([
    false,
    'reachable, no tools, streams (50 ms)',
    'The model replies, but does not call tools.',
  ]);
  const error = { code: 'auth', message: 'no\u001b[2J', retryable: false } as const;
  const locked: Probe = { reachable: false, ms: 1, error };
  expect([passes(locked), probeText(locked), probeProblem(locked)]).toEqual([false, 'failed: auth', 'no\\u001b[2J']);
});

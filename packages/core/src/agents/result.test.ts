import { expect, test } from 'vitest';
import type { LoopResult } from '../driver/options.ts';
import type { Message } from '../messages.ts';
import { defineAgent, type AnyAgent, type Observability } from './define.ts';
import { metadataOf } from './result.ts';
import { newResult } from './run-agent.ts';

function agentOf(reflection: boolean, observability?: Observability): AnyAgent {
  const output = { name: 'answer', description: 'Answers' };
  return defineAgent<unknown, unknown>({
    name: 'a',
    description: 'An agent',
    model: { id: 'm', reply: () => Promise.reject(new Error('unexpected model call')) },
    prompts: { user: 'Go' },
    tools: { output: reflection ? { ...output, reflectionHandler: () => '' } : output },
    validation: { outputSchema: { type: 'object' }, maxAttempts: 3 },
    ...(observability && { observability }),
  });
}

const results = (...names: readonly string[]): Message => ({
  role: 'tool',
  content: names.map((name, index) => ({
    type: 'tool-result',
    callId: `${index}`,
    name: name.replace('!', ''),
    content: [],
    isError: name.endsWith('!'),
  })),
});

const result: LoopResult = newResult({
  runId: 'r',
  waiting: [],
  text: '',
  messages: [results('look', 'look!', 'answer!'), results('submit!', '__proto__!')],
  model: 'm',
  toolsUsed: [],
  usage: { inputTokens: 1, outputTokens: 2, cachedTokens: 3, cacheWriteTokens: 4, reasoningTokens: 5, cost: 6 },
  turns: 5,
  calls: 2,
  durationMs: 7,
  agent: { attempt: 2, from: 3, proposal: undefined, memory: undefined, rejection: undefined },
});

test('metadataOf returns attempts, iterations, tokens, cost, latency, tools and callback errors', () => {
  const callbackErrors = [{ callback: 'onSuccess', message: 'no' }];
  expect(metadataOf(agentOf(false), result, callbackErrors)).toEqual({
    runId: 'r',
    attempts: 2,
    iterations: 5,
    tokens: { input: 1, output: 2, cacheRead: 3, cacheWrite: 4, reasoning: 5 },
    cost: 6,
    latencyMs: 7,
    tools: Object.fromEntries([
      ['look', { calls: 2, errors: 1 }],
      ['answer', { calls: 1, errors: 0 }],
      ['submit', { calls: 1, errors: 1 }],
      ['__proto__', { calls: 1, errors: 1 }],
    ]),
    callbackErrors,
  });
});

test('with reflection, a rejection is not counted as an error of submit', () => {
  expect(metadataOf(agentOf(true), result, []).tools).toMatchObject({
    answer: { calls: 1, errors: 1 },
    submit: { calls: 1, errors: 0 },
  });
});

test.for([
  [{ attempt: 1, from: 0 }, 0, 0],
  [{ attempt: 1, from: 0 }, 1, 1],
  [{ attempt: 3, from: 4 }, 4, 2],
  [{ attempt: 3, from: 4 }, 5, 3],
] as const)('counts started attempts: %j after %i turns', ([agent, turns, attempts]) => {
  const metadata = metadataOf(agentOf(false), { ...result, turns, agent: { ...result.agent!, ...agent } }, []);
  expect(metadata.attempts).toBe(attempts);
});

test('a run that was not started has no attempts', () => {
  const { agent: _, ...never } = { ...result, turns: 0 };
  expect(metadataOf(agentOf(false), never, [])).toMatchObject({ attempts: 0, iterations: 0 });
});

test('omits tokens, cost and latency when tracking is off', () => {
  const metadata = metadataOf(agentOf(false, { trackTokens: false, trackLatency: false }), result, []);
  expect(Object.keys(metadata)).toEqual(['runId', 'attempts', 'iterations', 'tools', 'callbackErrors']);
});

import { expect, test } from 'vitest';
import { fixtures } from '../../test/fixtures.ts';
import { call, reasoning, text } from '../../test/parts.ts';
import { replayer } from '../../test/replay.ts';
import { openaiChatProtocol } from '../openai-chat/openai-chat.ts';

const protocol = openaiChatProtocol({ model: 'm', stream: true });
const { replay, expectSameHoweverCut } = replayer(protocol);
const fixture = fixtures();

const called = { type: 'reply', finish: 'tool-calls', rawFinish: 'tool_calls' };

const EXPECTED: Record<string, unknown> = {
  'vllm-reasoning-call.sse': {
    ...called,
    content: [reasoning('Oslo it is.'), call('chatcmpl-tool-4f0d2c6be1', 'get_weather', '{"city": "Oslo"}')],
    usage: { inputTokens: 171, outputTokens: 50 },
    model: 'Qwen/Qwen3-32B',
  },
  'vllm-error-frame.sse': {
    type: 'failure',
    error: {
      code: 'overloaded',
      message:
        'The provider broke off with an error: EngineCore encountered an issue. See stack trace (above) for the root cause.',
      retryable: true,
      status: 500,
    },
  },
  'llamacpp-parallel-calls.sse': {
    ...called,
    content: [
      reasoning('Both.'),
      call('vWsVwYkZKpRmP8Xc', 'get_weather', '{"city":"Oslo"}'),
      call('Hn1cQb7tUeLy2Dzg', 'get_weather', '{"city":"Rome"}'),
    ],
    usage: { inputTokens: 190, outputTokens: 44 },
    model: 'qwen3',
  },
  'llamacpp-error-frame.sse': {
    type: 'failure',
    error: {
      code: 'context-length',
      message: 'The provider broke off with an error: Context size has been exceeded.',
      retryable: false,
      status: 500,
    },
  },
  'lmstudio-call.sse': {
    ...called,
    content: [reasoning('Weather then.'), call('365174485', 'get_weather', '{"city":"Oslo"}')],
    usage: { inputTokens: 130, outputTokens: 35 },
    model: 'openai/gpt-oss-20b',
  },
  'lmstudio-error-event.sse': {
    type: 'failure',
    error: {
      code: 'protocol',
      message:
        'The provider broke off with an error: The model has crashed without additional information. (Exit code: 18446744072635810000)',
      retryable: true,
    },
  },
  'together-call.sse': {
    ...called,
    content: [call('call_yq3bxk5f', 'get_weather', '{"city":"Oslo"}')],
    usage: { inputTokens: 260, outputTokens: 24 },
    model: 'meta-llama/Llama-3.3-70B-Instruct-Turbo',
  },
  'mistral-thinking-calls.sse': {
    ...called,
    content: [
      reasoning('Two cities.'),
      text('On it.'),
      call('D681PevKs', 'get_weather', '{"city": "Oslo"}'),
      call('vVUhjiKpO', 'get_weather', '{"city": "Rome"}'),
    ],
    usage: { inputTokens: 140, outputTokens: 50 },
    model: 'mistral-medium-latest',
  },
  'groq-error-event.sse': {
    type: 'failure',
    error: {
      code: 'invalid-request',
      message: expect.stringContaining('Failed to call a function.'),
      retryable: false,
      status: 400,
    },
  },
  'openrouter-signed-reasoning-call.sse': {
    ...called,
    content: [
      {
        type: 'reasoning',
        text: 'Oslo it is.',
        signature: expect.stringMatching(
          /^\[\{"type":"reasoning\.text","format":"anthropic-claude-v1","index":0,"signature":"EqoBCkg[^"]*=","text":"Oslo it is\."\}\]$/,
        ),
        protocol: 'openrouter',
      },
      call('toolu_01Nn6xU', 'get_weather', '{"city": "Oslo"}'),
    ],
    usage: {
      inputTokens: 420,
      outputTokens: 66,
      cachedTokens: 256,
      cacheWriteTokens: 100,
      reasoningTokens: 12,
      cost: 0.00225,
    },
    model: 'anthropic/claude-sonnet-4.5',
  },
  'openrouter-encrypted-reasoning-call.sse': {
    ...called,
    content: [
      {
        type: 'reasoning',
        text: '',
        signature:
          '[{"type":"reasoning.encrypted","data":"CiQB4/H/XpZ0fZ","id":"tool_0_get_weather_x1","format":"google-gemini-v1","index":0}]',
        protocol: 'openrouter',
      },
      call('tool_0_get_weather_x1', 'get_weather', '{"city":"Oslo"}'),
    ],
    usage: { inputTokens: 90, outputTokens: 30, cost: 0.0006 },
    model: 'google/gemini-3-pro-preview',
  },
};

test.each(Object.keys(EXPECTED))(
  '%s: the reply is the same whole, byte by byte, split at every point and with CRLF',
  (name) => {
    expect(replay([fixture(name)]).reply).toEqual(EXPECTED[name]);
    expectSameHoweverCut(fixture(name));
  },
);

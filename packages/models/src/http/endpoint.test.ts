import { runLoop, type Model } from '@treadle/core';
import { afterEach, describe, expect, test, vi } from 'vitest';
import { asked, request } from '../../test/request.ts';
import { anthropic } from '../anthropic/anthropic.ts';
import { google } from '../google/google.ts';
import { ollama } from '../ollama/ollama.ts';
import { openaiChat } from '../openai-chat/openai-chat.ts';
import { groq, openRouter, type PresetOptions } from '../openai-compatible/presets.ts';
import { openaiResponses } from '../openai-responses/openai-responses.ts';
import type { EndpointOptions } from './endpoint.ts';
import type { Fetch } from './send.ts';

test.each(['', ' '])('rejects an empty key with a message of its own: %j', (apiKey) => {
  expect(() => openaiChat({ model: 'm', apiKey })).toThrow(
    'openaiChat: "apiKey" is empty. Set the variable that it is read from, or omit it if no key is needed.',
  );
});

test('accepts an undefined key, as an unset environment variable gives', () => {
  const apiKey: string | undefined = process.env['TREADLE_NO_SUCH_KEY'];
  expect(openaiChat({ model: 'm', apiKey }).id).toBe('m');
});

test.each([{ headers: 5 }, { headers: null }])('rejects invalid options: %j', (options) => {
  expect(() => openaiChat({ model: 'm', ...(options as object) })).toThrow(/"headers" must be/);
});

test.each([
  [{ baseUrl: 'http://localhost:8000/v1' }, 'openaiChat has no option "baseUrl". Use "baseURL".'],
  [{ api_key: 'k' }, 'openaiChat has no option "api_key". Use "apiKey".'],
  [{ temperature: 1 }, 'openaiChat has no option "temperature". Use "settings.temperature".'],
  [{ modle: 'm' }, 'openaiChat has no option "modle". Did you mean "model"?'],
  [{ thinking: 'budget' }, 'openaiChat has no option "thinking". Use model, baseURL, apiKey, '],
  [{ timeouts: { header: 5 } }, 'openaiChat: "timeouts" has no option "header". Did you mean "headers"?'],
  [{ timeouts: 5 }, 'openaiChat has 5 as "timeouts". Use an object.'],
  [{ settings: { temprature: 1 } }, 'the model takes no "settings.temprature". Did you mean "temperature"?'],
  [{ stream: 'no' }, 'openaiChat has "no" as "stream". Use true or false.'],
])('says which option is meant: %j', (options, message) => {
  expect(() => openaiChat({ model: 'm', ...(options as object) })).toThrow(message);
  expect(openaiChat({ model: 'm', ...({ baseUrl: undefined } as object) }).id).toBe('m');
});

test.each(['Cloudflare-Workers', 'Bun/1.4.4', 'Deno/2.9.6'])('uses the fetch of %s', async (userAgent) => {
  const fetch = vi.fn<typeof globalThis.fetch>(async () =>
    Response.json({ error: { message: 'no' } }, { status: 401 }),
  );
  vi.stubGlobal('navigator', { userAgent });
  vi.stubGlobal('fetch', fetch);
  try {
    const { reply } = await asked(openaiChat({ model: 'm', baseURL: 'http://127.0.0.1:9/v1', maxRetries: 0 }));
    expect(reply).toMatchObject({ type: 'failure', error: { code: 'auth', status: 401 } });
    expect(String(fetch.mock.calls[0]![0])).toBe('http://127.0.0.1:9/v1/chat/completions');
  } finally {
    vi.unstubAllGlobals();
  }
});

describe('without a key', () => {
  const NAMES = [
    'OPENAI_API_KEY',
    'ANTHROPIC_API_KEY',
    'GEMINI_API_KEY',
    'GROQ_API_KEY',
    'OPENROUTER_API_KEY',
  ] as const;

  afterEach(() => vi.unstubAllEnvs());

  /** The headers of the request that a model makes, and its failure: the provider answers 401. */
  async function exchange(
    make: (options: PresetOptions) => Model,
    options: Partial<EndpointOptions> = {},
  ): Promise<{ headers: Headers; message: string }> {
    let headers = new Headers();
    const fetch: Fetch = async (_, init) => {
      headers = new Headers(init?.headers);
      return new Response('{"error":{"message":"Who are you?"}}', { status: 401 });
    };
    const model = make({ model: 'm', fetch, ...options });
    const { outcome } = await runLoop({ model, input: 'Hello' });
    return { headers, message: outcome?.type === 'failed' ? outcome.error.message : '' };
  }

  test.each([
    ['OPENAI_API_KEY', openaiChat, 'authorization', 'Bearer from-env'],
    ['OPENAI_API_KEY', openaiResponses, 'authorization', 'Bearer from-env'],
    ['ANTHROPIC_API_KEY', anthropic, 'x-api-key', 'from-env'],
    ['GEMINI_API_KEY', google, 'x-goog-api-key', 'from-env'],
    ['GROQ_API_KEY', groq, 'authorization', 'Bearer from-env'],
    ['OPENROUTER_API_KEY', openRouter, 'authorization', 'Bearer from-env'],
  ] as const)('takes %s from the environment', async (variable, make, header, value) => {
    for (const name of NAMES) vi.stubEnv(name, name === variable ? ' from-env\n' : 'another');
    expect((await exchange(make)).headers.get(header)).toBe(value);
    expect((await exchange(make, { apiKey: 'own' })).headers.get(header)).toContain('own');
  });

  test('takes GOOGLE_API_KEY for Gemini if only that is set', async () => {
    vi.stubEnv('GEMINI_API_KEY', '');
    vi.stubEnv('GOOGLE_API_KEY', 'from-env');
    expect((await exchange(google)).headers.get('x-goog-api-key')).toBe('from-env');
  });

  test('never sends the key of the environment to another host, and says so at once', async () => {
    for (const name of NAMES) vi.stubEnv(name, 'from-env');
    const warn = vi.spyOn(process, 'emitWarning').mockReturnValue();
    const { headers, message } = await exchange(openaiChat, { baseURL: 'https://llm.example/v1' });
    expect(headers.get('authorization')).toBeNull();
    const why = 'OPENAI_API_KEY is read only for api.openai.com, and llm.example is another host.';
    const remedy = "To send it there on purpose, pass apiKey: process.env['OPENAI_API_KEY'].";
    openaiChat({ model: 'm', baseURL: 'https://llm.example/v2' });
    openaiChat({ model: 'm', baseURL: 'https://llm.example/v1', apiKey: 'own' });
    openaiChat({ model: 'm', baseURL: 'http://localhost:8080/v1' });
    openaiChat({ model: 'm', baseURL: 'http://127.0.0.1:8080/v1' });
    expect(warn.mock.calls).toEqual([
      [`openaiChat: OPENAI_API_KEY is not sent to llm.example. ${why} ${remedy}`, 'TreadleWarning'],
    ]);
    warn.mockRestore();
    expect(message).toContain(`(No API key was sent. ${why} ${remedy})`);
    const same = await exchange(openaiChat, { baseURL: 'https://api.openai.com/v1/' });
    expect(same.headers.get('authorization')).toBe('Bearer from-env');
  });

  test('prefers a key in the headers that were passed', async () => {
    vi.stubEnv('ANTHROPIC_API_KEY', 'from-env');
    const { headers } = await exchange(anthropic, { headers: { Authorization: 'Bearer token' } });
    expect([headers.get('authorization'), headers.get('x-api-key')]).toEqual(['Bearer token', null]);
  });

  test('the failure says which variable to set', async () => {
    for (const name of NAMES) vi.stubEnv(name, '');
    const hint = 'Set ANTHROPIC_API_KEY, or pass "apiKey".';
    expect((await exchange(anthropic)).message).toContain(`(No API key was provided. ${hint})`);
    const other = await exchange(openaiChat, { baseURL: 'https://llm.example/v1' });
    const why = 'OPENAI_API_KEY is read only for api.openai.com, and llm.example is another host. Pass "apiKey".';
    expect(other.message).toContain(`(No API key was provided. ${why})`);
  });

  test('fails at once without a key that the provider wants for certain, and sends nothing', async () => {
    for (const name of NAMES) vi.stubEnv(name, '');
    const { outcome } = await runLoop({ model: openaiChat({ model: 'm' }), input: 'Hello' });
    const hint = 'No API key was provided. Set OPENAI_API_KEY, or pass "apiKey".';
    const error = { code: 'auth', message: `${hint} Nothing was sent to api.openai.com.` };
    expect(outcome).toEqual({ type: 'failed', error });
  });

  test('rejects a variable whose value cannot be sent', () => {
    vi.stubEnv('OPENAI_API_KEY', 'two words');
    expect(() => openaiChat({ model: 'm' })).toThrow('OPENAI_API_KEY must be a text without spaces and line breaks.');
  });
});

describe('the base URL of the environment', () => {
  afterEach(() => vi.unstubAllEnvs());

  async function sentTo(
    make: (options: PresetOptions) => Model,
    options: Partial<EndpointOptions> = {},
  ): Promise<readonly [url: string, headers: Headers]> {
    let sent: readonly [string, Headers] | undefined;
    const fetch: Fetch = async (url, init) => {
      sent = [String(url), new Headers(init?.headers)];
      return new Response('{}', { status: 400 });
    };
    await runLoop({ model: make({ model: 'm', fetch, ...options }), input: 'Hello' });
    return sent!;
  }

  test.each([
    [
      'OPENAI_BASE_URL',
      'https://gate.example/openai/v1',
      openaiChat,
      'https://gate.example/openai/v1/chat/completions',
    ],
    ['OPENAI_BASE_URL', ' https://gate.example/v1/\n', openaiResponses, 'https://gate.example/v1/responses'],
    ['ANTHROPIC_BASE_URL', 'https://gate.example/claude', anthropic, 'https://gate.example/claude/v1/messages'],
    ['ANTHROPIC_BASE_URL', 'https://gate.example/v1/', anthropic, 'https://gate.example/v1/messages'],
    [
      'GOOGLE_GEMINI_BASE_URL',
      'https://gate.example/',
      google,
      'https://gate.example/v1beta/models/m:streamGenerateContent?alt=sse',
    ],
    ['OLLAMA_HOST', 'gpu.lan', ollama, 'http://gpu.lan:11434/api/chat'],
    ['OLLAMA_HOST', 'gpu.lan:80', ollama, 'http://gpu.lan/api/chat'],
    ['OLLAMA_HOST', ':1234', ollama, 'http://127.0.0.1:1234/api/chat'],
    ['OLLAMA_HOST', '0.0.0.0', ollama, 'http://127.0.0.1:11434/api/chat'],
    ['OLLAMA_HOST', '[::]:8000', ollama, 'http://[::1]:8000/api/chat'],
    ['OLLAMA_HOST', '::1', ollama, 'http://[::1]:11434/api/chat'],
    ['OLLAMA_HOST', 'https://gpu.example/ollama', ollama, 'https://gpu.example/ollama/api/chat'],
  ] as const)('%s=%j is used', async (variable, value, make, url) => {
    vi.stubEnv(variable, value);
    expect((await sentTo(make))[0]).toBe(url);
    const [own] = await sentTo(make, { baseURL: 'https://code.example/v1' });
    expect(own).toMatch(/^https:\/\/code\.example\/v1\//);
  });

  test('gets the key of the environment, because both are chosen by the same person', async () => {
    vi.stubEnv('OPENAI_BASE_URL', 'https://gate.example/v1');
    vi.stubEnv('OPENAI_API_KEY', 'from-env');
    const [, headers] = await sentTo(openaiChat);
    expect(headers.get('authorization')).toBe('Bearer from-env');
    const [, same] = await sentTo(openaiChat, { baseURL: process.env['OPENAI_BASE_URL']! });
    expect(same.get('authorization')).toBe('Bearer from-env');
    const warn = vi.spyOn(process, 'emitWarning').mockReturnValue();
    const [, other] = await sentTo(openaiChat, { baseURL: 'https://gate.example.org/v1' });
    expect([other.get('authorization'), warn.mock.calls.length]).toEqual([null, 1]);
    warn.mockRestore();
  });

  test('may be empty, and is named if it is not a URL', () => {
    vi.stubEnv('OPENAI_BASE_URL', ' ');
    expect(openaiChat({ model: 'm' })).toMatchObject({ id: 'm' });
    vi.stubEnv('OPENAI_BASE_URL', 'gate.example');
    expect(() => openaiChat({ model: 'm' })).toThrow('openaiChat: OPENAI_BASE_URL is not an http(s) URL: set one such');
    vi.stubEnv('OPENAI_BASE_URL', 'https://ada:pw@gate.example/v1');
    expect(() => openaiChat({ model: 'm' })).toThrow('OPENAI_BASE_URL holds a password');
  });
});

test('sends the settings of the options unless a request sets them', async () => {
  const sent: unknown[] = [];
  const fetch = async (_: unknown, init?: { readonly body?: unknown }): Promise<Response> => {
    sent.push(JSON.parse(new TextDecoder().decode(init!.body as Uint8Array)));
    return new Response('{}', { status: 400 });
  };
  const model = openaiChat({ model: 'm', fetch, settings: { temperature: 0.1, maxOutputTokens: 9 } });
  const { signal } = new AbortController();
  await model.reply(request(), () => {}, signal);
  await model.reply(request({ settings: { temperature: 1 } }), () => {}, signal);
  expect(sent).toMatchObject([
    { temperature: 0.1, max_completion_tokens: 9 },
    { temperature: 1, max_completion_tokens: 9 },
  ]);
});

test('with settings of the options, the same history is not copied for each request', async () => {
  const fetch = async (): Promise<Response> => new Response('{}', { status: 400 });
  const model = openaiChat({ model: 'm', fetch, settings: { temperature: 0.1 } });
  const asked = request();
  await model.reply(asked, () => {}, new AbortController().signal);
  const allocate = vi.spyOn(Buffer, 'allocUnsafeSlow');
  await model.reply(asked, () => {}, new AbortController().signal);
  expect(allocate).not.toHaveBeenCalled();
  allocate.mockRestore();
});

test('rejects settings that would be ignored', () => {
  expect(() => anthropic({ model: 'claude-opus-5', settings: { temperature: 1 } })).toThrow(
    'anthropic: the model takes no "settings.temperature". Remove it. It takes maxOutputTokens',
  );
});

import { expect, test } from 'vitest';
import { buildPrompts } from './prompts.ts';

const never = (): Promise<never> => new Promise(() => {});

test('texts, functions and promises', async () => {
  const user = [{ type: 'text', text: 'b' }];
  expect(await buildPrompts({ user: 'b' }, 1, undefined)).toEqual({ type: 'prompts', system: undefined, user });
  expect(await buildPrompts({ system: 'a', user: 'b' }, 1, undefined)).toEqual({ type: 'prompts', system: 'a', user });
  expect(await buildPrompts({ system: (n) => `a${n as number}`, user: async () => 'b' }, 1, undefined)).toEqual({
    type: 'prompts',
    system: 'a1',
    user,
  });
});

test('content blocks', async () => {
  const image = {
    type: 'image',
    mediaType: 'image/png',
    source: { type: 'url', url: 'https://a.example/b.png' },
  } as const;
  expect(await buildPrompts({ user: () => [image] }, 1, undefined)).toMatchObject({ user: [image] });
});

test.for([
  ['', 'prompts.user gave neither a text nor content blocks.'],
  [' \n', 'prompts.user gave neither a text nor content blocks.'],
  [[], 'prompts.user gave neither a text nor content blocks.'],
  [[{ type: 'text', text: '' }], 'prompts.user gave neither a text nor content blocks.'],
  [[{ type: 'sound' }], 'prompts.user gave neither a text nor content blocks.'],
  [5, 'prompts.user gave neither a text nor content blocks.'],
] as const)('a user prompt of %j is a failure', async ([user, message]) => {
  expect(await buildPrompts({ user: () => user as never }, 1, undefined)).toEqual({
    type: 'failure',
    error: { code: 'PROMPT_FAILED', message, context: { prompt: 'user' } },
  });
});

test('the system prompt fails first, and the user prompt is not asked for', async () => {
  const prompts = { system: () => Promise.reject(new Error('no')), user: () => expect.fail('asked') };
  expect(await buildPrompts(prompts, 1, undefined)).toEqual({
    type: 'failure',
    error: { code: 'PROMPT_FAILED', message: 'prompts.system failed: no', context: { prompt: 'system' } },
  });
});

test('an abort does not wait for whoever writes, and leaves no listener', async () => {
  const controller = new AbortController();
  const building = buildPrompts({ user: never }, 1, controller.signal);
  controller.abort();
  expect(await building).toMatchObject({ error: { code: 'EXECUTION_CANCELLED', context: { phase: 'prompt' } } });

  const left = new AbortController();
  let listening = 0;
  const { signal } = left;
  const add = signal.addEventListener.bind(signal);
  const remove = signal.removeEventListener.bind(signal);
  signal.addEventListener = (...given: Parameters<typeof add>) => (listening++, add(...given));
  signal.removeEventListener = (...given: Parameters<typeof remove>) => (listening--, remove(...given));
  await buildPrompts({ user: 'b' }, 1, signal);
  expect(listening).toBe(0);
});

import { expect, test } from 'vitest';
import { buildPrompts } from './start.ts';

const never = (): Promise<never> => new Promise(() => {});

test('accepts texts, functions and promises', async () => {
  const user = [{ type: 'text', text: 'b' }];
  expect(await buildPrompts({ user: 'b' }, 1, undefined)).toEqual({ type: 'prompts', system: undefined, user });
  expect(await buildPrompts({ system: 'a', user: 'b' }, 1, undefined)).toEqual({ type: 'prompts', system: 'a', user });
  expect(await buildPrompts({ system: (n) => `a${n as number}`, user: async () => 'b' }, 1, undefined)).toEqual({
    type: 'prompts',
    system: 'a1',
    user,
  });
});

test('accepts content blocks', async () => {
  const image = {
    type: 'image',
    mediaType: 'image/png',
    source: { type: 'url', url: 'https://a.example/b.png' },
  } as const;
  expect(await buildPrompts({ user: () => [image] }, 1, undefined)).toMatchObject({ user: [image] });
});

test.for([
  ['', 'prompts.user returned neither a text nor content blocks.'],
  [' \n', 'prompts.user returned neither a text nor content blocks.'],
  [[], 'prompts.user returned neither a text nor content blocks.'],
  [[{ type: 'text', text: '' }], 'prompts.user returned neither a text nor content blocks.'],
  [[{ type: 'sound' }], 'prompts.user returned neither a text nor content blocks.'],
  [5, 'prompts.user returned neither a text nor content blocks.'],
] as const)('rejects %j as a user prompt', async ([user, message]) => {
  expect(await buildPrompts({ user: () => user as never }, 1, undefined)).toEqual({
    type: 'failure',
    error: { code: 'PROMPT_FAILED', message, context: { prompt: 'user' } },
  });
});

test('does not call the user prompt if the system prompt fails', async () => {
  const prompts = { system: () => Promise.reject(new Error('no')), user: () => expect.fail('called') };
  expect(await buildPrompts(prompts, 1, undefined)).toEqual({
    type: 'failure',
    error: { code: 'PROMPT_FAILED', message: 'prompts.system failed: no', context: { prompt: 'system' } },
  });
});

test('an abort does not wait for a prompt, and no listener stays on the signal', async () => {
  const controller = new AbortController();
  const building = buildPrompts({ user: never }, 1, controller.signal);
  controller.abort();
  expect(await building).toMatchObject({ error: { code: 'EXECUTION_CANCELLED', context: { phase: 'prompt' } } });

  let listening = 0;
  const { signal } = new AbortController();
  const add = signal.addEventListener.bind(signal);
  const remove = signal.removeEventListener.bind(signal);
  signal.addEventListener = (...args: Parameters<typeof add>) => (listening++, add(...args));
  signal.removeEventListener = (...args: Parameters<typeof remove>) => (listening--, remove(...args));
  await buildPrompts({ user: 'b' }, 1, signal);
  expect(listening).toBe(0);
});

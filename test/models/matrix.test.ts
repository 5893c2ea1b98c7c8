import { runLoop, tool, userText, type Message, type ModelReply } from '@treadle/core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { startProvider, type Provider, type Script } from '../provider/provider.ts';
import { historyProblem } from '../provider/rules/messages.ts';
import type { FormName, Step } from '../provider/script.ts';
import { modelOf, PROTOCOLS, WAYS, type Way } from './protocols.ts';
import { typeProblems, type NamedBody } from './sdk-types.ts';

/** A conversation that was started with one protocol can be continued with any other. */

let provider: Provider;
beforeAll(async () => {
  provider = await startProvider();
});
afterAll(() => provider[Symbol.asyncDispose]());

const PNG = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';
const image = { type: 'image', mediaType: 'image/png', source: { type: 'data', data: PNG } } as const;

const weather = tool({
  name: 'get_weather',
  description: 'The weather in a city',
  input: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
  effect: 'pure',
  execute: (input) => {
    const { city } = input as { city: string };
    if (city === 'Atlantis') throw new Error('no such city');
    return [{ type: 'text', text: `Fine in ${city}` }, ...(city === 'Oslo' ? [image] : [])];
  },
});

const call = (city: string): { name: string; arguments: string } => ({
  name: 'get_weather',
  arguments: JSON.stringify({ city }),
});

const opening: readonly Step[] = [
  { reasoning: 'Two cities. I look at both.', text: 'I look.', calls: [call('Oslo'), call('Atlantis')] },
  { reasoning: '', calls: [call('Bergen')] },
  { reasoning: 'That is all.', text: 'Oslo and Bergen are fine; Atlantis does not exist.' },
];
const continuation: readonly Step[] = [{ reasoning: 'Again.', calls: [call('Bergen')] }, { text: 'Still fine.' }];

const settings = { reasoning: 'medium', maxOutputTokens: 16_000, temperature: 0.5, topP: 0.9 } as const;

async function run({ form, options }: Way, script: Script, input: readonly Message[]): Promise<readonly Message[]> {
  const model = modelOf(form, script, options);
  const result = await runLoop({ model, instructions: 'Be brief.', tools: [weather], input, settings });
  expect(result.outcome).toEqual({ type: 'completed' });
  expect(historyProblem(result.messages)).toBeUndefined();
  return result.messages;
}

async function startWith(variant: Way): Promise<{ script: Script; messages: readonly Message[] }> {
  const script = await provider.script(opening);
  const question: Message = { role: 'user', content: [{ type: 'text', text: 'How is it there?' }, image] };
  return { script, messages: await run(variant, script, [question]) };
}

/** A signature, or encrypted reasoning, of the scripted provider. */
const SIGNATURE = /[A-Za-z0-9+/]{43}=/g;

const bodies: NamedBody[] = [];

async function collectBodies(name: string, form: FormName, script: Script): Promise<void> {
  for (const { body, refused } of await script.requests()) {
    expect(refused).toBeUndefined();
    bodies.push({ name, form, body });
  }
}

const pairs = WAYS.flatMap((from) => WAYS.map((to) => ({ from, to })));

describe.each(pairs)('started with $from.name, continued with $to.name', ({ from, to }) => {
  test('continues after an answer, and back again', async () => {
    const first = await startWith(from);
    const second = await provider.script(continuation);
    const there = await run(to, second, [...first.messages, userText('And now?')]);
    expect(there).toHaveLength(first.messages.length + 4);
    await collectBodies(`${from.name} to ${to.name}`, to.form, second);
    await first.script.add(...continuation);
    const back = await run(from, first.script, [...there, userText('And tomorrow?')]);
    expect(back).toHaveLength(there.length + 4);
    await collectBodies(`${from.name} to ${to.name} and back`, from.form, first.script);
  });

  test.each([3, 5])('continues in the middle of a task, after %s messages', async (length) => {
    const { messages } = await startWith(from);
    const script = await provider.script([{ reasoning: 'I take over.', text: 'Fine.' }]);
    const { name, description, input } = weather;
    const reply: ModelReply = await modelOf(to.form, script, to.options).reply(
      {
        instructions: 'Be brief.',
        messages: messages.slice(0, length),
        tools: [{ name, description, parameters: input as object as Record<string, unknown> }],
        toolChoice: 'auto',
        parallel: true,
        settings,
        key: 'r/t1',
      },
      () => {},
      new AbortController().signal,
    );
    expect(reply).toMatchObject({ type: 'reply', finish: 'stop' });
    // A signature is sent back only with the protocol that it came from.
    const signatures = JSON.stringify(messages[length - 2]).match(SIGNATURE) ?? [];
    expect(signatures).toHaveLength(['anthropic', 'google', 'openai-responses'].includes(from.form) ? 1 : 0);
    const [sent] = await script.requests();
    for (const signature of signatures)
      expect(JSON.stringify(sent!.body).includes(signature)).toBe(from.form === to.form);
    await collectBodies(`${from.name} to ${to.name} after ${length}`, to.form, script);
  });
});

test('all request bodies have the types of the official clients, and invalid ones have not', async () => {
  expect(bodies.length).toBeGreaterThan(pairs.length * 4);
  const wrong = PROTOCOLS.map((form): NamedBody => ({ name: form, form, body: { model: 'm', messages: [{}] } }));
  const problems = await typeProblems([...bodies, ...wrong]);
  const isExpected = (problem: string): boolean => wrong.some(({ name }) => problem.startsWith(`${name}:`));
  expect(problems.filter((problem) => !isExpected(problem))).toEqual([]);
  expect([...new Set(problems.map((problem) => problem.split(':')[0]))].sort()).toEqual([...PROTOCOLS].sort());
});

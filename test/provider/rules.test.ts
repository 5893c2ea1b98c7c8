import { readdirSync, readFileSync } from 'node:fs';
import type { Message } from '@treadle/core';
import { describe, expect, test } from 'vitest';
import { anthropicProblem } from './rules/anthropic.ts';
import type { Issued, Rules } from './rules/rules.ts';
import { historyProblem } from './rules/messages.ts';
import { googleProblem } from './rules/google.ts';
import { ollamaProblem } from './rules/ollama.ts';
import { chatProblem } from './rules/openai-chat.ts';
import { responsesProblem } from './rules/openai-responses.ts';

interface BadHistory {
  readonly problem: string;
  readonly messages: readonly Message[];
}

interface BadBody {
  readonly problem: string;
  readonly issued?: Issued;
  readonly model?: string;
  readonly body: unknown;
}

function read<T>(path: string): T {
  return JSON.parse(readFileSync(new URL(path, import.meta.url), 'utf8')) as T;
}

function badHistories<T>(form: string): [name: string, history: T][] {
  const files = readdirSync(new URL(`bad-histories/${form}`, import.meta.url));
  return files.map((file) => [file.replace('.json', ''), read<T>(`bad-histories/${form}/${file}`)]);
}

describe('messages of Treadle', () => {
  test.each(badHistories<BadHistory>('treadle'))('rejects %s', (_, { problem, messages }) => {
    expect(historyProblem(messages)).toBe(problem);
  });

  test('accepts a rich history, and its state at each turn', () => {
    const { messages } = read<BadHistory>('good-histories/treadle.json');
    for (const length of [1, 3, 4, 6, 7, 8]) expect(historyProblem(messages.slice(0, length))).toBeUndefined();
  });
});

describe.each<[form: string, rules: Rules]>([
  ['openai-chat', chatProblem],
  ['openai-responses', responsesProblem],
  ['anthropic', anthropicProblem],
  ['google', googleProblem],
  ['ollama', ollamaProblem],
])('%s', (form, rules) => {
  test.each(badHistories<BadBody>(form))('rejects %s', (_, { problem, issued, model, body }) => {
    expect(rules(body, { ...(issued && { issued }), ...(model && { model }) })).toBe(problem);
  });

  test('accepts a rich history', () => {
    const { issued, body } = read<BadBody>(`good-histories/${form}.json`);
    expect(rules(body, { ...(issued && { issued }) })).toBeUndefined();
    expect(rules(body)).toBeUndefined();
  });

  test('accepts two consecutive user messages without strict', () => {
    const { body } = read<BadBody>(`bad-histories/${form}/two-user-messages.json`);
    expect(rules(body, { strict: false })).toBeUndefined();
  });

  test.each([null, 1, 'x', [], {}, { model: 'm' }])('rejects the body %j', (body) => {
    expect(rules(body)).toEqual(expect.any(String));
  });
});

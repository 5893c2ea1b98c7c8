import type { Question, Waiting } from '@treadle/core';
import { describe, expect, test } from 'vitest';
import { answerFrom, inputRequest } from './client-input.ts';

const call = { turn: 1, index: 0, id: 'call', name: 'erase', arguments: '{"path":"a"}' } as Waiting['call'];

function question(asked: Partial<Question>): Waiting {
  return { type: 'question', effect: 'q', call, question: { prompt: 'Which?', ...asked } };
}

const form = (wait: Waiting): unknown =>
  (inputRequest(wait) as { params: { requestedSchema: unknown } }).params.requestedSchema;
const accept = (content: object): object => ({ action: 'accept', content });

describe('a question', () => {
  test('for a flat object is asked with its fields', () => {
    const properties = { name: { type: 'string' }, tags: { type: 'array', items: { enum: ['a', 'b'] } } };
    const wait = question({ schema: { type: 'object', properties, required: ['name'], additionalProperties: false } });
    expect(form(wait)).toEqual({ type: 'object', properties, required: ['name'] });
    expect(answerFrom(wait, accept({ name: 'x' }), 'ann')).toEqual({
      type: 'answer',
      effect: 'q',
      value: { name: 'x' },
      by: 'ann',
    });
  });

  test.each([
    { asked: {}, field: { type: 'string', title: 'Answer' }, answer: '[1]', value: '[1]' },
    {
      asked: { choices: ['a', 'b'] },
      field: { type: 'string', title: 'Answer', enum: ['a', 'b'] },
      answer: 'a',
      value: 'a',
    },
    {
      asked: { schema: { type: 'array' } },
      field: { type: 'string', title: 'Answer', description: 'JSON for the schema {"type":"array"}' },
      answer: '[1]',
      value: [1],
    },
    {
      asked: { schema: { type: 'object', properties: { deep: { type: 'object' } } } },
      field: expect.objectContaining({ description: expect.stringContaining('JSON for the schema') }),
      answer: 'no JSON',
      value: 'no JSON',
    },
  ])('of another form is asked with one field: $asked', ({ asked, field, answer, value }) => {
    const wait = question(asked);
    expect(form(wait)).toEqual({ type: 'object', properties: { answer: field }, required: ['answer'] });
    expect(answerFrom(wait, accept({ answer }), undefined)).toEqual({ type: 'answer', effect: 'q', value });
  });

  test('has no answer in what is not an answer', () => {
    const wait = question({});
    for (const response of [undefined, 1, [], {}, accept({}), accept({ answer: 1 }), { action: 'accept' }]) {
      expect(answerFrom(wait, response, undefined)).toBe('missing');
    }
    for (const action of ['decline', 'cancel']) expect(answerFrom(wait, { action }, undefined)).toBe('declined');
  });
});

describe('an approval', () => {
  const ask: Waiting = { type: 'approval', effect: 'a', call, digest: 'd', expiresAt: 0 };
  const given = (response: unknown): unknown => answerFrom(ask, response, undefined);

  test('counts only if it is given', () => {
    const denied = { type: 'approval', effect: 'a', digest: 'd', approved: false };
    expect(given(accept({ approve: true }))).toEqual({ ...denied, approved: true });
    expect(given(accept({ approve: false, reason: 'no' }))).toEqual({ ...denied, reason: 'no' });
    expect(given({ action: 'decline', content: { approve: true } })).toEqual(denied);
    expect(given({ action: 'cancel' })).toEqual(denied);
    for (const response of [accept({}), accept({ approve: 'true' }), { content: { approve: true } }, null]) {
      expect(given(response)).toBe('missing');
    }
  });

  test('is asked for with everything visible, and cut if it is long', () => {
    const shown = `rm a\u202Etxt.b\u200B\u0007\n${'x'.repeat(5_000)}`;
    const { message } = (inputRequest({ ...ask, reason: 'it\u3164deletes', shown }) as { params: { message: string } })
      .params;
    expect(message).toMatch(
      /^The tool "erase" needs an approval \(it\\u3164deletes\):\nrm a\\u202etxt\.b\\u200b\\u0007\nx+ … \(5013 characters\)$/,
    );
  });
});

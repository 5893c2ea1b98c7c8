import { expect, test } from 'vitest';
import { fieldsOf, inputsFrom } from './form.ts';

const SCHEMA = {
  type: 'object',
  properties: {
    word: { type: 'string', description: 'The word' },
    tone: { type: 'string', enum: ['plain', 'warm'], default: 'plain' },
    count: { type: 'integer', default: 3 },
    deep: { type: 'boolean' },
    tags: { type: 'array' },
  },
  required: ['word'],
};

function form(values: Readonly<Record<string, string>>): Pick<FormData, 'get'> {
  return { get: (name) => values[name] ?? null };
}

test('makes a field of each property', () => {
  expect(fieldsOf(SCHEMA)).toEqual([
    { name: 'word', kind: 'text', description: 'The word', isRequired: true, initial: '' },
    { name: 'tone', kind: 'text', description: '', isRequired: false, initial: 'plain', choices: ['plain', 'warm'] },
    { name: 'count', kind: 'integer', description: '', isRequired: false, initial: '3' },
    { name: 'deep', kind: 'boolean', description: '', isRequired: false, initial: '' },
    { name: 'tags', kind: 'json', description: '', isRequired: false, initial: '' },
  ]);
  expect(fieldsOf({ type: 'object' })).toEqual([]);
});

test('reads values in the types of the schema, and leaves empty ones out', () => {
  const fields = fieldsOf(SCHEMA);
  expect(inputsFrom(fields, form({ word: 'x', tone: '', count: '2', deep: 'on', tags: '["a"]' }))).toEqual({
    inputs: { word: 'x', count: 2, deep: true, tags: ['a'] },
  });
  expect(inputsFrom(fields, form({ word: '' }))).toEqual({ inputs: { word: '', deep: false } });
  expect(inputsFrom(fields, form({ word: 'x', tags: 'a, b' })).problem).toContain('tags is not valid JSON');
});

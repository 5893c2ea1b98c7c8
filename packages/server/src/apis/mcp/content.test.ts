import type { ResultBlock } from '@treadle/core';
import { expect, test } from 'vitest';
import { z } from 'zod';
import { outputSchemaOf, toolResult } from './content.ts';

const result = (...content: ResultBlock[]) =>
  ({ type: 'tool-result', callId: 'c', name: 't', content, isError: false }) as const;
const data = (text: string) => ({ type: 'data', data: Buffer.from(text).toString('base64') }) as const;

test('blocks become content', () => {
  const { content } = toolResult(
    result(
      { type: 'text', text: 'a' },
      { type: 'image', mediaType: 'image/png', source: data('i') },
      { type: 'file', mediaType: 'audio/wav', source: data('w') },
      { type: 'file', mediaType: 'application/json', name: 'test://x', source: data('{}') },
      { type: 'file', mediaType: 'application/pdf', name: 'a b.pdf', source: data('p') },
      { type: 'file', mediaType: 'text/html', source: { type: 'url', url: 'https://example.com' } },
    ),
    false,
  );
  expect(content).toEqual([
    { type: 'text', text: 'a' },
    { type: 'image', data: 'aQ==', mimeType: 'image/png' },
    { type: 'audio', data: 'dw==', mimeType: 'audio/wav' },
    { type: 'resource', resource: { uri: 'test://x', mimeType: 'application/json', text: '{}' } },
    { type: 'resource', resource: { uri: 'attachment:a%20b.pdf', mimeType: 'application/pdf', blob: 'cA==' } },
    { type: 'resource_link', uri: 'https://example.com', name: 'https://example.com', mimeType: 'text/html' },
  ]);
});

test('a structured result that was cut is an error', () => {
  expect(toolResult(result({ type: 'text', text: '{"a":1}' }), true)).toMatchObject({ structuredContent: { a: 1 } });
  expect(toolResult(result({ type: 'text', text: '{"a": […' }), true)).toMatchObject({ isError: true });
});

test('only the schema of an object is offered, as it describes the output', () => {
  const text = z.object({ n: z.string().transform(Number).pipe(z.number()) });
  expect(outputSchemaOf(text)).toMatchObject({ properties: { n: { type: 'number' } } });
  expect([undefined, z.string(), { type: 'array' }, z.object({ d: z.date() })].map(outputSchemaOf)).toEqual([
    undefined,
    undefined,
    undefined,
    undefined,
  ]);
});

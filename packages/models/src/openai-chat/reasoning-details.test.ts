import { expect, test } from 'vitest';
import { detailsOf, OPENROUTER, readDetails, signatureOf, startDetails } from './reasoning-details.ts';

function signatureFrom(...chunks: (readonly unknown[])[]): unknown {
  const details = startDetails();
  for (const chunk of chunks) readDetails(details, chunk);
  const signature = signatureOf(details);
  return signature === undefined ? undefined : (JSON.parse(signature) as unknown);
}

test('joins pieces by type and index', () => {
  expect(
    signatureFrom(
      [{ type: 'reasoning.summary', summary: 'A', index: 0, format: 'openai-responses-v1' }],
      [
        { type: 'reasoning.summary', summary: 'B', index: 0, id: null },
        { type: 'reasoning.text', text: 'x', index: 1 },
      ],
      [
        { type: 'reasoning.encrypted', data: 'gAAA', id: 'rs_1', index: 0 },
        { type: 'reasoning.text', text: 'y', signature: 's', index: 1 },
      ],
    ),
  ).toEqual([
    { type: 'reasoning.summary', index: 0, format: 'openai-responses-v1', id: null, summary: 'AB' },
    { type: 'reasoning.text', index: 1, signature: 's', text: 'xy' },
    { type: 'reasoning.encrypted', data: 'gAAA', id: 'rs_1', index: 0 },
  ]);
});

test('without an index, joins consecutive pieces of text and separates encrypted details', () => {
  expect(
    signatureFrom([
      { type: 'reasoning.text', text: 'x' },
      { type: 'reasoning.text', text: 'y', signature: 's' },
      { type: 'reasoning.encrypted', data: 'a' },
      { type: 'reasoning.encrypted', data: 'b' },
    ]),
  ).toEqual([
    { type: 'reasoning.text', signature: 's', text: 'xy' },
    { type: 'reasoning.encrypted', data: 'a' },
    { type: 'reasoning.encrypted', data: 'b' },
  ]);
});

test('returns no signature if no detail is signed or encrypted', () => {
  expect(signatureFrom([])).toBeUndefined();
  expect(signatureFrom([{ type: 'reasoning.text', text: 'x', index: 0, signature: null }])).toBeUndefined();
  expect(signatureFrom([null, 7, 'x', []])).toBeUndefined();
});

test('reads only intact signatures of the same signer', () => {
  const part = (signature: string, protocol?: string): { type: 'reasoning'; text: string; signature: string } => ({
    type: 'reasoning',
    text: '',
    signature,
    ...(protocol !== undefined && { protocol }),
  });
  expect(
    detailsOf(
      [
        part('[{"type":"reasoning.text","signature":"s"}]', OPENROUTER),
        part('[{"type":"reasoning.encrypted","data":"d"},7]', OPENROUTER),
        part('[{"type":"theirs"}]', 'anthropic'),
        part('[{"type":"of another host"}]', 'openrouter@proxy.example'),
        part('[{"type":"nobody\'s"}]'),
        part('[{"broken', OPENROUTER),
        part('{}', OPENROUTER),
        { type: 'reasoning', text: 'x' },
      ],
      OPENROUTER,
    ),
  ).toEqual([
    { type: 'reasoning.text', signature: 's' },
    { type: 'reasoning.encrypted', data: 'd' },
  ]);
});

test('joins 1 MB of text in pieces of one character once', () => {
  const details = startDetails();
  const size = 1024 * 1024;
  const piece = [{ type: 'reasoning.text', text: 'x', index: 0 }];
  for (let n = 0; n < size; n++) readDetails(details, piece);
  readDetails(details, [{ type: 'reasoning.text', signature: 's', index: 0 }]);
  expect(signatureOf(details)).toHaveLength(
    '[{"type":"reasoning.text","index":0,"signature":"s","text":""}]'.length + size,
  );
});

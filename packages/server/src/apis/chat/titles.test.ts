import type { UserBlock } from '@treadle/core';
import { expect, test } from 'vitest';
import { messageTitle } from './titles.ts';

const IMAGE: UserBlock = { type: 'image', mediaType: 'image/png', source: { type: 'data', data: 'AAAA' } };
const PDF: UserBlock = { type: 'file', mediaType: 'application/pdf', source: { type: 'data', data: 'AAAA' } };
const sixty = 'x'.repeat(60);

test.each<[string, readonly UserBlock[], string]>([
  ['  What\n\tnow? ', [], 'What now?'],
  [sixty, [], sixty],
  [`${sixty} more`, [], `${sixty}…`],
  [`a ${sixty}`, [], 'a…'],
  [`${sixty}x`, [], `${sixty}…`],
  [`${'x'.repeat(59)}😀`, [], `${'x'.repeat(59)}…`],
  ['Look', [IMAGE], 'Look'],
  [' ', [IMAGE], 'Image'],
  [' ', [PDF], 'File'],
  [' ', [], ''],
])('the first title of the message %j with %j is %j', (text, attached, title) => {
  expect(messageTitle({ role: 'user', content: [{ type: 'text', text }, ...attached] })).toBe(title);
});

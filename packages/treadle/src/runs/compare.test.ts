import { expect, test } from 'vitest';
import { firstDifference } from '@treadle/core';
import { excerpts } from './compare.ts';

test.each([
  [{ a: 1 }, { a: 1 }, undefined],
  [{ a: 1 }, { a: 2 }, { path: 'a', a: 1, b: 2 }],
  [{ a: [{ b: 'x' }] }, { a: [{ b: 'y' }] }, { path: 'a[0].b', a: 'x', b: 'y' }],
  [{ a: [1] }, { a: [1, 2] }, { path: 'a[1]', a: undefined, b: 2 }],
  [{}, { a: null }, { path: 'a', a: undefined, b: null }],
  [{ a: [] }, { a: {} }, { path: 'a', a: [], b: {} }],
  [{ at: 1, runId: 'x', attempts: [1], b: 1 }, { at: 2, runId: 'y', b: 1 }, undefined],
])('finds the first difference of %j and %j', (a, b, difference) => {
  expect(firstDifference(a, b)).toEqual(difference);
});

test('shows long texts from where they differ', () => {
  const same = 'x'.repeat(100);
  expect(excerpts({ path: '', a: `${same}one`, b: `${same}two` })).toEqual([
    `…${'x'.repeat(20)}one`,
    `…${'x'.repeat(20)}two`,
  ]);
  expect(excerpts({ path: '', a: 'one', b: undefined })).toEqual(['one', 'nothing']);
  expect(excerpts({ path: '', a: ['o'], b: 2 })).toEqual(['["o"]', '2']);
});

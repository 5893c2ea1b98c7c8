import { expect, test } from 'vitest';
import { runFactsIn } from './run-facts.ts';

const IDS = '0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331';

test.each([
  [`00-${IDS}-01`, `00-${IDS}-01`],
  [`00-${IDS}-ff`, `00-${IDS}-ff`],
  // Of a later version, only the flag that is known is kept.
  [`cc-${IDS}-09`, `00-${IDS}-01`],
  [`cc-${IDS}-08-what-the-future`, `00-${IDS}-00`],
  [`00-${IDS}-01-more`, undefined],
  [`cc-${IDS}-01.more`, undefined],
  [`ff-${IDS}-01`, undefined],
  [`00-${'0'.repeat(32)}-b7ad6b7169203331-01`, undefined],
  [`00-0af7651916cd43dd8448eb211c80319c-${'0'.repeat(16)}-01`, undefined],
  [`00-${IDS.toUpperCase()}-01`, undefined],
  [`00-${IDS}-1`, undefined],
  [`00-${IDS}-01, 00-${IDS}-01`, undefined],
  ['', undefined],
])('traceparent %j is read as %j', (traceparent, trace) => {
  expect(runFactsIn({ traceparent })).toEqual(trace === undefined ? undefined : { trace });
});

test('no header says nothing', () => {
  expect(runFactsIn({ host: 'localhost' })).toBeUndefined();
});

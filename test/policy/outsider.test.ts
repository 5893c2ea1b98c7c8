import { afterAll, expect, test } from 'vitest';
import { OUTSIDER, outsiderPlace, verdictOf } from './outsider.ts';
import { shellFixture } from './shell-fixture.ts';

const fixture = shellFixture();
afterAll(() => fixture[Symbol.dispose]());

/* test/long/outsider-commands.test.ts runs what is allowed. */
test('lines of somebody who has not written the analysis are judged as listed', async () => {
  expect(new Set(OUTSIDER.map(({ text }) => text)).size).toBe(OUTSIDER.length);
  expect(OUTSIDER.length).toBeGreaterThanOrEqual(300);
  const place = outsiderPlace(fixture);
  const wrong = [];
  for (const line of OUTSIDER) {
    const verdict = await verdictOf(place, line);
    if (verdict !== line.verdict) wrong.push({ ...line, verdict });
  }
  expect(wrong).toEqual([]);
});

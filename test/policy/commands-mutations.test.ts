import fc from 'fast-check';
import { expect, test } from 'vitest';
import { needs } from '../needs.ts';
import { checkLines, mutations } from './commands-mutations.ts';

/* More of them in test/long. */
test.skipIf(!needs('bash', process.platform === 'linux'))(
  'a changed line that is allowed runs what the analysis reports, and nothing else',
  async () => {
    const { allowed, started, wrong } = await checkLines(fc.sample(mutations, 400));
    expect(wrong).toEqual([]);
    expect(allowed).toBeGreaterThan(20);
    expect(started).toBeGreaterThan(10);
  },
);

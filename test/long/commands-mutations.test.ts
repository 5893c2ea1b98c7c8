import fc from 'fast-check';
import { expect, test } from 'vitest';
import { needs } from '../needs.ts';
import { checkLines, mutations } from '../policy/commands-mutations.ts';

test.skipIf(!needs('bash', process.platform === 'linux'))(
  'many changed lines that are allowed run what the analysis reports, and nothing else',
  async () => {
    const { allowed, wrong } = await checkLines(fc.sample(mutations, 8_000));
    expect(wrong).toEqual([]);
    expect(allowed).toBeGreaterThan(500);
  },
);

import { describe } from 'vitest';
import { testTakeovers } from '../crash/takeover/takeovers.ts';

/** The same as test/crash/takeover.test.ts, with the default lease times. */
describe('on SQLite', () => {
  testTakeovers({ kind: 'SQLite', ttlMs: 30_000 });
});
describe('on PostgreSQL', () => {
  testTakeovers({ kind: 'PostgreSQL', ttlMs: 3_500 });
});

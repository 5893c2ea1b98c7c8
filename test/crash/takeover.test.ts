import { describe } from 'vitest';
import { testTakeovers } from './takeover/takeovers.ts';

describe('on SQLite', () => {
  testTakeovers({ kind: 'SQLite', ttlMs: 1_000 });
});
/** All of them are in test/long/takeover.test.ts. */
describe('on PostgreSQL', () => {
  testTakeovers({ kind: 'PostgreSQL', ttlMs: 1_000, isShort: true });
});

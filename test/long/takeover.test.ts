import { testTakeovers } from '../crash/takeover/takeovers.ts';

/** The same as test/crash/takeover.test.ts, with the default lease time. */
testTakeovers(30_000);

import { testTakeovers } from './takeover/takeovers.ts';

testTakeovers(1_000);

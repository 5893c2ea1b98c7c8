import { testProperties } from './properties.ts';

/** test/long/agents.test.ts has many times as many. */
testProperties(150);

import { testProperties } from '../agents/properties.ts';

/** The same as test/agents/properties.test.ts, with more runs. */
testProperties(5_000);

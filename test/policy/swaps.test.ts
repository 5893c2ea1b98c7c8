import { testSwaps } from './swaps.ts';

/** test/long/swaps.test.ts makes more attempts. */
testSwaps(1_000);

import { testSwaps } from '../policy/swaps.ts';

testSwaps(10_000);

import type { Contender } from './contender.ts';
import { withCollector } from './treadle-tracing.ts';

/** The collector takes what it gets. */
export const contender: Contender = await withCollector('answers');

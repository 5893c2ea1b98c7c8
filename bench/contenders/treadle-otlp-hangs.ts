import type { Contender } from './contender.ts';
import { withCollector } from './treadle-tracing.ts';

/** The collector gets spans and metrics, and never answers. */
export const contender: Contender = await withCollector('hangs');

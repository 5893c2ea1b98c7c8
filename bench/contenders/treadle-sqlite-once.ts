import type { Contender } from './contender.ts';
import { withSqlite } from './treadle-sqlite.ts';

export const contender: Contender = withSqlite('once');

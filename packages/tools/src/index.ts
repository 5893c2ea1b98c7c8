export type { Analysers } from '@treadle/core/policy';

export type { Analysers } from '@treadle/core/policy';
export { commandFacts, type CommandOptions } from './commands/command-facts.ts';

/*
 * What runs in a worker thread: functions of data that may take long or never end. They get and return values that can be
 * cloned, and read no files, except that a command is compared with the names of files. Heavy libraries are loaded when a job first needs them.
 */
import type { CommandFacts } from '@treadle/core/policy';
import type { CommandOptions } from '../commands/command-facts.ts';
import { nearestBlock } from '../files/nearest-block.ts';
import { applyHunks } from '../files/patch-hunks.ts';
import { pdfText } from '../files/pdf-text.ts';
import { searchTexts } from '../files/search-text.ts';
import { selectPaths } from '../files/select-paths.ts';
import type { evaluateAll } from '../workflows/expressions.ts';
import { applyEdits } from '../files/text-edits.ts';

/** The parser and the rules are loaded only for commands: other jobs start sooner without them. */
async function commandFacts(
  input: { readonly command: string; readonly options: CommandOptions },
  begin: () => void,
): Promise<CommandFacts> {
  const analysis = await import('../commands/command-facts.ts');
  begin();
  return analysis.commandFacts(input.command, input.options);
}

/** CEL is loaded only for workflows. */
async function evaluate(
  input: Parameters<typeof evaluateAll>[0],
  begin: () => void,
): Promise<ReturnType<typeof evaluateAll>> {
  const expressions = await import('../workflows/expressions.ts');
  begin();
  return expressions.evaluateAll(input);
}

/** The jobs by name. */
export const JOBS: {
  readonly applyEdits: typeof applyEdits;
  readonly applyHunks: typeof applyHunks;
  readonly commandFacts: typeof commandFacts;
  readonly evaluateAll: typeof evaluate;
  readonly nearestBlock: typeof nearestBlock;
  readonly pdfText: typeof pdfText;
  readonly searchTexts: typeof searchTexts;
  readonly selectPaths: typeof selectPaths;
} = { applyEdits, applyHunks, commandFacts, evaluateAll: evaluate, nearestBlock, pdfText, searchTexts, selectPaths };

export type Job = (input: never, begin: () => void) => unknown;
export type Jobs = typeof JOBS;

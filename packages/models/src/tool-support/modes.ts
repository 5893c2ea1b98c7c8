import { TreadleError } from '@treadle/core';

/**
 * What to do with a model whose provider refuses tools:
 *
 * - `error`: fail, and name the model;
 * - `degrade`: ask without tools. The `attempts` of each such reply contain the refusal;
 * - `text`: describe the tools in the instructions, and read the calls from the text.
 */
export type ToolSupport = 'error' | 'degrade' | 'text';

const MODES: readonly unknown[] = ['error', 'degrade', 'text'] satisfies ToolSupport[];

/** Throws if the mode does not exist. `factory` is the function that takes it as an option. */
export function checkToolSupport(factory: string, mode: ToolSupport | undefined): void {
  if (mode === undefined || MODES.includes(mode)) return;
  throw new TreadleError(
    'invalid-options',
    `${factory}: "toolSupport" is ${JSON.stringify(mode)}. Use "error", "degrade" or "text".`,
  );
}

import { TreadleError } from '@treadle/core';

/**
 * What to do with a model whose provider refuses tools:
 *
 * - `error`: fail, and name the model;
 * - `degrade`: ask without tools. Each such reply has an attempt among its `attempts` that says so;
 * - `text`: describe the tools in the instructions, and read the calls out of the text.
 */
export type ToolSupport = 'error' | 'degrade' | 'text';

const MODES: readonly unknown[] = ['error', 'degrade', 'text'] satisfies ToolSupport[];

/** Throws if it is none; `factory` is the function that it was given to. */
export function checkToolSupport(factory: string, mode: ToolSupport | undefined): void {
  if (mode === undefined || MODES.includes(mode)) return;
  throw new TreadleError(
    'invalid-options',
    `${factory}: "toolSupport" is ${JSON.stringify(mode)}. Use "error", "degrade" or "text".`,
  );
}

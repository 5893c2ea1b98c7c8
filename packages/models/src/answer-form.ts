import type { JsonSchema, ModelRequest } from '@treadle/core';

const told = new WeakMap<JsonSchema, string>();

/**
 * The instructions, and the form of the answer in words: for hosts that cannot be held to a schema, or not while there
 * are tools. The loop checks the answer in any case.
 */
export function instructionsWithForm({ instructions, output }: ModelRequest): string | undefined {
  if (output === undefined) return instructions;
  let words = told.get(output);
  if (words === undefined) {
    words = `Give the final answer as JSON alone, without other words, that fits this JSON Schema:\n${JSON.stringify(output)}`;
    told.set(output, words);
  }
  return instructions ? `${instructions}\n\n${words}` : words;
}

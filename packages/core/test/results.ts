import type { LoopResult } from '../src/driver/options.ts';
import { textOf, type ToolResult } from '../src/messages.ts';

/** All tool results in the history of a run, in order. */
export function resultsOf({ messages }: LoopResult): readonly ToolResult[] {
  return messages.flatMap((message) => (message.role === 'tool' ? message.content : []));
}

/** The texts of all tool results in the history of a run, in order. */
export function resultTexts(result: LoopResult): readonly string[] {
  return resultsOf(result).map(({ content }) => textOf(content));
}

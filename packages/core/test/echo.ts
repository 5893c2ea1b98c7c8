import { tool, type Tool } from '../src/tools/tool.ts';
import type { ScriptedReply } from '../src/testing/index.ts';

/** A pure tool that returns its text. */
export const echo: Tool = tool({
  name: 'echo',
  description: 'Returns the text',
  input: { type: 'object', properties: { text: { type: 'string' } }, required: ['text'], additionalProperties: false },
  effect: 'pure',
  execute: ({ text }) => String(text),
});

/** A reply of a scripted model that calls `echo`. */
export function callEcho(text: string): ScriptedReply & Required<Pick<ScriptedReply, 'calls'>> {
  return { calls: [{ name: 'echo', arguments: { text } }] };
}

import type { ModelRequest, ToolSpec } from '@treadle/core';
import { allowedOf } from '../calls.ts';

const lists = new WeakMap<readonly ToolSpec[], string>();

/** The instructions of a request, and with them the tools and how to call them in words. */
export function instructionsWithTools(request: ModelRequest): string {
  const { instructions, toolChoice } = request;
  const allowed = allowedOf(request);
  const told = toolChoice === 'none' || allowed.length === 0 ? NONE : howToCall(request, allowed);
  return instructions === undefined || instructions === '' ? told : `${instructions}\n\n${told}`;
}

const NONE = 'Answer in words now. Do not call a tool.';

function howToCall({ toolChoice, parallel }: ModelRequest, tools: readonly ToolSpec[]): string {
  return [
    'You have the following tools, each described by a line of JSON:',
    '<tools>',
    listOf(tools),
    '</tools>',
    'To call a tool, write exactly this, with nothing after it:',
    '<tool_call>',
    '{"name": "the name of the tool", "arguments": {"parameter": "value"}}',
    '</tool_call>',
    ...(parallel ? ['For several calls, write several such blocks.'] : ['Call one tool at a time.']),
    'Then stop: the results come in the next message, each in <tool_response>. Never write a result yourself.',
    ...(typeof toolChoice === 'object' ? [`You must call the tool "${toolChoice.tool}" now.`] : []),
    ...(toolChoice === 'required' ? ['You must call a tool now.'] : []),
    ...(toolChoice === 'auto' ? ['If you need no tool, answer in words.'] : []),
  ].join('\n');
}

function listOf(tools: readonly ToolSpec[]): string {
  let list = lists.get(tools);
  if (list === undefined) {
    list = tools
      .map(({ name, description, parameters }) => JSON.stringify({ name, description, parameters }))
      .join('\n');
    lists.set(tools, list);
  }
  return list;
}

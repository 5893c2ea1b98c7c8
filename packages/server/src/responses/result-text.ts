import type { ResultBlock, ToolResult } from '@treadle/core';
import type { McpCallItem } from '../wire/items.ts';
import { mcpError } from '../wire/mcp-error.ts';

/** What a result is in an `mcp_call` item: it has words only, and an error stands in a place of its own. */
export function resultText({ content, isError }: ToolResult): Pick<McpCallItem, 'output' | 'error'> {
  const words = content.map(wordsOf).join('\n');
  return isError
    ? { output: null, error: mcpError(words || 'The call was not executed.') }
    : { output: words, error: null };
}

function wordsOf(block: ResultBlock): string {
  switch (block.type) {
    case 'text':
    case 'error':
      return block.text;
    case 'image':
      return `(An image of type ${block.mediaType}, which the model was shown.)`;
    case 'file': {
      const name = block.name === undefined ? '' : ` "${block.name}"`;
      return `(A file${name} of type ${block.mediaType}, which the model was shown.)`;
    }
    default:
      return block satisfies never;
  }
}

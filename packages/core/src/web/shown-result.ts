import type { ResultBlock } from '../messages.ts';

/** The text of a result, for people. What is not text is only described. */
export function shownResult(content: readonly ResultBlock[]): string {
  return content.map(textOfBlock).join('\n');
}

function textOfBlock(block: ResultBlock): string {
  switch (block.type) {
    case 'text':
    case 'error':
      return block.text;
    case 'image':
      return `(An image of type ${block.mediaType}, which was sent to the model.)`;
    case 'file': {
      const name = block.name === undefined ? '' : ` "${block.name}"`;
      return `(A file${name} of type ${block.mediaType}, which was sent to the model.)`;
    }
    default:
      return block satisfies never;
  }
}

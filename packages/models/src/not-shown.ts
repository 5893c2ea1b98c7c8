import type { FileBlock, ImageBlock } from '@treadle/core';

/** Words in place of what a host does not take, so that the model knows that something is missing, and what. */
export function notShown(block: ImageBlock | FileBlock): string {
  const what = block.type === 'image' ? 'An image' : 'A file';
  const name = block.type === 'file' && block.name !== undefined ? `${block.name}, ` : '';
  const where = block.source.type === 'url' ? `, ${block.source.url}` : '';
  return `[${what} that cannot be shown here: ${name}${block.mediaType}${where}]`;
}

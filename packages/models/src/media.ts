import type { FileBlock, ImageBlock } from '@treadle/core';

/** The URL of an image or a file; a `data:` URL if the content is inline. */
export function mediaURL({ mediaType, source }: ImageBlock | FileBlock): string {
  return source.type === 'url' ? source.url : `data:${mediaType};base64,${source.data}`;
}

/** The text that replaces an image or a file that the host does not accept, so that the model sees what is missing. */
export function notShown(block: ImageBlock | FileBlock): string {
  const what = block.type === 'image' ? 'An image' : 'A file';
  const name = block.type === 'file' && block.name !== undefined ? `${block.name}, ` : '';
  const where = block.source.type === 'url' ? `, ${block.source.url}` : '';
  return `[${what} that cannot be shown here: ${name}${block.mediaType}${where}]`;
}

import type { FileBlock, ImageBlock } from '@treadle/core';

/** Where an image or a file is, or all of it. */
export function mediaURL({ mediaType, source }: ImageBlock | FileBlock): string {
  return source.type === 'url' ? source.url : `data:${mediaType};base64,${source.data}`;
}

import type { FileBlock, ImageBlock } from '@treadle/core';
import { notShown } from '../not-shown.ts';

const IMAGES = /^image\/(jpeg|png|gif|webp)$/;
const TEXTS = /^text\/|[/+](json|xml|yaml|x-yaml|toml|javascript|typescript|x-sh|sql)$/;

/** An image or a file as a block. The API takes four kinds of images, PDF and text. */
export function mediaBlock(block: ImageBlock | FileBlock): object {
  return (block.type === 'image' ? imageBlock(block) : fileBlock(block)) ?? { type: 'text', text: notShown(block) };
}

function imageBlock({ mediaType, source }: ImageBlock): object | undefined {
  if (source.type === 'url') return { type: 'image', source: { type: 'url', url: source.url } };
  const media_type = mediaType === 'image/jpg' ? 'image/jpeg' : mediaType;
  return IMAGES.test(media_type) ? { type: 'image', source: base64(media_type, source.data) } : undefined;
}

function fileBlock({ mediaType, name, source }: FileBlock): object | undefined {
  const content = documentSource(mediaType, source);
  return content && { type: 'document', source: content, ...(name !== undefined && { title: name }) };
}

function documentSource(mediaType: string, source: FileBlock['source']): object | undefined {
  if (mediaType === 'application/pdf') {
    return source.type === 'url' ? { type: 'url', url: source.url } : base64(mediaType, source.data);
  }
  if (source.type === 'url' || !TEXTS.test(mediaType)) return undefined;
  const data = Buffer.from(source.data, 'base64').toString('utf8');
  return data.trim() === '' ? undefined : { type: 'text', media_type: 'text/plain', data };
}

function base64(media_type: string, data: string): object {
  return { type: 'base64', media_type, data };
}

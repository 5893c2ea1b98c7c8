import type { TextBlock, UserBlock } from '@treadle/core';
import { z } from 'zod';
import { badRequest } from '../api-error.ts';
import { checked, checkedList, notOneOf } from '../responses/fields.ts';
import { LONGEST, type RequestLimits } from '../responses/limits.ts';
import { checkFile, checkImage, fileBlock, imageBlock } from '../responses/media.ts';

/** What a message says where only words are taken: of the system and of the assistant. */
export function textsFrom(content: unknown, at: string, limits: RequestLimits): readonly TextBlock[] {
  return partsFrom(content, at, limits, (part, where) => {
    if (part.type === 'text') return { type: 'text', text: checked(TEXT, part, where).text };
    if (part.type === 'refusal') return { type: 'text', text: checked(REFUSAL, part, where).refusal };
    throw notOneOf(part.type, ['text', 'refusal'], `${where}.type`);
  });
}

/** What a user says, or a tool returns. */
export function blocksFrom(content: unknown, at: string, limits: RequestLimits): readonly UserBlock[] {
  return partsFrom<UserBlock>(content, at, limits, (part, where) => {
    switch (part.type) {
      case 'text':
        return { type: 'text', text: checked(TEXT, part, where).text };
      case 'image_url': {
        const { url } = checked(IMAGE, part, where).image_url;
        const image = { type: 'input_image', image_url: url, detail: 'auto' } as const;
        checkImage(image, where);
        return imageBlock(image);
      }
      case 'file':
        return fileFrom(part, where);
      default:
        throw notOneOf(part.type, ['text', 'image_url', 'file'], `${where}.type`);
    }
  });
}

const text = z.string().max(LONGEST.text);
const PART = z.looseObject({ type: z.string() });
const TEXT = z.object({ text });
const REFUSAL = z.object({ refusal: text });
const IMAGE = z.object({ image_url: z.object({ url: z.string().max(LONGEST.image) }) });
const FILE = z.object({
  file: z.object({
    file_data: z.string().max(LONGEST.file).nullish(),
    file_id: z.unknown().optional(),
    filename: z.string().max(LONGEST.id).nullish(),
  }),
});

type Part = z.infer<typeof PART>;

function partsFrom<Block>(
  content: unknown,
  at: string,
  limits: RequestLimits,
  make: (part: Part, at: string) => Block,
): readonly (Block | TextBlock)[] {
  if (typeof content === 'string') return content === '' ? [] : [{ type: 'text', text: checked(text, content, at) }];
  const parts = checkedList(content, at, { kind: 'a string or a list of content parts', most: limits.parts });
  return parts.map((part, index) => {
    const where = `${at}[${index}]`;
    return make(checked(PART, part, where), where);
  });
}

function fileFrom(part: Part, at: string): UserBlock {
  const { file_data: data, file_id: id, filename } = checked(FILE, part, at).file;
  if (data == null && id != null) {
    const message = `Files cannot be uploaded to this server. Give the file itself in '${at}.file.file_data'.`;
    throw badRequest(message, `${at}.file.file_id`, 'unsupported_parameter');
  }
  const file = {
    type: 'input_file',
    ...(filename != null && { filename }),
    ...(data != null && { file_data: data }),
  } as const;
  checkFile(file, `${at}.file`);
  return fileBlock(file);
}

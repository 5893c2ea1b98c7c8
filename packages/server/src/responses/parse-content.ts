import { z } from 'zod';
import { badRequest, type ApiError } from '../api-error.ts';
import type { OutputText } from '../wire/items.ts';
import { checked, checkedList, missing, notOneOf, wrongType } from './fields.ts';
import type { InputFile, InputImage, InputPart, InputText, Refusal } from './input-items.ts';
import { LONGEST } from './limits.ts';
import { checkFile, checkImage } from './media.ts';

/** The parts of a message, or its one text. `types` are those that may stand there. */
export interface ContentRules {
  readonly types: readonly PartType[];
  readonly most: number;
}

type PartType = 'input_text' | 'input_image' | 'input_file' | 'output_text' | 'refusal';

export const USER_PARTS: readonly PartType[] = ['input_text', 'input_image', 'input_file'];
export const SYSTEM_PARTS: readonly PartType[] = ['input_text'];
const ASSISTANT_PARTS: readonly PartType[] = ['output_text', 'refusal'];

/** Texts by other names, where only one kind of text can be meant. */
const SAME: Readonly<Record<string, readonly string[]>> = {
  input_text: ['text'],
  output_text: ['text', 'input_text'],
};

const text = z.string().max(LONGEST.text);
const textPart = z.object({ text });
const refusalPart = z.object({ refusal: text });
const imagePart = z.object({
  image_url: z.string().max(LONGEST.image).nullish(),
  file_id: z.string().nullish(),
  detail: z.string().nullish(),
});
const filePart = z.object({
  filename: z.string().max(LONGEST.id).nullish(),
  file_data: z.string().max(LONGEST.file).nullish(),
  file_url: z.string().max(LONGEST.image).nullish(),
  file_id: z.string().nullish(),
});

export function inputContent(content: unknown, at: string, rules: ContentRules): readonly InputPart[] {
  return contentOf(content, at, rules) as readonly InputPart[];
}

/** What the model has said, in a message of its own. */
export function outputContent(content: unknown, at: string, most: number): readonly (OutputText | Refusal)[] {
  return contentOf(content, at, { types: ASSISTANT_PARTS, most }) as readonly (OutputText | Refusal)[];
}

type Part = InputPart | OutputText | Refusal;

function contentOf(content: unknown, at: string, { types, most }: ContentRules): readonly Part[] {
  if (typeof content === 'string') return [partOf({ type: types[0], text: checked(text, content, at) }, at, types)];
  const parts = checkedList(content, at, { kind: 'a string or a list of parts', most });
  return parts.map((part, index) => partOf(part, `${at}[${index}]`, types));
}

function partOf(part: unknown, at: string, types: readonly PartType[]): Part {
  if (typeof part !== 'object' || part === null) throw wrongType('object', part, at);
  const given = (part as { readonly type?: unknown }).type;
  const type = types.find((type) => type === given) ?? types.find((type) => SAME[type]?.includes(given as string));
  switch (type) {
    case 'input_text':
      return { type, text: checked(textPart, part, at).text } satisfies InputText;
    case 'output_text':
      return { type, text: checked(textPart, part, at).text, annotations: [], logprobs: [] };
    case 'refusal':
      return { type, refusal: checked(refusalPart, part, at).refusal };
    case 'input_image':
      return image(part, at);
    case 'input_file':
      return file(part, at);
    case undefined:
      throw notOneOf(given, types, `${at}.type`);
    default:
      return type satisfies never;
  }
}

function image(part: unknown, at: string): InputImage {
  const { image_url: url, file_id: id, detail } = checked(imagePart, part, at);
  if (id != null && url == null) throw noFiles(`${at}.file_id`, "'image_url', an http(s) URL or a data URL");
  if (url == null) throw missing(`${at}.image_url`);
  const made: InputImage = {
    type: 'input_image',
    image_url: url,
    detail: detail === 'low' || detail === 'high' ? detail : 'auto',
  };
  checkImage(made, at);
  return made;
}

function file(part: unknown, at: string): InputFile {
  const { filename, file_data: data, file_url: url, file_id: id } = checked(filePart, part, at);
  if (id != null && data == null && url == null) throw noFiles(`${at}.file_id`, "'file_data' or 'file_url'");
  const made: InputFile = {
    type: 'input_file',
    ...(filename && { filename }),
    ...(data != null && { file_data: data }),
    ...(url != null && { file_url: url }),
  };
  checkFile(made, at);
  return made;
}

function noFiles(param: string, instead: string): ApiError {
  return badRequest(
    `'${param}' names an uploaded file, and this server keeps none. Send ${instead}.`,
    param,
    'unsupported_parameter',
  );
}

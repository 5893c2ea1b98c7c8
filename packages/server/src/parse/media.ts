import type { FileBlock, ImageBlock, Source } from '@treadle/core';
import { z } from 'zod';
import { PARAM, refuse, type IssueContext } from './validate.ts';

/** Reports an issue for an image that no model could read. `path`: of the field with the URL. */
export function checkImage(url: string, ctx: IssueContext, path: readonly string[]): void {
  if (!isDataUrl(url)) return checkWebUrl(url, ctx, path);
  const mediaType = decodedData(url)?.mediaType;
  if (mediaType === undefined) return refuseData(ctx, path);
  if (mediaType.startsWith('image/')) return;
  const message = `Invalid ${PARAM}: a data URL of type '${mediaType}' is not an image. Send an image, or send it as a file.`;
  refuse(ctx, message, { path, code: 'invalid_image_url' });
}

export interface FileSource {
  readonly name?: string | null | undefined;
  /** A data URL, or base64. */
  readonly data?: string | null | undefined;
  readonly url?: string | null | undefined;
}

/** Reports an issue for a file that no model could read. `path`: of the object with the fields. */
export function checkFile({ data, url }: FileSource, ctx: IssueContext, path: readonly string[] = []): void {
  if ((data == null) === (url == null)) {
    const message = `Invalid ${PARAM}: a file has either 'file_data' or 'file_url'. Send one of them.`;
    return refuse(ctx, message, { path, code: 'invalid_file' });
  }
  if (url != null) checkWebUrl(url, ctx, [...path, 'file_url']);
  else checkData(data!, ctx, [...path, 'file_data']);
}

/** Reports an issue for a text that is neither base64 nor a data URL. `path`: of the text. */
export function checkData(data: string, ctx: IssueContext, path: readonly string[]): void {
  if (decodedData(data) === undefined) refuseData(ctx, path);
}

export const imageDetail: z.ZodType<'auto' | NonNullable<ImageBlock['detail']> | null | undefined> = z
  .enum(['low', 'high', 'auto', 'original'])
  .nullish();

/** `url` was checked by `checkImage`. */
export function imageBlock(url: string, detail?: z.infer<typeof imageDetail>): ImageBlock {
  const wanted = detail != null && detail !== 'auto' && { detail };
  if (isDataUrl(url)) return { type: 'image', ...decodedData(url)!, ...wanted };
  return { type: 'image', mediaType: typeByName(url, IMAGES) ?? 'image/*', source: { type: 'url', url }, ...wanted };
}

/** The fields were checked by `checkFile`. */
export function fileBlock({ name: filename, data, url }: FileSource): FileBlock {
  const name = filename != null && { name: filename };
  const byName = typeByName(filename ?? '', FILES) ?? typeByName(url ?? '', FILES);
  if (data == null) {
    return { type: 'file', mediaType: byName ?? UNKNOWN, ...name, source: { type: 'url', url: url! } };
  }
  const { mediaType, source } = decodedData(data)!;
  const isPdf = source.data.startsWith(PDF_START);
  const guessed = byName ?? (isPdf ? 'application/pdf' : UNKNOWN);
  return { type: 'file', mediaType: mediaType === UNKNOWN ? guessed : mediaType, ...name, source };
}

/** `%PDF-` in base64. PDF is the one type that providers have to know. */
const PDF_START = 'JVBERi0';

const UNKNOWN = 'application/octet-stream';

interface DecodedData {
  readonly mediaType: string;
  readonly source: Source & { readonly type: 'data' };
}

/** A data URL, or base64 alone. Undefined if it is neither. */
function decodedData(text: string): DecodedData | undefined {
  const comma = isDataUrl(text) ? text.indexOf(',') : -1;
  if (isDataUrl(text) && comma === -1) return undefined;
  const [type, ...attributes] = text.slice('data:'.length, Math.max(comma, 0)).split(';');
  const isBase64 = comma === -1 || attributes.some((attribute) => attribute.trim().toLowerCase() === 'base64');
  const content = comma === -1 ? text : text.slice(comma + 1);
  const data = isBase64 ? paddedBase64(content) : encodedText(content);
  if (data === undefined) return undefined;
  const mediaType = comma === -1 ? UNKNOWN : type!.trim().toLowerCase() || 'text/plain';
  return { mediaType, source: { type: 'data', data } };
}

/**
 * Removes line breaks and adds missing padding: some encoders produce either, and providers reject both. Files are
 * large, so a valid text is scanned once.
 */
export function paddedBase64(text: string): string | undefined {
  const hasOthers = NOT_BASE64.test(text);
  const data = hasOthers ? text.replaceAll(/\s+/g, '') : text;
  const padding = data.endsWith('==') ? 2 : data.endsWith('=') ? 1 : 0;
  const length = data.length - padding;
  const end = data.indexOf('=');
  if (length === 0 || length % 4 === 1 || (end !== -1 && end < length) || (hasOthers && NOT_BASE64.test(data)))
    return undefined;
  return data.length % 4 === 0 ? data : data.slice(0, length).padEnd(Math.ceil(length / 4) * 4, '=');
}

const NOT_BASE64 = /[^A-Za-z0-9+/=]/;

function encodedText(text: string): string | undefined {
  try {
    return Buffer.from(decodeURIComponent(text)).toString('base64');
  } catch {
    return undefined;
  }
}

function refuseData(ctx: IssueContext, path: readonly string[]): void {
  const message = `Invalid ${PARAM}: it is not base64 data. Send 'data:<type>;base64,<data>'.`;
  refuse(ctx, message, { path, code: 'invalid_base64' });
}

function isDataUrl(url: string): boolean {
  return /^data:/i.test(url);
}

/** Only URLs that a provider can fetch: never a file of the machine that runs the model. */
export function checkWebUrl(url: string, ctx: IssueContext, path: readonly string[]): void {
  if (/^https?:\/\//i.test(url) && URL.canParse(url)) return;
  refuse(ctx, `Invalid ${PARAM}: expected an http(s) URL or a data URL.`, { path, code: 'invalid_url' });
}

const IMAGES: Readonly<Record<string, string>> = {
  png: 'image/png',
  jpg: 'image/jpeg',
  jpeg: 'image/jpeg',
  gif: 'image/gif',
  webp: 'image/webp',
};

const FILES: Readonly<Record<string, string>> = {
  ...IMAGES,
  pdf: 'application/pdf',
  txt: 'text/plain',
  md: 'text/markdown',
  csv: 'text/csv',
  html: 'text/html',
  json: 'application/json',
  xml: 'application/xml',
};

function typeByName(name: string, types: Readonly<Record<string, string>>): string | undefined {
  const [, ending = ''] = /\.([a-z0-9]{1,5})(?:[?#].*)?$/i.exec(name.slice(0, 2_000)) ?? [];
  const key = ending.toLowerCase();
  return Object.hasOwn(types, key) ? types[key] : undefined;
}

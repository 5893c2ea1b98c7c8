import type { FileBlock, ImageBlock, Source } from '@treadle/core';
import { badRequest } from '../api-error.ts';
import type { InputFile, InputImage } from './input-items.ts';

/** Throws a 400 for an image that no model could get. */
export function checkImage({ image_url: url }: InputImage, at: string): void {
  const param = `${at}.image_url`;
  if (!isData(url)) return checkWeb(url, param);
  const { mediaType } = decoded(url, param);
  if (mediaType.startsWith('image/')) return;
  throw badRequest(
    `Invalid '${param}': a data URL of type '${mediaType}' is no image. Send an image, or use a part of type 'input_file'.`,
    param,
    'invalid_image_url',
  );
}

/** Throws a 400 for a file that no model could get. */
export function checkFile({ file_data: data, file_url: url }: InputFile, at: string): void {
  if ((data === undefined) === (url === undefined)) {
    throw badRequest(
      `Invalid '${at}': a file has either 'file_data' or 'file_url'. Give one of them.`,
      at,
      'invalid_file',
    );
  }
  if (url !== undefined) checkWeb(url, `${at}.file_url`);
  else decoded(data!, `${at}.file_data`);
}

export function imageBlock({ image_url: url }: InputImage): ImageBlock {
  if (!isData(url))
    return { type: 'image', mediaType: typeByName(url, IMAGES) ?? 'image/*', source: { type: 'url', url } };
  return { type: 'image', ...decoded(url, 'image_url') };
}

export function fileBlock({ filename, file_data: data, file_url: url }: InputFile): FileBlock {
  const name = filename !== undefined && { name: filename };
  const byName = typeByName(filename ?? '', FILES) ?? typeByName(url ?? '', FILES);
  if (data === undefined) {
    return { type: 'file', mediaType: byName ?? UNKNOWN, ...name, source: { type: 'url', url: url! } };
  }
  const { mediaType, source } = decoded(data, 'file_data');
  return { type: 'file', mediaType: mediaType === UNKNOWN ? (byName ?? guessed(source)) : mediaType, ...name, source };
}

const UNKNOWN = 'application/octet-stream';

interface Decoded {
  readonly mediaType: string;
  readonly source: Source & { readonly type: 'data' };
}

/** A data URL, or base64 alone. */
function decoded(text: string, param: string): Decoded {
  if (!isData(text)) return { mediaType: UNKNOWN, source: { type: 'data', data: base64(text, param) } };
  const comma = text.indexOf(',');
  const [type, ...attributes] = text.slice('data:'.length, Math.max(comma, 0)).split(';');
  if (comma === -1) throw badData(param);
  const data = text.slice(comma + 1);
  return {
    mediaType: type!.trim().toLowerCase() || 'text/plain',
    source: {
      type: 'data',
      data: attributes.some((attribute) => attribute.trim().toLowerCase() === 'base64')
        ? base64(data, param)
        : Buffer.from(unescaped(data, param)).toString('base64'),
    },
  };
}

/** Some encoders break lines and some leave the padding out; providers take neither. Files are large: one look at each. */
function base64(text: string, param: string): string {
  const odd = NOT_BASE64.test(text);
  const data = odd ? text.replaceAll(/\s+/g, '') : text;
  const padding = data.endsWith('==') ? 2 : data.endsWith('=') ? 1 : 0;
  const length = data.length - padding;
  const end = data.indexOf('=');
  if (length === 0 || length % 4 === 1 || (end !== -1 && end < length) || (odd && NOT_BASE64.test(data)))
    throw badData(param);
  return data.length % 4 === 0 ? data : data.slice(0, length).padEnd(Math.ceil(length / 4) * 4, '=');
}

const NOT_BASE64 = /[^A-Za-z0-9+/=]/;

function unescaped(text: string, param: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    throw badData(param);
  }
}

function badData(param: string): Error {
  return badRequest(
    `Invalid '${param}': this is no base64 data. Send 'data:<type>;base64,<data>'.`,
    param,
    'invalid_base64',
  );
}

function isData(url: string): boolean {
  return /^data:/i.test(url);
}

/** Only what a provider could fetch: never a file of whoever runs the model. */
function checkWeb(url: string, param: string): void {
  if (/^https?:\/\//i.test(url) && URL.canParse(url)) return;
  throw badRequest(`Invalid '${param}': expected an http(s) URL or a data URL.`, param, 'invalid_url');
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

/** By how a PDF begins: the one kind that providers must be told of. */
function guessed({ data }: { readonly data: string }): string {
  return data.startsWith('JVBERi0') ? 'application/pdf' : UNKNOWN;
}

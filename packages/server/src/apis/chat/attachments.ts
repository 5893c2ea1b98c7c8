import type { FileBlock, ImageBlock, Message, ResultBlock, TextBlock, UserBlock, UserMessage } from '@treadle/core';
import { shownResult } from '@treadle/core/web';
import { z } from 'zod';
import { ApiError, badRequest } from '../../api-error.ts';
import { RESPONSE_PREFIX } from '../../ids.ts';
import { checkData, fileBlock } from '../../parse/media.ts';
import { list } from '../../parse/validate.ts';
import type { Attachment, ResultPart, SentAttachment } from './wire.ts';

const MAX_ATTACHMENTS = 16;
const MAX_BYTES = 10_000_000;
/** The whole text is sent to the model with every message. */
const MAX_TEXT_BYTES = 500_000;

const IMAGES = ['image/png', 'image/jpeg', 'image/gif', 'image/webp'];
const PDF = 'application/pdf';
const TEXT = /^(text\/[\w.+-]+|application\/(json|xml|yaml|x-yaml|toml|javascript|x-sh|sql|[\w.-]+\+(json|xml)))$/;

/** The field `attachments` of a request. */
export const attachmentsSchema: z.ZodType<readonly SentAttachment[]> = list(
  z
    .strictObject({
      name: z.string().min(1).max(200).nullish(),
      media_type: z.string().min(1).max(100).nullish(),
      data: z.string().min(1),
    })
    .superRefine(({ data }, ctx) => checkData(data, ctx, ['data'])),
  { expected: 'a list of attachments', max: MAX_ATTACHMENTS },
);

/** A message with attachments. Its first block is the text, the others are the attachments, in order. */
export function messageWith(
  text: string,
  sent: readonly SentAttachment[],
  param = 'attachments',
): { readonly message: UserMessage; readonly attachments: readonly Attachment[] } {
  const blocks: UserBlock[] = [{ type: 'text', text }];
  const attachments = sent.map((one, index): Attachment => {
    const { block, attachment } = parsedAttachment(one, `${param}[${index}]`);
    blocks.push(block);
    return attachment;
  });
  return { message: { role: 'user', content: blocks }, attachments };
}

function parsedAttachment(
  { name: given, media_type, data }: SentAttachment,
  param: string,
): { readonly block: UserBlock; readonly attachment: Attachment } {
  const name = given ?? null;
  const file = fileBlock({ name, data });
  const mediaType = (media_type ?? file.mediaType).toLowerCase();
  const encoded = dataOf(file);
  const size = Buffer.byteLength(encoded, 'base64');
  const attachment = { name, media_type: mediaType, size };
  if (TEXT.test(mediaType)) {
    if (size > MAX_TEXT_BYTES) throw tooLarge(param, size, MAX_TEXT_BYTES);
    return { block: textBlock(name, decodedText(encoded, param)), attachment };
  }
  if (size > MAX_BYTES) throw tooLarge(param, size, MAX_BYTES);
  const source = { type: 'data', data: encoded } as const;
  if (IMAGES.includes(mediaType)) {
    return { block: { type: 'image', mediaType, ...(name !== null && { name }), source }, attachment };
  }
  if (mediaType === PDF) return { block: { ...file, mediaType }, attachment };
  const message = `${param} has the type ${JSON.stringify(mediaType)}. Send an image (PNG, JPEG, GIF, WebP), a PDF or a text.`;
  throw badRequest(message, param, 'unsupported_media_type');
}

/** A text is a part of the message, because every model can read it. */
function textBlock(name: string | null, text: string): TextBlock {
  return { type: 'text', text: `\n\n${heading(name)}${text}` };
}

function heading(name: string | null): string {
  return `Attachment${name === null ? '' : ` ${JSON.stringify(name)}`}:\n`;
}

function decodedText(encoded: string, param: string): string {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(Buffer.from(encoded, 'base64'));
  } catch {
    throw badRequest(`${param} is not text in UTF-8.`, param, 'invalid_text');
  }
}

function tooLarge(param: string, size: number, most: number): ApiError {
  const [is, allowed] = [size, most].map((bytes) => bytes.toLocaleString('en-US'));
  const message = `${param} has ${is} bytes. At most ${allowed} are allowed for this type.`;
  return new ApiError(413, 'invalid_request_error', message, { param, code: 'attachment_too_large' });
}

function dataOf({ source }: FileBlock | ImageBlock): string {
  return source.type === 'data' ? source.data : '';
}

/** The message for the model: providers reject empty texts. */
export function sentMessage(message: Message): Message {
  const { role, content } = message;
  if (role !== 'user' || content.length < 2 || content[0]!.type !== 'text' || content[0]!.text !== '') return message;
  return { role, content: content.slice(1) };
}

/** The text that was sent, without the attachments. */
export function messageText({ content: [text] }: UserMessage): string {
  return text?.type === 'text' ? text.text : '';
}

/** Where an attachment is: in the message of a run, or in the result of one of its calls. */
export interface AttachmentPlace {
  readonly runId: string;
  /** Its number in the message, or the position of its block in the result. */
  readonly index: number;
  /** The turn of the call, and the position of the call in its reply. Absent: it is in the message. */
  readonly in?: { readonly turn: number; readonly call: number };
}

/** The id by which a client fetches an attachment. */
export function attachmentId({ runId, index, in: result }: AttachmentPlace): string {
  const numbers = result ? [result.turn, result.call, index] : [index];
  return ['att', runId.slice(RESPONSE_PREFIX.length), ...numbers].join('_');
}

export function attachmentIn(id: string): AttachmentPlace | undefined {
  const [, hex, turn, call, index] = /^att_([0-9a-f]{32})(?:_(\d{1,6})_(\d{1,6}))?_(\d{1,6})$/.exec(id) ?? [];
  if (hex === undefined) return undefined;
  const place = { runId: RESPONSE_PREFIX + hex, index: Number(index) };
  return turn === undefined ? place : { ...place, in: { turn: Number(turn), call: Number(call) } };
}

/** The bytes of an attachment of a message. */
export function attachmentBytes({ content }: UserMessage, { name }: Attachment, index: number): Buffer {
  const block = content[index + 1]!;
  if (block.type === 'text') return Buffer.from(block.text.slice(textBlock(name, '').text.length));
  return Buffer.from(dataOf(block), 'base64');
}

/** The parts of a result. Undefined if it is only text. What is at another address is only described. */
export function resultParts(
  content: readonly ResultBlock[],
  { runId, turn, call }: { readonly runId: string; readonly turn: number; readonly call: number },
): readonly ResultPart[] | undefined {
  if (!content.some((block) => describedBlock(block))) return undefined;
  return content.map((block, index): ResultPart => {
    const described = describedBlock(block);
    if (!described) return { type: 'text', text: shownResult([block]) };
    const id = attachmentId({ runId, index, in: { turn, call } });
    return { type: block.type === 'image' ? 'image' : 'file', id, ...described };
  });
}

/** Undefined if the block has no bytes. A tool may name any type: what is not an image or a PDF is only bytes. */
function describedBlock(block: ResultBlock): Attachment | undefined {
  if ((block.type !== 'image' && block.type !== 'file') || block.source.type !== 'data') return undefined;
  const type = block.mediaType.toLowerCase();
  return {
    name: block.name ?? null,
    media_type: IMAGES.includes(type) || type === PDF ? type : 'application/octet-stream',
    size: Buffer.byteLength(block.source.data, 'base64'),
  };
}

/** The image or file at a position in a result. */
export function resultAttachment(
  content: readonly ResultBlock[],
  index: number,
): (Attachment & { readonly bytes: Buffer }) | undefined {
  const block = content[index];
  const described = block && describedBlock(block);
  return described && { ...described, bytes: Buffer.from(dataOf(block as ImageBlock), 'base64') };
}

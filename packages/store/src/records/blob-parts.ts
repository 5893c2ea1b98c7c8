import { createHash } from 'node:crypto';
import { crc32 } from 'node:zlib';
import { checkedBytes, TreadleError, type BlobContent, type BlobPart } from '@treadle/core';

/** UTF-16 units, or bytes, per part. Reading a page loads only the parts that it touches. */
const PART = 32_768;

/** A text, or bytes with their media type, in parts of equal length. */
export interface EncodedBlob {
  readonly digest: string;
  readonly length: number;
  /** Null: a text. */
  readonly mediaType: string | null;
  /** A generator, because a part is encoded when it is stored. */
  readonly parts: () => Generator<EncodedPart>;
}

export interface EncodedPart {
  readonly part: number;
  readonly content: StoredPart;
  /** Null in a part that was stored before sums were. */
  readonly sum: number | null;
}

/** Copies bytes, because the caller may change them before they are written. */
export function encodeBlob(given: BlobContent): EncodedBlob {
  const mediaType = typeof given === 'string' ? null : checkedBytes(given).mediaType;
  const content = typeof given === 'string' ? given : Uint8Array.from(given.bytes);
  const digest = digestOf(content, mediaType);
  return {
    digest,
    length: content.length,
    mediaType,
    *parts() {
      let part = 0;
      for (const piece of partsOf(content)) {
        const encoded = encodePart(piece);
        yield { part, content: encoded, sum: sumOf(encoded, digest, part) };
        part++;
      }
    },
  };
}

export interface BlobPage {
  readonly start: number;
  readonly end: number;
  /** The first and the last part that the page touches. */
  readonly first: number;
  readonly last: number;
}

export function blobPage(length: number, from: number, to: number): BlobPage {
  const start = Math.min(Math.max(0, from), length);
  const end = Math.min(Math.max(start, to), length);
  const first = Math.floor(start / PART);
  return { start, end, first, last: start === end ? first - 1 : Math.floor((end - 1) / PART) };
}

interface StoredBlob extends Pick<EncodedBlob, 'digest' | 'length' | 'mediaType'> {
  readonly runId: string;
}

/** Throws `journal-damaged` if a part of the page is missing or changed. */
export function joinBlobParts(blob: StoredBlob, page: BlobPage, rows: readonly EncodedPart[]): BlobPart {
  const { runId, digest, length, mediaType } = blob;
  const { start, end, first, last } = page;
  const parts: (string | Uint8Array)[] = [];
  for (let index = first; index <= last; index++) {
    const part = intactPart(rows[index - first], { digest, index, length, mediaType });
    if (part.problem !== undefined) throw contentDamaged(runId, digest, `part ${index} is ${part.problem}`);
    parts.push(part.content);
  }
  const content = mediaType === null ? parts.join('') : Buffer.concat(parts as Uint8Array[]);
  const isWhole = start === 0 && end === length;
  if (isWhole && digestOf(content, mediaType) !== digest) {
    throw contentDamaged(runId, digest, 'its parts do not match its id');
  }
  const text = content.slice(start - first * PART, end - first * PART);
  if (typeof text === 'string') return { text, length };
  return { bytes: new Uint8Array(text), mediaType: mediaType!, length };
}

type CheckedPart =
  | { readonly content: string | Uint8Array; readonly problem?: never }
  | { readonly problem: 'missing' | 'damaged' };

interface PartPosition {
  readonly digest: string;
  readonly index: number;
  /** The length and media type of the whole. */
  readonly length: number;
  readonly mediaType: string | null;
}

function intactPart(row: EncodedPart | undefined, { digest, index, length, mediaType }: PartPosition): CheckedPart {
  if (row?.part !== index) return { problem: 'missing' };
  const { content, sum } = row;
  if (sum !== null && sumOf(content, digest, index) !== sum) return { problem: 'damaged' };
  if (mediaType !== null && typeof content === 'string') return { problem: 'damaged' };
  const decoded = mediaType === null ? decodePart(content) : content;
  return decoded.length === Math.min(PART, length - index * PART) ? { content: decoded } : { problem: 'damaged' };
}

/** Continues the sum of text and position, so that a part fits only there. */
function sumOf(content: StoredPart, digest: string, index: number): number {
  return crc32(content, crc32(`${digest} ${index}`));
}

function* partsOf(content: string | Uint8Array): Generator<string | Uint8Array> {
  for (let at = 0; at < content.length; at += PART) yield content.slice(at, at + PART);
}

/**
 * SHA-256 of the text as UTF-16, which also distinguishes strings with unpaired surrogates. For bytes: of the media type, a
 * newline and the bytes, with a prefix.
 */
function digestOf(content: string | Uint8Array, mediaType: string | null): string {
  const hash = createHash('sha256');
  if (mediaType !== null) hash.update(`${mediaType}\n`);
  for (const part of partsOf(content)) hash.update(typeof part === 'string' ? Buffer.from(part, 'utf16le') : part);
  return `${mediaType === null ? '' : 'bytes-'}${hash.digest('hex')}`;
}

export type StoredPart = string | Uint8Array;

/** Stores keep text as UTF-8, which cannot represent unpaired surrogates. Parts that contain one are stored as UTF-16. */
function encodePart(part: string | Uint8Array): StoredPart {
  return typeof part !== 'string' || part.isWellFormed() ? part : Buffer.from(part, 'utf16le');
}

function decodePart(part: StoredPart): string {
  return typeof part === 'string' ? part : Buffer.from(part).toString('utf16le');
}

const REMEDY = 'Restore the store from a backup; other results are not affected.';

function contentDamaged(runId: string, digest: string, problem: string): TreadleError {
  return new TreadleError(
    'journal-damaged',
    `The long result ${digest} of run "${runId}" is damaged: ${problem}. ${REMEDY}`,
  );
}

export function contentMissing(runId: string): TreadleError {
  return new TreadleError('journal-damaged', `A long result of run "${runId}" is missing. ${REMEDY}`);
}

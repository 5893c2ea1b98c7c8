import { TreadleError } from '@treadle/core';
import type { ConversationRecord } from '../ports/conversations.ts';

/** Columns of `conversations`. */
export interface ConversationRow {
  readonly id: number;
  readonly conversation: string;
  readonly tenant: string;
  readonly title: string;
  readonly created_at: number;
  readonly updated_at: number;
  readonly head: string | null;
  readonly metadata: string | null;
  readonly instructions: string | null;
}

/**
 * A conversation is deleted in several transactions, because it may have many runs. The first one adds this to the name of its
 * tenant, so that it does not exist for anybody any more. If the process dies after that, the next `prune` deletes the rest.
 * Until then, the responses that are left are found by their own ids, each of them complete, from the oldest one on.
 */
export const DELETED = '\u0001deleted ';

export function isDeleted({ tenant }: ConversationRow): boolean {
  return tenant.startsWith(DELETED);
}

/** A record is found by the beginning of its text. The index takes some milliseconds for it, in which nothing else happens. */
const MAX_TEXT_CHARS = 100_000;
export function indexedText(text: string): string {
  return text.length > MAX_TEXT_CHARS ? text.slice(0, MAX_TEXT_CHARS).toWellFormed() : text;
}

export function toConversation(given: ConversationRow): ConversationRecord {
  const { conversation: id, tenant, title, head, metadata, instructions, ...row } = given;
  return {
    id,
    tenant,
    title,
    createdAt: row.created_at,
    updatedAt: row.updated_at,
    ...(head !== null && { head }),
    ...(metadata !== null && { metadata: JSON.parse(metadata) as Readonly<Record<string, string>> }),
    ...(instructions !== null && { instructions }),
  };
}

/** The words of a text to search for. */
export function wordsIn(text: string): readonly string[] {
  return text.toWellFormed().match(/[\p{L}\p{N}\p{Co}]+/gu) ?? [];
}

export function checkName(name: string): void {
  if (name !== '' && name.isWellFormed()) return;
  throw new TreadleError('invalid-input', 'The ids of conversations must be non-empty, without unpaired surrogates.');
}

export function conversationExists(id: string): TreadleError {
  return new TreadleError('run-exists', `A conversation "${id}" already exists, so nothing was written.`);
}

/** A word that is longer is cut: PostgreSQL takes 2,046 bytes. */
const MAX_WORD_CHARS = 500;

/** The words of a text, without case and diacritics. */
export function searchWords(given: string, order: 'any' | 'in order' = 'any'): readonly string[] {
  const folded = indexedText(given).normalize('NFD').replace(/\p{M}/gu, '').toLowerCase();
  const words = wordsIn(folded).map((word) => word.slice(0, MAX_WORD_CHARS).toWellFormed());
  return order === 'any' ? [...new Set(words)] : words;
}

import { createHash } from 'node:crypto';
import { audienceOf, type MemoryFilter, type MemoryItem, type MemoryReader } from '@treadle/core/memory';
import { searchWords } from './conversations.ts';
import { storedTenant } from './metrics.ts';

/** Columns of `memories`. Names are as they are stored. */
export interface MemoryRow {
  readonly memory: string;
  readonly tenant: string;
  readonly audience: string;
  readonly type: string;
  readonly run: string | null;
  readonly session: string | null;
  readonly subject: string | null;
  readonly agent: string | null;
  readonly at: number;
  /** What stands for the tenant and the audience in the index. */
  readonly owners: string;
  /** The words that the item is found by, once each. */
  readonly words: string;
  /** The item as JSON. */
  readonly body: string;
}

/** An item is found by the first of its words. */
const MAX_WORDS = 2_000;

export function memoryRow(item: MemoryItem): MemoryRow {
  const tenant = storedTenant(item.tenant);
  const audience = audienceOf(item).toWellFormed();
  const texts = [item.content, ...item.tags, ...('key' in item ? [item.key] : [])];
  const name = (text: string | undefined): string | null => text?.toWellFormed() ?? null;
  return {
    memory: item.id.toWellFormed(),
    tenant,
    audience,
    type: item.type,
    run: name(item.runId),
    session: name(item.session),
    subject: name(item.subject),
    agent: name(item.agent),
    at: item.at,
    owners: `${ownerWord(tenant)} ${ownerWord(tenant, audience)}`,
    words: searchWords(texts.join(' ')).slice(0, MAX_WORDS).join(' '),
    body: JSON.stringify(item),
  };
}

/** Whose texts are not sent to a model for embeddings: a pattern of bodies. In a text, the quotes are escaped. */
export const PRIVATE_BODY = '%"private":true%';

/**
 * A regular expression for bodies with a tag, whose quotes, escaped in all texts, begin and end it. PostgreSQL does not read JSON with
 * every text that is stored.
 */
export function bodyWithTag(tag: string): string {
  const isEscaped = /[\\^]/;
  const text = JSON.stringify(tag).replaceAll(/[^\p{L}\p{N}]/gu, (char) =>
    isEscaped.test(char) ? `\\${char}` : `[${char}]`,
  );
  return String.raw`"tags":\[("([^"\\]|\\.)*",)*${text}[],]`;
}

export function toItem(body: string): MemoryItem {
  return JSON.parse(body) as MemoryItem;
}

/** A word of the index. No other word has this length. */
function ownerWord(...names: readonly string[]): string {
  return `x${createHash('sha256').update(JSON.stringify(names)).digest('hex').slice(0, 32)}`;
}

/** Of which owners a reader finds items. */
export interface StoredReader {
  readonly tenant: string;
  /** Undefined: all of the tenant. */
  readonly audiences: readonly string[] | undefined;
  readonly owners: readonly string[];
  readonly tag: string | undefined;
}

export function storedReader({ tenant: name, audiences: given, tag }: MemoryReader): StoredReader {
  const tenant = storedTenant(name);
  const audiences = given?.map((one) => one.toWellFormed());
  return {
    tenant,
    audiences,
    owners: audiences ? audiences.map((one) => ownerWord(tenant, one)) : [ownerWord(tenant)],
    tag: tag?.toWellFormed(),
  };
}

/** Words of a query that are looked up at most. */
const MAX_QUERY_WORDS = 32;

export function queryWords(text: string): readonly string[] {
  return searchWords(text).slice(0, MAX_QUERY_WORDS);
}

/** A word that more items have tells little, and takes long to look at. */
export const COMMON = 2_000;

export interface WordCount {
  readonly word: string;
  /** How many items have it, up to `COMMON` and one more. */
  readonly count: number;
}

/** The words to rank by: those that are not common, or else the first two that are. */
export function rankingWords(counts: readonly WordCount[]): readonly WordCount[] {
  const found = counts.filter(({ count }) => count > 0);
  const rare = found.filter(({ count }) => count <= COMMON);
  return rare.length > 0 ? rare : found.slice(0, 2);
}

/** How much a word tells. */
export function weight({ count }: WordCount): number {
  return Math.log(1 + (10 * COMMON) / count);
}

/** The filters of a list that are compared with a column. */
const FILTER_COLUMNS = {
  type: 'type',
  runId: 'run',
  session: 'session',
  agent: 'agent',
  subject: 'subject',
} as const satisfies Partial<Record<keyof MemoryFilter, keyof MemoryRow>>;

export function columnFilters(filter: MemoryFilter): readonly (readonly [column: string, value: string])[] {
  return Object.entries(FILTER_COLUMNS).flatMap(([name, column]) => {
    const value = filter[name as keyof typeof FILTER_COLUMNS];
    return value === undefined ? [] : [[column, value.toWellFormed()] as const];
  });
}

/** The best `limit` of many rows; of equal ones the oldest. */
export function bestOf(limit: number): {
  readonly add: (id: number, score: number) => void;
  readonly best: () => readonly number[];
} {
  let kept: { readonly id: number; readonly score: number }[] = [];
  const cut = (): void => {
    kept = kept.toSorted((a, b) => b.score - a.score || a.id - b.id).slice(0, limit);
  };
  return {
    add(id, score) {
      if (kept.length >= 8 * limit) cut();
      kept.push({ id, score });
    },
    best() {
      cut();
      return kept.map(({ id }) => id);
    },
  };
}

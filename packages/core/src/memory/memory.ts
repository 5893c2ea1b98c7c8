import { TreadleError } from '../errors.ts';
import type { Embedder, MemoryItem, MemoryPort, MemoryReader, Note } from './port.ts';

/** How much of an item is told: a line, a paragraph, or everything. */
export type MemoryLevel = 'index' | 'summary' | 'full';

export const MEMORY_LEVELS: readonly MemoryLevel[] = ['index', 'summary', 'full'];

const LEVEL_CHARS: Readonly<Record<MemoryLevel, number>> = { index: 160, summary: 800, full: Infinity };

export interface SearchOptions {
  /** Default `index`. */
  readonly level?: MemoryLevel;
  /** How many items at most; default 5. */
  readonly topK?: number;
  readonly signal?: AbortSignal;
}

export interface Memory {
  /** What a reader may see of a text, the best first. Nothing if the text has no words. */
  search(reader: MemoryReader, text: string, options?: SearchOptions): Promise<readonly MemoryItem[]>;
  /** Adds or replaces a note. Rejects with `invalid-input` if it cannot be one. */
  remember(note: NewNote): Promise<Note>;
  /** What runs did until now is found from here on, if that takes a short time. `search` calls it. */
  refresh(): Promise<void>;
}

export type NewNote = Omit<Note, 'id' | 'type' | 'tags' | 'metadata' | 'at'> & Partial<Pick<Note, 'tags' | 'metadata'>>;

export interface MemoryOptions {
  readonly port: MemoryPort;
  /** Absent: items are found by their words only. */
  readonly embedder?: Embedder;
  readonly now?: () => number;
  /** Called before each search, so that what runs did lately is found. */
  readonly refresh?: () => Promise<unknown>;
  /** Called if the embedder fails. The search goes on by words. */
  readonly onProblem?: (error: unknown) => void;
}

/** Of how many items of each ranking the best are chosen, for each of them. More would let what is far down in both outweigh the first of one. */
const CANDIDATES = 2;
/** So that the first places of a ranking do not outweigh everything else (reciprocal rank fusion). */
const RANK_OFFSET = 60;
/** After a failure of the embedder, searches do without it for so long, so that not each of them waits for a host that is away. */
const EMBEDDER_REST_MS = 30_000;

export function memoryOn({ port, embedder, now = Date.now, refresh, onProblem }: MemoryOptions): Memory {
  let restsUntil = -Infinity;

  async function nearest(
    reader: MemoryReader,
    text: string,
    { limit, signal }: { readonly limit: number; readonly signal: AbortSignal | undefined },
  ): Promise<readonly MemoryItem[]> {
    if (!embedder || now() < restsUntil) return [];
    try {
      const [vector] = await embedder.embed([embeddedText(text)], signal);
      return await port.nearest(reader, { model: embedder.id, vector: quantised(vector!), limit });
    } catch (error) {
      signal?.throwIfAborted();
      restsUntil = now() + EMBEDDER_REST_MS;
      onProblem?.(error);
      return [];
    }
  }

  return {
    async search(reader, text, { level = 'index', topK = 5, signal } = {}) {
      if (text.trim() === '' || topK < 1) return [];
      await refresh?.();
      signal?.throwIfAborted();
      const limit = CANDIDATES * topK;
      const rankings = await Promise.all([
        port.matching(reader, text, limit),
        nearest(reader, text, { limit, signal }),
      ]);
      return fused(rankings)
        .slice(0, topK)
        .map((item) => ({ ...item, content: textAt(level, item.content) }));
    },

    async remember(given) {
      const note: Note = { tags: [], metadata: {}, ...given, id: noteId(given), type: 'note', at: now() };
      const problem = noteProblem(note);
      if (problem !== undefined) throw new TreadleError('invalid-input', problem);
      await port.put(note);
      return note;
    },

    async refresh() {
      await refresh?.();
    },
  };
}

/** How many texts are embedded with one request. Hosts that take fewer get fewer. */
const EMBEDDED_AT_ONCE = 64;
/** Of a longer text the beginning is embedded: small models take 512 tokens. */
const MAX_EMBEDDED_CHARS = 2_000;

/** Makes vectors of all items that have none of this model. */
export async function embedItems(port: MemoryPort, embedder: Embedder, signal?: AbortSignal): Promise<void> {
  for (let most = EMBEDDED_AT_ONCE; ;) {
    const items = await port.unembedded(embedder.id, most);
    if (items.length === 0) return;
    let vectors: readonly (readonly number[])[];
    try {
      vectors = await embedder.embed(
        items.map(({ content }) => embeddedText(content)),
        signal,
      );
    } catch (error) {
      if (signal?.aborted || most === 1) throw error;
      most /= 4;
      continue;
    }
    await port.addVectors(
      embedder.id,
      items.map(({ row }, index) => ({ row, vector: quantised(vectors[index] ?? []) })),
    );
  }
}

function embeddedText(text: string): string {
  return text.slice(0, MAX_EMBEDDED_CHARS).toWellFormed();
}

/** Items of several rankings, by the sum of what their places count. */
function fused(rankings: readonly (readonly MemoryItem[])[]): readonly MemoryItem[] {
  const scores = new Map<string, { readonly item: MemoryItem; score: number }>();
  for (const ranking of rankings) {
    for (const [rank, item] of ranking.entries()) {
      const known = scores.get(item.id) ?? { item, score: 0 };
      known.score += 1 / (RANK_OFFSET + rank + 1);
      scores.set(item.id, known);
    }
  }
  return [...scores.values()].toSorted((a, b) => b.score - a.score).map(({ item }) => item);
}

/** The beginning of a text, in one line for `index`. */
export function textAt(level: MemoryLevel, text: string): string {
  const most = LEVEL_CHARS[level];
  const shown = level === 'index' ? text.replaceAll(/\s+/g, ' ').trim() : text;
  return shown.length <= most ? shown : `${shown.slice(0, most - 1).toWellFormed()}…`;
}

/** Comparing directions needs few bits: a byte for each number is a quarter of the size. */
export function quantised(vector: readonly number[]): Int8Array {
  const most = vector.reduce((max, value) => Math.max(max, Math.abs(value)), 0);
  if (!(most > 0) || !Number.isFinite(most)) {
    throw new TreadleError('invalid-input', 'The model for embeddings returned a vector without a direction.');
  }
  return Int8Array.from(vector, (value) => Math.round((value / most) * 127));
}

/** Says how similar the direction of another vector is: 1 for the same one. Called for each vector there is, so it does little. */
export function similarityTo(vector: Int8Array): (other: Int8Array) => number {
  const { length } = vector;
  const ofVector = vector.reduce((sum, value) => sum + value * value, 0);
  return (other) => {
    if (other.length !== length) return -1;
    let [product, ofOther] = [0, 0];
    for (let index = 0; index < length; index++) {
      const value = other[index]!;
      // Whole numbers of 32 bits are faster.
      product = (product + Math.imul(vector[index]!, value)) | 0;
      ofOther = (ofOther + Math.imul(value, value)) | 0;
    }
    return product / Math.sqrt(ofVector * ofOther);
  };
}

const MAX_KEY_CHARS = 200;
const MAX_NOTE_CHARS = 8_000;
const MAX_TAGS = 20;

function noteProblem({ key, content, tags }: Note): string | undefined {
  if (key === '' || key.length > MAX_KEY_CHARS) return `The key of a note has 1 to ${MAX_KEY_CHARS} characters.`;
  if (content.trim() === '' || content.length > MAX_NOTE_CHARS) {
    return `The text of a note has 1 to ${MAX_NOTE_CHARS} characters.`;
  }
  if (tags.length > MAX_TAGS || tags.some((tag) => tag === '' || tag.length > MAX_KEY_CHARS)) {
    return `A note has at most ${MAX_TAGS} tags of 1 to ${MAX_KEY_CHARS} characters.`;
  }
  if (tags.includes('private')) return 'What is tagged "private" is not remembered. Remove the tag, or the text.';
  return undefined;
}

/** The same for the same scope and key, so that a call that runs twice writes one note. */
export function noteId({ tenant, subject, agent, session, scope, key }: NewNote): string {
  const owner = { agent, session, user: subject, tenant: '' }[scope] ?? '';
  return `note:${JSON.stringify([tenant ?? '', scope, owner, key])}`;
}

/** What was found, for a model. Each item is a line of JSON, so no content can pretend to be something else. */
export function recallText(items: readonly MemoryItem[]): string {
  return items.map((item) => JSON.stringify(toldItem(item))).join('\n');
}

/** What a model is told of an item. */
function toldItem({ id, type, at, agent, content, tags, ...item }: MemoryItem): object {
  return {
    id,
    type,
    at: new Date(at).toISOString(),
    ...(item.outside && { from: 'outside' }),
    ...('key' in item && { key: item.key, scope: item.scope }),
    ...(agent !== undefined && { agent }),
    ...(tags.length > 0 && { tags }),
    content,
  };
}

/** What a run did: a projection of its journal. Plain JSON. */
export interface Observation {
  /** `RUN/SEQ`, or `RUN/SEQ.N` for one of several of an entry: the same whenever the journal is read. */
  readonly id: string;
  readonly type: ObservationType;
  readonly runId: string;
  readonly session?: string;
  readonly agent?: string;
  /** The person or key that the run acts for. */
  readonly subject?: string;
  readonly tenant?: string;
  readonly content: string;
  /** Those that the label `tags` of the run names, with commas between them. */
  readonly tags: readonly string[];
  readonly metadata: Readonly<Record<string, string | number | boolean>>;
  readonly at: number;
  /** The run had seen content from outside before. */
  readonly outside?: true;
}

export type ObservationType = 'tool_call' | 'llm_response' | 'decision' | 'error';

/** Who a note is for: the agent that wrote it, the session, the person or key, or all of the tenant. */
export type NoteScope = 'agent' | 'session' | 'user' | 'tenant';

/** A text that an agent or a person wrote down under a key. Its name is its scope and key: a second one replaces the first. */
export interface Note {
  readonly id: string;
  readonly type: 'note';
  readonly key: string;
  readonly scope: NoteScope;
  /** The run that wrote it last; absent: a person did. */
  readonly runId?: string;
  readonly session?: string;
  readonly agent?: string;
  readonly subject?: string;
  readonly tenant?: string;
  readonly content: string;
  readonly tags: readonly string[];
  readonly metadata: Readonly<Record<string, string | number | boolean>>;
  readonly at: number;
  readonly outside?: true;
  /** The run that wrote it had seen private data before. */
  readonly private?: true;
}

export type MemoryItem = Observation | Note;

/** Who reads: of a tenant everything, or only what is for these audiences; and only what has the tag, if there is one. */
export interface MemoryReader {
  readonly tenant?: string;
  readonly audiences?: readonly string[];
  readonly tag?: string;
}

/** Which items. Those that are absent do not restrict. `at` is before `until`. */
export interface MemoryFilter extends MemoryReader {
  readonly type?: MemoryItem['type'];
  readonly runId?: string;
  readonly session?: string;
  readonly agent?: string;
  readonly subject?: string;
  readonly since?: number;
  readonly until?: number;
  readonly limit: number;
  /** The last item of the page before. */
  readonly after?: Pick<MemoryItem, 'at' | 'id'>;
}

/** What is forgotten: everything of the tenant to which all fields apply. */
export interface Forgetting {
  readonly tenant?: string;
  readonly id?: string;
  readonly session?: string;
  readonly subject?: string;
  /** What is not younger. */
  readonly until: number;
}

/**
 * Where memory is kept.
 *
 * 1. Observations are a projection: they are added with the entries that they are made of counted, so each is there once, and
 *    `restart` makes them again from the journals. Those of a run that is deleted go with it.
 * 2. What was forgotten is removed with everything that was derived from it, and stays away when observations are made again.
 * 3. An item is only found by readers of its tenant.
 */
export interface MemoryPort {
  /** Items with any of the words of a text, the best first. */
  matching(reader: MemoryReader, text: string, limit: number): Promise<readonly MemoryItem[]>;
  /** Items whose vectors are the most similar, the best first, and of equal ones the oldest. */
  nearest(reader: MemoryReader, near: NearVector): Promise<readonly MemoryItem[]>;
  /** Who compares vectors. `database`: it can, though some of them may still be compared by the process that searches. */
  vectorsComparedBy(): Promise<'database' | 'process'>;
  get(reader: MemoryReader, id: string): Promise<MemoryItem | undefined>;
  /** The newest first. */
  list(filter: MemoryFilter): Promise<readonly MemoryItem[]>;
  /** Adds or replaces a note. Durable when it resolves. */
  put(note: Note): Promise<void>;
  /** Resolves to how many items there were. Durable when it resolves. */
  forget(what: Forgetting): Promise<number>;
  /** Items without a vector of this model, the oldest first; no private notes, whose text is sent nowhere. `row` is not used again when a note is replaced. */
  unembedded(model: string, limit: number): Promise<readonly { readonly row: number; readonly content: string }[]>;
  /** Those of rows that are gone, or have one of this model, are ignored. */
  addVectors(model: string, vectors: readonly { readonly row: number; readonly vector: Int8Array }[]): Promise<void>;
  /** Removes all observations, and notes all runs, so that they are made again. */
  restart(): Promise<void>;
}

export interface NearVector {
  readonly model: string;
  readonly vector: Int8Array;
  readonly limit: number;
}

/** Makes vectors of texts: similar texts have similar vectors. */
export interface Embedder {
  /** Vectors of different models are never compared. */
  readonly id: string;
  /** One vector for each text, all of one length. Rejects if it cannot. */
  embed(texts: readonly string[], signal?: AbortSignal): Promise<readonly (readonly number[])[]>;
}

/** The audience of a note, or of an observation, which is for the person or key that its run acted for. */
export function audienceOf(item: MemoryItem): string {
  if (item.type !== 'note') return audience('user', item.subject);
  const names = { agent: item.agent, session: item.session, user: item.subject, tenant: '' };
  return audience(item.scope, names[item.scope]);
}

export function audience(scope: NoteScope, name: string | undefined): string {
  return `${scope}:${name ?? ''}`;
}

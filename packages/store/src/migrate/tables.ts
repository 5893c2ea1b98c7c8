import type { Store } from '../ports/store.ts';

/**
 * The tables of a store that are copied to a store of another kind row by row, with their ids, and read by a check. A test compares
 * this with the tables and columns of both stores, so a table that is added has to be listed here.
 */
export type Value = string | number | boolean | Uint8Array | null;
export type Row = Readonly<Record<string, Value>>;

/** `name` is a text that people choose: `bytea` in PostgreSQL. `json`: a `sum` beside it is that of its text. */
export type ColumnType = 'name' | 'text' | 'json' | 'number' | 'boolean' | 'bytes';

export interface Table {
  readonly name: string;
  readonly columns: Readonly<Record<string, ColumnType>>;
  /** Rows are read in this order. No two have the same values. */
  readonly key: readonly string[];
}

const AMOUNTS = {
  tokens: 'number',
  cost: 'number',
  calls: 'number',
  files: 'number',
  lines: 'number',
  requests: 'number',
  duration_ms: 'number',
} as const;

/** Have the same columns in both stores. */
export const TABLES: readonly Table[] = [
  {
    name: 'idempotency_keys',
    columns: { tenant: 'name', key: 'name', digest: 'name', response: 'name', expires_at: 'number', kept_with: 'name' },
    key: ['tenant', 'key'],
  },
  { name: 'streams', columns: { id: 'number', stream: 'name', last: 'number', updated_at: 'number' }, key: ['id'] },
  {
    name: 'stream_events',
    columns: { stream: 'number', last: 'number', first: 'number', events: 'json', sum: 'number' },
    key: ['stream', 'last'],
  },
  {
    name: 'notices',
    columns: {
      id: 'number',
      run: 'name',
      seq: 'number',
      status: 'text',
      at: 'number',
      attempts: 'number',
      due_at: 'number',
    },
    key: ['id'],
  },
  {
    name: 'inbox',
    columns: { id: 'number', run: 'name', request: 'json', at: 'number', is_taken: 'boolean', reply: 'json' },
    key: ['id'],
  },
  { name: 'kept_processes', columns: { run: 'name', keeper: 'json', processes: 'json' }, key: ['run'] },
  { name: 'budget_definitions', columns: { name: 'name', definition: 'json' }, key: ['name'] },
  { name: 'budget_usage', columns: { budget: 'name', since: 'number', ...AMOUNTS }, key: ['budget', 'since'] },
  {
    name: 'reservations',
    columns: { id: 'number', key: 'name', budget: 'name', ...AMOUNTS, repeated: 'boolean', at: 'number' },
    key: ['id'],
  },
  { name: 'rates', columns: { subject: 'name', times: 'json', latest: 'number' }, key: ['subject'] },
  {
    name: 'metric_hours',
    columns: { tenant: 'name', hour: 'number', tool: 'name', sums: 'json' },
    key: ['tenant', 'hour', 'tool'],
  },
  {
    name: 'metric_runs',
    columns: { run: 'name', counted: 'number', target: 'number', remembered: 'number' },
    key: ['run'],
  },
  {
    name: 'memories',
    columns: {
      id: 'number',
      memory: 'name',
      tenant: 'name',
      audience: 'name',
      type: 'text',
      run: 'name',
      session: 'name',
      subject: 'name',
      agent: 'name',
      at: 'number',
      owners: 'text',
      words: 'text',
      body: 'json',
    },
    key: ['id'],
  },
  { name: 'memory_vectors', columns: { model: 'name', memory: 'number', vector: 'bytes' }, key: ['model', 'memory'] },
  {
    name: 'memory_forgotten',
    columns: { id: 'number', tenant: 'name', memory: 'name', session: 'name', subject: 'name', until: 'number' },
    key: ['id'],
  },
  {
    name: 'schedules',
    columns: {
      tenant: 'name',
      name: 'name',
      definition: 'json',
      state: 'json',
      due_at: 'number',
      version: 'text',
    },
    key: ['tenant', 'name'],
  },
  { name: 'secret_keys', columns: { name: 'name', key: 'bytes' }, key: ['name'] },
];

/** A conversation with its parts is one record, because the stores order the parts in different ways. */
export interface ConversationParts {
  readonly row: Row;
  readonly parts: readonly { readonly response: string | null; readonly words: readonly string[] }[];
}

/** Of these, only some columns are copied as rows. The rest follows from what the ports copy. */
export const RUNS: Table = {
  name: 'runs',
  columns: { place: 'number', run: 'name', recovered: 'number', recovered_at: 'number' },
  key: ['place'],
};
export const REQUESTS: Table = {
  name: 'requests',
  columns: { place: 'number', response: 'name', tenant: 'name', waits_at: 'number' },
  key: ['place'],
};
export const CONVERSATIONS: Table = {
  name: 'conversations',
  columns: {
    id: 'number',
    conversation: 'name',
    tenant: 'name',
    title: 'name',
    created_at: 'number',
    updated_at: 'number',
    head: 'name',
    metadata: 'json',
    instructions: 'name',
    is_deleted: 'boolean',
  },
  key: ['id'],
};

/** What a migration and a check need of a store besides its ports. */
export interface StoreRows {
  /** The rows after this one, in the order of their key. Empty: there are no more. */
  readonly rows: (table: Table, after: Row | undefined, limit: number) => Promise<readonly Row[]>;
  /** Rows that exist are skipped. */
  readonly insert: (table: Table, rows: readonly Row[]) => Promise<void>;
  /** Sets the other columns of the rows with this name. */
  readonly update: (table: Table, name: string, rows: readonly Row[]) => Promise<void>;
  readonly conversations: (after: Row | undefined, limit: number) => Promise<readonly ConversationParts[]>;
  readonly insertConversations: (conversations: readonly ConversationParts[]) => Promise<void>;
  readonly count: (name: string) => Promise<number>;
  /** The highest token of a lease that was given out. */
  readonly lastToken: () => Promise<number>;
  /** Changes whenever another process writes to the store; undefined if that cannot be told. */
  readonly version: () => Promise<number | undefined>;
}

/** A store that is being filled. */
export interface Filling {
  /** Names the store that it is filled from. Undefined: nothing was begun. */
  readonly source: () => Promise<string | undefined>;
  /** Marks the store, so that nobody else opens it. */
  readonly begin: (source: string) => Promise<void>;
  readonly progress: () => Promise<Progress>;
  readonly setProgress: (progress: Progress) => Promise<void>;
  /** Takes the mark back. `token`: leases have higher ones. */
  readonly complete: (token: number) => Promise<void>;
  readonly cancel: () => Promise<void>;
}

/** The last row of each part that is copied; null: all of it is. */
export type Progress = Readonly<Record<string, Row | null>>;

/** A store that is open for a migration. */
export interface OpenedStore {
  readonly location: string;
  readonly store: Store;
  readonly rows: StoreRows;
  readonly filling: Filling;
  /** Rejects with `store-locked` if another process is connected. */
  readonly requireUnused: () => Promise<void>;
  readonly close: () => Promise<void>;
}

/** Both stores, and how far the copy is. */
export interface Copying {
  readonly source: OpenedStore;
  readonly target: OpenedStore;
  readonly isContinued: boolean;
  /** Called after each batch. Throws if the migration was stopped. */
  readonly advance: (count: number) => void;
}

import type { TreadleServerOptions } from '@treadle/server';

/** What a test may set of the server; plain JSON, since it goes to another process. */
export type Settings = Partial<Omit<TreadleServerOptions, 'models' | 'store' | 'tools' | 'executors' | 'log'>> & {
  /** Where the store is; default: in memory. */
  readonly store?: string;
  /** What it writes to the log; default: `warn`. Where a model is made to fail, `silent`. */
  readonly logLevel?: string;
};

/** What the process is given when it starts, in its environment. */
export interface Start {
  readonly provider: string;
  readonly settings: Settings;
}

export type Told =
  | { readonly type: 'listening'; readonly url: string; readonly recovered: number }
  | { readonly type: 'held'; readonly tag: string }
  | { readonly type: 'heap'; readonly bytes: number }
  | ({ readonly type: 'usage' } & Usage);

/** What the process holds, after a forced collection. */
export interface Usage {
  /** Of objects, without compiled code. */
  readonly heap: number;
  /** Memory outside the heap that belongs to objects in it, such as buffers. */
  readonly external: number;
  /** All of the process. */
  readonly rss: number;
  /** Connections that are open, of clients and to the provider. */
  readonly connections: number;
}

export type Order =
  | { readonly type: 'release'; readonly tag: string }
  /** After a forced collection. */
  | { readonly type: 'heap' }
  | { readonly type: 'usage' }
  | { readonly type: 'close'; readonly graceMs?: number };

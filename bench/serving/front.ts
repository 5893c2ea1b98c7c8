/** The server that a client uses: the provider itself, or a server in front of it. Each is a module that exports `front`. */
export interface Front {
  readonly open: (options: FrontOptions) => Promise<OpenFront>;
}

export interface FrontOptions {
  /** The address of the scripted model: `http://127.0.0.1:1234/v1`. */
  readonly provider: string;
  /** The model names that will be used: the scripts. */
  readonly scripts: readonly string[];
  /** The server has the tools `glob` and `grep` for a folder with one file, and reports its longest turn. */
  readonly attacked?: boolean;
  /** Flags for Node, if the front has a process. */
  readonly flags: readonly string[];
}

export interface OpenFront {
  /** Answers `POST <baseURL>/responses`. */
  readonly baseURL: string;
  /** Further fields of each request, besides model, input and stream. */
  readonly fields: Readonly<Record<string, unknown>>;
  /** The usage of its process so far. */
  readonly usage: () => Promise<Usage>;
  /** Resolves when its process has ended. */
  readonly close: () => Promise<void>;
}

export interface Usage {
  /** User and system time, in microseconds. */
  readonly cpu: number;
  /** In bytes, after garbage collection: the whole process, and the JavaScript heap. */
  readonly rss: number;
  readonly heap: number;
  /** The most memory that the process has had, in bytes. */
  readonly peakRss: number;
  /** The longest turn of the event loop since the last request for usage, in milliseconds, without waiting for a core. */
  readonly longestTurn: number;
}

/** What clients are pointed at: the provider itself, or a server before it. Each is a module that exports `front`. */
export interface Front {
  readonly open: (options: FrontOptions) => Promise<OpenFront>;
}

export interface FrontOptions {
  /** Of the scripted model: `http://127.0.0.1:1234/v1`. */
  readonly provider: string;
  /** The models that will be asked for: the scripts. */
  readonly scripts: readonly string[];
  /** For Node, where there is a process. */
  readonly flags: readonly string[];
}

export interface OpenFront {
  /** Answers `POST <baseURL>/responses`. */
  readonly baseURL: string;
  /** What a request says beside the model, the input and whether it is streamed. */
  readonly fields: Readonly<Record<string, unknown>>;
  /** What its process has used so far. */
  readonly usage: () => Promise<Usage>;
  /** Resolves when its process has ended. */
  readonly close: () => Promise<void>;
}

export interface Usage {
  /** User and system, in microseconds. */
  readonly cpu: number;
  /** In bytes, after a collection: of the process, and of that what JavaScript holds. */
  readonly rss: number;
  readonly heap: number;
}

/** A line of the log, as it is written. */
export interface LogLine {
  readonly seq: number;
  /** JSON. */
  readonly line: string;
}

/** The newest lines of a log that is kept. */
export interface KeptLog {
  /** The lines with higher numbers. They begin again when the server starts. */
  after(seq: number): readonly LogLine[];
}

/** The lines that a filter keeps. */
export type LogFilter = 'tool' | 'run' | 'request' | 'problem';

/** The answer of `GET /v1/logs`. */
export interface WireLogs {
  readonly object: 'logs';
  /** The newest, or those that follow `after`: the oldest of them first. */
  readonly data: readonly Readonly<Record<string, unknown>>[];
  /** For `after` of the next request. */
  readonly last: number;
}

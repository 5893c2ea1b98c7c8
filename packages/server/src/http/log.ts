import { pino, stdTimeFunctions, type DestinationStream, type Logger } from 'pino';

export interface LogOptions {
  /** `trace`, `debug`, `info` (default), `warn`, `error`, `fatal`, `silent`. */
  readonly level?: string;
  /** Standard error if not given, so that standard output is the program's. */
  readonly to?: DestinationStream;
}

/** Fields that may hold a secret or what somebody wrote, wherever a line has them. */
const SECRET = ['authorization', 'apiKey', 'api_key', 'headers', 'body', 'rawPacket'];

/**
 * What looks like a key in any text, such as the message of a provider that repeats the one it was given. It begins where
 * a word begins, also after `\n` as JSON writes it.
 */
const KEYS = /(?<=\\[bfnrt]|\b)(?:(?:tk_|sk-|sk_|rk-|pk-)[\w-]{8,}|(bearer|basic)\s+[\w.~+/=-]{8,})/gi;

/** A log of JSON lines that hold no keys, no headers and no bodies. */
export function newLog({ level = 'info', to = pino.destination(2) }: LogOptions = {}): Logger {
  return pino(
    {
      level,
      base: null,
      timestamp: stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }) },
      redact: { paths: SECRET.flatMap((field) => [field, `*.${field}`]), censor: '[redacted]' },
      hooks: {
        streamWrite: (line) =>
          line.replace(KEYS, (_found, scheme: string | undefined) => (scheme ? `${scheme} [redacted]` : '[redacted]')),
      },
    },
    to,
  );
}

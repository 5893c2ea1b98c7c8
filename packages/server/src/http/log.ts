import { pino, stdTimeFunctions, type DestinationStream, type Logger } from 'pino';

export interface LogOptions {
  /** `trace`, `debug`, `info` (default), `warn`, `error`, `fatal`, `silent`. */
  readonly level?: string;
  /** Default standard error, which leaves standard output to the program. */
  readonly to?: DestinationStream;
}

/** Fields that may contain a secret or the text of a user. */
const SECRET = ['authorization', 'apiKey', 'api_key', 'headers', 'body', 'rawPacket'];

/**
 * Text that looks like a key, for example in the message of a provider that quotes the key it received. It starts at the
 * start of a word, or after an escape of JSON such as `\n`.
 */
const KEYS = /(?<=\\[bfnrt]|\b)(?:(?:tk_|sk-|sk_|rk-|pk-)[\w-]{8,}|(bearer|basic)\s+[\w.~+/=-]{8,})/gi;

/** A log of JSON lines without keys, headers and bodies. */
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

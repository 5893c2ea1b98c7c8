import { pino, stdSerializers, type DestinationStream, type Logger } from 'pino';

export interface LogOptions {
  /** `trace`, `debug`, `info` (default), `warn`, `error`, `fatal`, `silent`. */
  readonly level?: string;
  /** Default standard error, which leaves standard output to the program. */
  readonly to?: DestinationStream;
}

/** Fields that may contain a secret or the text of a user. */
const SECRET: readonly string[] = ['authorization', 'apiKey', 'api_key', 'headers', 'body', 'rawPacket'];
const CENSOR = '[redacted]';

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
      timestamp: isoTime(),
      formatters: { level: (label) => ({ level: label }), log: withoutSecrets },
      // Not `*.headers`: a path with a wildcard makes pino copy and search each value of each line.
      redact: { paths: [...SECRET], censor: CENSOR },
      serializers: { err: (error: Error) => censored(stdSerializers.err(error)) },
      hooks: {
        streamWrite: (line) =>
          line.replace(KEYS, (_found, scheme: string | undefined) => (scheme ? `${scheme} ${CENSOR}` : CENSOR)),
      },
    },
    to,
  );
}

/** The field `time` of a line. Its text is made once for all lines of a second. */
function isoTime(): () => string {
  let second = -1;
  let beginning = '';
  return () => {
    const now = Date.now();
    const ms = now % 1000;
    if (now - ms !== second) {
      second = now - ms;
      beginning = `,"time":"${new Date(second).toISOString().slice(0, -4)}`;
    }
    return `${beginning}${ms < 10 ? '00' : ms < 100 ? '0' : ''}${ms}Z"`;
  };
}

/** The fields of a line, without the secret fields of the objects in them. The serializer of `err` does the same for it. */
function withoutSecrets(fields: Record<string, unknown>): Record<string, unknown> {
  let copy: Record<string, unknown> | undefined;
  for (const key of Object.keys(fields)) {
    const value = key === 'err' ? undefined : fields[key];
    const safe = censored(value);
    if (safe !== value) (copy ??= { ...fields })[key] = safe;
  }
  return copy ?? fields;
}

/** The same value if it has no secret field. */
function censored(value: unknown): unknown {
  if (typeof value !== 'object' || value === null) return value;
  const secrets = SECRET.filter((field) => Object.hasOwn(value, field));
  return secrets.length === 0 ? value : { ...value, ...Object.fromEntries(secrets.map((field) => [field, CENSOR])) };
}

import type { CallAnswered } from '../journal/items.ts';
import type { Autonomy } from '../machine/narrowing.ts';
import { textOf } from '../messages.ts';
import type { Principal } from './port.ts';

/** One line of a log for a call that has its result, also if it was denied and never ran. Plain JSON. */
export interface ExecutionLine {
  /** ISO 8601. */
  readonly timestamp: string;
  readonly runId: string;
  readonly tool: string;
  /** The server or device that the tool is of, such as `device:pi`. */
  readonly server?: string;
  /** The arguments, with secrets replaced and long values cut. */
  readonly parameters: unknown;
  readonly success: boolean;
  /** The start of the error. */
  readonly error?: string;
  readonly errorType?: string;
  /** Of a command that has failed. */
  readonly exitCode?: number;
  readonly elapsedMs?: number;
  readonly subject?: string;
  readonly tenant?: string;
  /** The rule of the policy that decided. */
  readonly rule?: string;
  /** The run is at level 1. */
  readonly supervised?: true;
}

export interface ExecutionContext {
  readonly runId: string;
  /** When the call was answered, in milliseconds since 1970. */
  readonly at: number;
  /** When it was started. Absent: it was not, or by another process. */
  readonly startedAt?: number | undefined;
  readonly server?: string | undefined;
  readonly principal?: Principal | undefined;
  /** The level of the policy: `rules.autonomy`, default 1. Absent: there is no policy of rules. */
  readonly autonomy?: Autonomy | undefined;
}

/** The line for a `call-answered` item. */
export function executionLine(item: CallAnswered, context: ExecutionContext): ExecutionLine {
  const { runId, at, startedAt, server, principal, autonomy } = context;
  const { call, result, rule } = item;
  return {
    timestamp: new Date(at).toISOString(),
    runId,
    tool: call.name,
    ...(server !== undefined && { server }),
    parameters: redactedText(call.arguments),
    success: !result.isError,
    ...(result.isError && { error: loggedText(textOf(result.content)) }),
    ...(result.errorType !== undefined && { errorType: result.errorType }),
    ...(result.exitCode !== undefined && { exitCode: result.exitCode }),
    ...(startedAt !== undefined && { elapsedMs: at - startedAt }),
    ...(principal && { subject: principal.subject, tenant: principal.tenant }),
    ...(rule !== undefined && { rule }),
    ...(autonomy === 1 && { supervised: true }),
  };
}

const REDACTED = '[redacted]';
const SECRET_KEY =
  /pass(word|wd|phrase|code)|secret|token|api[-_]?key|access[-_]?key|private[-_]?key|auth(orization)?$|cookie|credential|^pwd$|^pin$|(^|[-_])pass$|signature/i;
/** Secrets inside of other texts: credentials in URLs and headers, keys with well-known prefixes, and values with a name. */
const SECRET_TEXT =
  /(?<=:\/\/)[^\s/@:]*:[^\s/@]+(?=@)|(?<=\b(?:bearer|basic)\s+)[\w.~+/=-]{8,}|\b(?:sk|pk|rk|ghp|gho|ghs|github_pat|glpat|xox[abprs]|AKIA|AIza)[-_]?[\w-]{10,}|(?<=(?:password|passwd|passphrase|secret|token|api[-_]?key|access[-_]?key)(?:["']?\s?[=:]\s?["']?|(?<=--[\w-]+)\s))[^\s"'&,;]+/gi;

const MAX_CHARS = 200;
const MAX_PARTS = 50;
const MAX_DEPTH = 5;

function redactedText(text: string): unknown {
  try {
    return redacted(JSON.parse(text === '' ? '{}' : text), 0);
  } catch {
    return `[not JSON, ${text.length} characters]`;
  }
}

function redacted(value: unknown, depth: number): unknown {
  if (typeof value === 'string') return loggedText(value);
  if (typeof value !== 'object' || value === null) return value;
  if (depth >= MAX_DEPTH) return '[…]';
  if (Array.isArray(value)) {
    const shown = value.slice(0, MAX_PARTS).map((part) => redacted(part, depth + 1));
    return value.length > MAX_PARTS ? [...shown, `[${value.length - MAX_PARTS} more]`] : shown;
  }
  const entries = Object.entries(value).slice(0, MAX_PARTS);
  // A header or variable in a list: `{ name: 'Authorization', value: … }`.
  const { name } = value as { readonly name?: unknown };
  const isSecret = (key: string): boolean =>
    SECRET_KEY.test(key) || (key === 'value' && typeof name === 'string' && SECRET_KEY.test(name));
  return Object.fromEntries(entries.map(([key, part]) => [key, isSecret(key) ? REDACTED : redacted(part, depth + 1)]));
}

/** Only the start is searched for secrets, so nothing after it is shown. */
export function loggedText(text: string): string {
  const start = text.slice(0, MAX_CHARS * 5).replace(SECRET_TEXT, REDACTED);
  if (text.length <= MAX_CHARS * 5 && start.length <= MAX_CHARS) return start;
  return `${start.slice(0, MAX_CHARS)}… (${text.length} characters)`;
}

/** A text in which the secrets that can be recognised are replaced. */
export function withoutSecrets(text: string): string {
  return text.replace(SECRET_TEXT, REDACTED);
}

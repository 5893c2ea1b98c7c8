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
  /** The arguments, with secrets replaced and long values cut. */
  readonly parameters: unknown;
  readonly success: boolean;
  /** The start of the error. */
  readonly error?: string;
  readonly errorType?: string;
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
  readonly principal?: Principal | undefined;
  /** The level of the policy: `rules.autonomy`, default 1. Absent: there is no policy of rules. */
  readonly autonomy?: Autonomy | undefined;
}

/** The line for a `call-answered` item. */
export function executionLine(item: CallAnswered, { runId, at, principal, autonomy }: ExecutionContext): ExecutionLine {
  const { call, result, rule } = item;
  return {
    timestamp: new Date(at).toISOString(),
    runId,
    tool: call.name,
    parameters: redactedText(call.arguments),
    success: !result.isError,
    ...(result.isError && { error: shortened(withoutSecrets(textOf(result.content))) }),
    ...(result.errorType !== undefined && { errorType: result.errorType }),
    ...(principal && { subject: principal.subject, tenant: principal.tenant }),
    ...(rule !== undefined && { rule }),
    ...(autonomy === 1 && { supervised: true }),
  };
}

const REDACTED = '[redacted]';
const SECRET_KEY =
  /pass(word|wd|phrase|code)|secret|token|api[-_]?key|access[-_]?key|private[-_]?key|auth(orization)?$|cookie|credential|^pwd$|^pin$|signature/i;
/** Secrets inside of other texts: credentials in URLs and headers, and keys with well-known prefixes. */
const SECRET_TEXT =
  /(?<=:\/\/)[^\s/@:]+:[^\s/@]+(?=@)|(?<=\b(?:bearer|basic)\s+)[\w.~+/=-]{8,}|\b(?:sk|pk|rk|ghp|gho|ghs|github_pat|glpat|xox[abprs]|AKIA|AIza)[-_]?[\w-]{10,}/gi;

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
  if (typeof value === 'string') return shortened(withoutSecrets(value));
  if (typeof value !== 'object' || value === null) return value;
  if (depth >= MAX_DEPTH) return '[…]';
  if (Array.isArray(value)) {
    const shown = value.slice(0, MAX_PARTS).map((part) => redacted(part, depth + 1));
    return value.length > MAX_PARTS ? [...shown, `[${value.length - MAX_PARTS} more]`] : shown;
  }
  const entries = Object.entries(value).slice(0, MAX_PARTS);
  return Object.fromEntries(
    entries.map(([key, part]) => [key, SECRET_KEY.test(key) ? REDACTED : redacted(part, depth + 1)]),
  );
}

function withoutSecrets(text: string): string {
  // Only the start is shown, so the rest is not searched.
  return text.slice(0, MAX_CHARS * 5).replace(SECRET_TEXT, REDACTED) + text.slice(MAX_CHARS * 5);
}

function shortened(text: string): string {
  return text.length > MAX_CHARS ? `${text.slice(0, MAX_CHARS)}… (${text.length} characters)` : text;
}

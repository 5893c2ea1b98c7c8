import { requestIdIn } from './command.ts';
import {
  isFields,
  LEDGER_ID,
  parseMessage,
  problemWith,
  PROTOCOL_VERSION,
  REQUEST_ID,
  versionProblem,
  type Fields,
  type MessageSchema,
} from './message.ts';

/*
 * Reports: device to orchestrator. There are two forms, which mean the same:
 *
 * - flat, as the design document has them: `{ status, tool, result, … }`
 * - wrapped, as the original agents send them: `{ agent_id, agent_type, report_type, payload, timestamp }`, with the time in
 *   seconds
 *
 * Our devices send flat ones, always with `request_id`.
 */

export type ReportErrorType =
  /** The five of the document. */
  | 'timeout'
  | 'not_found'
  | 'permission_denied'
  | 'invalid_params'
  | 'execution_failed'
  /** Not executed: delivered too late; no room; not known here; cancelled before it began. */
  | 'expired'
  | 'busy'
  | 'unsupported'
  | 'cancelled'
  /** Not executed by this ledger: the command is for another one, which may have. */
  | 'other_ledger'
  /** The device ended while it ran, and it is not known whether it took effect. */
  | 'interrupted';

export const REPORT_ERROR_TYPES: readonly ReportErrorType[] = Object.keys({
  timeout: 0,
  not_found: 0,
  permission_denied: 0,
  invalid_params: 0,
  execution_failed: 0,
  expired: 0,
  busy: 0,
  unsupported: 0,
  cancelled: 0,
  other_ledger: 0,
  interrupted: 0,
} satisfies Record<ReportErrorType, 0>) as ReportErrorType[];

/** The result of a command, as a device sends it. */
export interface ResultReport {
  readonly request_id: string;
  readonly status: 'success' | 'error';
  /** Of a tool's call. */
  readonly tool?: string;
  /** A text, or any JSON. */
  readonly result?: unknown;
  /** Text, images and files, if the result is more than a text. */
  readonly content?: readonly ReportBlock[];
  /** The report itself, as a blob that the device serves in parts, if it is larger than a message. */
  readonly result_blob?: BlobReference;
  readonly stderr?: string;
  readonly exit_code?: number;
  readonly elapsed_ms?: number;
  /** With `status: error`: a text for people and models. */
  readonly error?: string;
  readonly error_type?: ReportErrorType;
  /** With `permission_denied`: the permissions that the tool requires. */
  readonly requires?: readonly string[];
  /** Which start of the device sends it. */
  readonly session?: string;
  /** Which ledger of the device. */
  readonly ledger?: string;
  /** Milliseconds since 1970, by the clock of the device. */
  readonly timestamp?: number;
}

export type ReportBlock =
  | { readonly type: 'text' | 'error'; readonly text: string }
  | {
      readonly type: 'image' | 'file';
      readonly mediaType: string;
      readonly name?: string;
      readonly source:
        | { readonly type: 'data'; readonly data: string }
        | { readonly type: 'url'; readonly url: string };
    };

export interface BlobReference {
  /** The SHA-256 of its bytes. */
  readonly id: string;
  readonly bytes: number;
}

/** A part of the output of a call that still runs. `seq` counts from 0; a gap means that parts were left out. */
export interface ProgressReport {
  readonly request_id: string;
  readonly seq: number;
  /** A text, or any JSON. */
  readonly progress: unknown;
}

const BLOCK_SCHEMA: MessageSchema = {
  type: 'object',
  properties: {
    type: { type: 'string', enum: ['text', 'error', 'image', 'file'] },
    text: { type: 'string' },
    mediaType: { type: 'string', maxLength: 128 },
    name: { type: 'string' },
    source: {
      type: 'object',
      properties: {
        type: { type: 'string', enum: ['data', 'url'] },
        data: { type: 'string' },
        url: { type: 'string' },
      },
      required: ['type'],
    },
  },
  required: ['type'],
};

/** A flat report, or the payload of a wrapped one. */
export const REPORT_SCHEMA: MessageSchema = {
  type: 'object',
  properties: {
    request_id: REQUEST_ID,
    report_type: { type: 'string', maxLength: 64 },
    status: { type: 'string', maxLength: 64 },
    tool: { type: 'string', maxLength: 128 },
    content: { type: 'array', items: BLOCK_SCHEMA, maxItems: 1000 },
    result_blob: {
      type: 'object',
      properties: { id: { type: 'string', pattern: '^[a-f0-9]{64}$' }, bytes: { type: 'integer', minimum: 0 } },
      required: ['id', 'bytes'],
    },
    stderr: { type: 'string' },
    exit_code: { type: 'integer' },
    elapsed_ms: { type: 'number', minimum: 0 },
    error: { type: 'string' },
    error_type: { type: 'string', maxLength: 64 },
    requires: { type: 'array', items: { type: 'string' }, maxItems: 100 },
    seq: { type: 'integer', minimum: 0 },
    version: { type: 'integer' },
    session: { type: 'string', minLength: 1, maxLength: 128 },
    ledger: LEDGER_ID,
    timestamp: { type: 'number' },
  },
};

/** `request_id` is absent in reports of devices that know only the document. */
export type DecodedReport =
  | { readonly type: 'result'; readonly report: Omit<ResultReport, 'request_id'> & { readonly request_id?: string } }
  | { readonly type: 'progress'; readonly report: ProgressReport }
  /** Heartbeats, metrics and others, which mean nothing here. */
  | { readonly type: 'other'; readonly kind: string }
  | { readonly type: 'invalid'; readonly problem: string };

/** Reads a report in either form. Never throws. */
export function decodeReport(bytes: Uint8Array | string): DecodedReport {
  const parsed = parseMessage(bytes);
  if ('problem' in parsed) return { type: 'invalid', problem: parsed.problem };
  return reportFrom(parsed.value);
}

/** A report that is JSON already. */
export function reportFrom(value: Fields): DecodedReport {
  const version = versionProblem(value);
  if (version !== undefined) return { type: 'invalid', problem: version };
  const { report_type: kind, payload } = value;
  const isWrapped = isFields(payload) && typeof kind === 'string' && value['status'] === undefined;
  const flat = isWrapped ? payload : value;
  const problem =
    problemWith(REPORT_SCHEMA, flat) ?? (isWrapped ? problemWith(REPORT_SCHEMA, { ...value }) : undefined);
  if (problem !== undefined) return { type: 'invalid', problem };
  if (kind === 'progress') return progressFrom(flat);
  const isResult = kind === undefined || kind === 'result' || kind === 'error';
  if (!isResult) return { type: 'other', kind: String(kind) };
  const requestId = requestIdIn(value);
  // The original agents answer a failed command with `{ error, request_id }`, and others with any object.
  const failed = flat['status'] === 'error' || kind === 'error' || (flat['status'] === undefined && 'error' in flat);
  if (!isWrapped && flat['status'] === undefined && !failed) {
    return { type: 'invalid', problem: 'it has neither a status nor an error' };
  }
  return { type: 'result', report: resultFrom(flat, requestId, failed) };
}

function progressFrom({ request_id: id, seq = 0, progress }: Fields): DecodedReport {
  if (typeof id !== 'string') return { type: 'invalid', problem: 'request_id is missing' };
  return { type: 'progress', report: { request_id: id, seq: seq as number, progress } };
}

const KNOWN = [
  'tool',
  'content',
  'result_blob',
  'stderr',
  'exit_code',
  'elapsed_ms',
  'requires',
  'session',
  'ledger',
] as const;

function resultFrom(
  flat: Fields,
  requestId: string | undefined,
  failed: boolean,
): Omit<ResultReport, 'request_id'> & { readonly request_id?: string } {
  const kept = Object.fromEntries(KNOWN.flatMap((key) => (flat[key] === undefined ? [] : [[key, flat[key]]])));
  const { error, error_type: type, timestamp } = flat;
  const time = typeof timestamp === 'number' && { timestamp };
  const id = requestId !== undefined && { request_id: requestId };
  if (failed) {
    const known = REPORT_ERROR_TYPES.find((one) => one === type) ?? 'execution_failed';
    const text = typeof error === 'string' && error !== '' ? error : textIn(flat['result']);
    const facts = isFields(flat['result']) && { result: flat['result'] };
    return { status: 'error', ...id, ...kept, ...time, ...facts, error: text ?? '', error_type: known };
  }
  // A report of an original agent that has another form is its own result.
  const result = 'result' in flat || 'content' in flat || 'result_blob' in flat ? flat['result'] : withoutId(flat);
  return { status: 'success', ...id, ...kept, ...time, ...(result !== undefined && { result }) };
}

function withoutId({ request_id: _, status: __, tool: ___, ...rest }: Fields): unknown {
  return Object.keys(rest).length === 0 ? '' : rest;
}

function textIn(value: unknown): string | undefined {
  return typeof value === 'string' && value !== '' ? value : undefined;
}

/** Writes the result of a command. */
export function encodeReport(report: ResultReport): string {
  return JSON.stringify({ ...report, version: PROTOCOL_VERSION });
}

export function encodeProgress({ request_id, seq, progress }: ProgressReport): string {
  return JSON.stringify({ report_type: 'progress', request_id, seq, progress, version: PROTOCOL_VERSION });
}

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
 * Commands: orchestrator to device.
 *
 * 1. A command has a `request_id`, beside `command` or in `payload`, as the original protocol has both. If it has both, they are
 *    the same. A device executes each at most once.
 * 2. `expires_at` is absolute, in the device's own time: a command that is delivered later is refused and not executed.
 * 3. `session` names one start of a device, and `ledger` what it remembers of calls. Others refuse the command.
 */

export interface Command {
  readonly command: string;
  readonly request_id: string;
  readonly payload: Fields;
  readonly version?: number;
  /** Milliseconds since 1970, by the clock of the device. */
  readonly expires_at?: number;
  readonly session?: string;
  readonly ledger?: string;
}

export const COMMAND_SCHEMA: MessageSchema = {
  type: 'object',
  properties: {
    command: { type: 'string', minLength: 1, maxLength: 64 },
    request_id: REQUEST_ID,
    payload: { type: 'object', properties: { request_id: REQUEST_ID } },
    version: { type: 'integer' },
    expires_at: { type: 'number' },
    session: { type: 'string', minLength: 1, maxLength: 128 },
    ledger: LEDGER_ID,
  },
  required: ['command'],
};

/** A command of a kind that is known, with its payload. */
export type KnownCommand = Omit<Command, 'command' | 'payload'> & Payload;

type Payload =
  | { readonly type: 'tool'; readonly payload: ToolPayload }
  | { readonly type: 'cancel' | 'query'; readonly payload: { readonly target: string } }
  | { readonly type: 'ack'; readonly payload: { readonly targets: readonly string[] } }
  | { readonly type: 'ping' | 'tools_list'; readonly payload: Fields }
  | { readonly type: 'skill'; readonly payload: { readonly action?: 'list' | 'reload' } }
  | { readonly type: 'prompt'; readonly payload: PromptPayload }
  | { readonly type: 'blob'; readonly payload: BlobPayload }
  | { readonly type: 'ops'; readonly payload: { readonly op: string; readonly args: Fields } }
  | { readonly type: 'shutdown'; readonly payload: { readonly reason?: string } };

export type CommandType = Payload['type'];

/** One call of a tool. */
export interface ToolPayload {
  readonly tool: string;
  readonly parameters: Fields;
  /** From the receipt of the command to its report. */
  readonly timeout_ms?: number;
  /** Progress is reported; default false. */
  readonly stream?: boolean;
}

/** A message of a person, for the orchestrator: it runs the loop with the tools of the device. */
export interface PromptPayload {
  readonly prompt: string;
  readonly conversation?: string;
}

/** A part of a large result. */
export interface BlobPayload {
  readonly blob: string;
  readonly offset: number;
  readonly length: number;
}

/** Bytes of one part of a blob. */
export const MAX_PART_BYTES: number = 256 * 1024;

const TIMEOUT = { type: 'integer', minimum: 1, maximum: 86_400_000 } as const;
const TARGET = { type: 'object', properties: { target: REQUEST_ID }, required: ['target'] } as const;

/** What the payload of each command has. `execute` carries a tool, as the original diagram has it. */
export const PAYLOAD_SCHEMAS: Readonly<Record<CommandType, MessageSchema>> = {
  tool: {
    type: 'object',
    properties: {
      tool: { type: 'string', minLength: 1, maxLength: 128 },
      parameters: { type: 'object' },
      timeout_ms: TIMEOUT,
      stream: { type: 'boolean' },
    },
    required: ['tool'],
  },
  cancel: TARGET,
  query: TARGET,
  ack: {
    type: 'object',
    properties: { targets: { type: 'array', items: REQUEST_ID, maxItems: 1000 } },
    required: ['targets'],
  },
  ping: { type: 'object' },
  tools_list: { type: 'object' },
  skill: { type: 'object', properties: { action: { type: 'string', enum: ['list', 'reload'] } } },
  prompt: {
    type: 'object',
    properties: {
      prompt: { type: 'string', minLength: 1 },
      conversation: { type: 'string', minLength: 1, maxLength: 128 },
    },
    required: ['prompt'],
  },
  blob: {
    type: 'object',
    properties: {
      blob: { type: 'string', pattern: '^[a-f0-9]{64}$' },
      offset: { type: 'integer', minimum: 0 },
      length: { type: 'integer', minimum: 1, maximum: MAX_PART_BYTES },
    },
    required: ['blob', 'offset', 'length'],
  },
  ops: {
    type: 'object',
    properties: { op: { type: 'string', minLength: 1, maxLength: 32 }, args: { type: 'object' } },
    required: ['op'],
  },
  shutdown: { type: 'object', properties: { reason: { type: 'string' } } },
};

/** `invalid` and `unsupported` have a request id if one could be read: the sender is told then. */
export type DecodedCommand =
  | { readonly type: 'command'; readonly command: KnownCommand }
  | { readonly type: 'invalid' | 'unsupported'; readonly requestId: string | undefined; readonly problem: string };

/** Reads a command. Never throws. */
export function decodeCommand(bytes: Uint8Array | string): DecodedCommand {
  const parsed = parseMessage(bytes);
  if ('problem' in parsed) return { type: 'invalid', requestId: undefined, problem: parsed.problem };
  const { value } = parsed;
  const requestId = requestIdIn(value);
  const invalid = (problem: string): DecodedCommand => ({ type: 'invalid', requestId, problem });
  const problem = problemWith(COMMAND_SCHEMA, value);
  if (problem !== undefined) return invalid(problem);
  const version = versionProblem(value);
  if (version !== undefined) return { type: 'unsupported', requestId, problem: version };
  const { command: name, payload = {}, expires_at, session, ledger } = value as unknown as Command;
  const { request_id: inner } = payload;
  if (requestId === undefined) return invalid('request_id is missing');
  if (inner !== undefined && inner !== requestId) return invalid('request_id and payload.request_id differ');
  const type = typeOf(name);
  if (!type) return { type: 'unsupported', requestId, problem: `there is no command ${JSON.stringify(name)}` };
  if (name === 'execute' && typeof payload['tool'] !== 'string') {
    return { type: 'unsupported', requestId, problem: 'the command "execute" is only supported with a tool' };
  }
  const found = problemWith(PAYLOAD_SCHEMAS[type], payload);
  if (found !== undefined) return invalid(`payload of "${name}": ${found}`);
  const known = {
    type,
    request_id: requestId,
    payload: type === 'tool' ? { parameters: {}, ...payload } : type === 'ops' ? { args: {}, ...payload } : payload,
    ...(expires_at !== undefined && { expires_at }),
    ...(session !== undefined && { session }),
    ...(ledger !== undefined && { ledger }),
  };
  return { type: 'command', command: known as unknown as KnownCommand };
}

function typeOf(name: string): CommandType | undefined {
  if (name === 'execute') return 'tool';
  return Object.hasOwn(PAYLOAD_SCHEMAS, name) ? (name as CommandType) : undefined;
}

/** The id of a message, wherever it is, as far as it is one. */
export function requestIdIn(value: Fields): string | undefined {
  const { request_id: outer, payload } = value;
  for (const id of [outer, isFields(payload) ? payload['request_id'] : undefined]) {
    if (id !== undefined && problemWith(REQUEST_ID, id) === undefined) return id as string;
  }
  return undefined;
}

/** Writes a command. A tool's call has its id in both places, as the original protocol has it. */
export function encodeCommand({ type, request_id, payload, expires_at, session, ledger }: KnownCommand): string {
  return JSON.stringify({
    command: type,
    payload: type === 'tool' ? { ...payload, request_id } : payload,
    request_id,
    version: PROTOCOL_VERSION,
    ...(expires_at !== undefined && { expires_at }),
    ...(session !== undefined && { session }),
    ...(ledger !== undefined && { ledger }),
  });
}

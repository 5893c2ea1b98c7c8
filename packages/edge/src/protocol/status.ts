import {
  LEDGER_ID,
  parseMessage,
  problemWith,
  PROTOCOL_VERSION,
  versionProblem,
  type MessageSchema,
} from './message.ts';

/** Whether a device can be reached. Retained; `offline` is also its last will. */
export interface DeviceStatus {
  readonly agent_id: string;
  readonly agent_type?: string;
  /** Other words of the original agents, such as `idle` and `busy`, mean `online`. */
  readonly status: 'online' | 'draining' | 'offline';
  /** A new one for each start of the device. The will of an older one means nothing. */
  readonly session?: string;
  /** The id of what it remembers of calls. Without its store it has another one. */
  readonly ledger?: string;
  /** Milliseconds since 1970, by the clock of the device. */
  readonly timestamp?: number;
  /** Why it is not online, for people. */
  readonly reason?: string;
}

export const STATUS_SCHEMA: MessageSchema = {
  type: 'object',
  properties: {
    agent_id: { type: 'string' },
    agent_type: { type: 'string', maxLength: 64 },
    status: { type: 'string', minLength: 1, maxLength: 64 },
    session: { type: 'string', minLength: 1, maxLength: 128 },
    ledger: LEDGER_ID,
    timestamp: { type: 'number' },
    reason: { type: 'string', maxLength: 1024 },
    version: { type: 'integer' },
  },
  required: ['status'],
};

export type DecodedStatus =
  | { readonly type: 'status'; readonly status: DeviceStatus }
  | { readonly type: 'invalid'; readonly problem: string };

/** `id`: of the topic, which is the device's name whatever the message says. */
export function decodeStatus(bytes: Uint8Array | string, id: string): DecodedStatus {
  const parsed = parseMessage(bytes);
  if ('problem' in parsed) return { type: 'invalid', problem: parsed.problem };
  const { value } = parsed;
  const problem = versionProblem(value) ?? problemWith(STATUS_SCHEMA, value);
  if (problem !== undefined) return { type: 'invalid', problem };
  const { version: _, ...known } = value as unknown as DeviceStatus & { readonly version?: number };
  const word: string = known.status;
  const status = word === 'offline' || word === 'draining' ? word : word === 'error' ? 'offline' : 'online';
  return { type: 'status', status: { ...known, agent_id: id, status } };
}

export function encodeStatus(status: DeviceStatus): string {
  return JSON.stringify({ ...status, version: PROTOCOL_VERSION });
}

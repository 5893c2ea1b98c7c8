import {
  MAX_CAPABILITIES_BYTES,
  parseMessage,
  problemWith,
  PROTOCOL_VERSION,
  versionProblem,
  type Fields,
  type MessageSchema,
} from './message.ts';

/** What a device offers. Retained. A device of the original protocol has none: its tools are configured. */
export interface Capabilities {
  readonly agent_id: string;
  readonly agent_type?: string;
  readonly session?: string;
  /** It remembers the ids of calls with their results, and answers `query`. */
  readonly ledger?: boolean;
  /** The permissions that its tools may need, such as `shell`. */
  readonly capabilities?: readonly string[];
  /** Such as `linux-arm64`. */
  readonly platform?: string;
  /** Its working folder and home, absolute, for policies. */
  readonly folder?: string;
  readonly home?: string;
  readonly tools: readonly OfferedTool[];
  /** It offers its files, and with `exec` its programs. */
  readonly ops?: OfferedOps;
  readonly skills?: readonly { readonly name: string; readonly version?: string }[];
  /** Calls at a time, and those that wait. */
  readonly limits?: { readonly parallel?: number; readonly queue?: number };
}

/** A tool of a device. */
export interface OfferedTool {
  readonly name: string;
  readonly description: string;
  readonly parameters: Fields;
  /** Default `once`. */
  readonly effect?: 'pure' | 'idempotent' | 'once';
  /** Without `timeout_ms` in its parameters. */
  readonly timeout_ms?: number;
  readonly permissions?: readonly string[];
  /** What a call touches on the device; `{NAME}` stands for an argument. Absent: unknown. */
  readonly touches?: readonly Readonly<Record<string, string>>[];
  /** It is the built-in tool of this name, so what it touches is known. */
  readonly builtin?: boolean;
  /** Changes when the definition does. */
  readonly fingerprint?: string;
  /** What the sandbox of the device promises for its calls. */
  readonly sandbox?: readonly string[];
  /** Of the original protocol, for other programs. */
  readonly evoclaw?: Fields;
}

export interface OfferedOps {
  readonly exec?: boolean;
  /** What the sandbox of its programs promises. Absent: there is none. */
  readonly sandbox?: { readonly engine: string; readonly promises: readonly string[] };
}

const NAMES = { type: 'array', items: { type: 'string', maxLength: 128 }, maxItems: 200 } as const;

export const CAPABILITIES_SCHEMA: MessageSchema = {
  type: 'object',
  properties: {
    agent_id: { type: 'string' },
    agent_type: { type: 'string', maxLength: 64 },
    session: { type: 'string', minLength: 1, maxLength: 128 },
    version: { type: 'integer' },
    ledger: { type: 'boolean' },
    capabilities: NAMES,
    platform: { type: 'string', maxLength: 64 },
    folder: { type: 'string', pattern: '^/' },
    home: { type: 'string', pattern: '^/' },
    tools: {
      type: 'array',
      maxItems: 500,
      items: {
        type: 'object',
        properties: {
          name: { type: 'string', pattern: '^[a-zA-Z0-9_-]{1,64}$' },
          description: { type: 'string', maxLength: 16_384 },
          parameters: { type: 'object', properties: { type: { const: 'object' } }, required: ['type'] },
          effect: { type: 'string', enum: ['pure', 'idempotent', 'once'] },
          timeout_ms: { type: 'integer', minimum: 1, maximum: 86_400_000 },
          permissions: NAMES,
          touches: {
            type: 'array',
            maxItems: 50,
            items: {
              type: 'object',
              properties: { type: { type: 'string', enum: ['read', 'write', 'command', 'url', 'session'] } },
              additionalProperties: { type: 'string' },
              required: ['type'],
              minProperties: 2,
              maxProperties: 2,
            },
          },
          builtin: { type: 'boolean' },
          fingerprint: { type: 'string', maxLength: 128 },
          sandbox: NAMES,
          evoclaw: { type: 'object' },
        },
        required: ['name', 'description', 'parameters'],
      },
    },
    ops: {
      type: 'object',
      properties: {
        exec: { type: 'boolean' },
        sandbox: {
          type: 'object',
          properties: { engine: { type: 'string', maxLength: 64 }, promises: NAMES },
          required: ['engine', 'promises'],
        },
      },
    },
    skills: {
      type: 'array',
      maxItems: 1000,
      items: {
        type: 'object',
        properties: { name: { type: 'string' }, version: { type: 'string' } },
        required: ['name'],
      },
    },
    limits: {
      type: 'object',
      properties: { parallel: { type: 'integer', minimum: 1 }, queue: { type: 'integer', minimum: 0 } },
    },
  },
  required: ['tools'],
};

export type DecodedCapabilities =
  | { readonly type: 'capabilities'; readonly capabilities: Capabilities }
  | { readonly type: 'invalid'; readonly problem: string };

/** `id`: of the topic, which is the device's name whatever the message says. */
export function decodeCapabilities(bytes: Uint8Array | string, id: string): DecodedCapabilities {
  const parsed = parseMessage(bytes, MAX_CAPABILITIES_BYTES);
  return 'problem' in parsed ? { type: 'invalid', problem: parsed.problem } : capabilitiesFrom(parsed.value, id);
}

/** The same from JSON: the answer to `tools_list`. */
export function capabilitiesFrom(value: Fields, id: string): DecodedCapabilities {
  const problem = versionProblem(value) ?? problemWith(CAPABILITIES_SCHEMA, value) ?? duplicateIn(value);
  if (problem !== undefined) return { type: 'invalid', problem };
  const { version: _, ...known } = value as unknown as Capabilities & { readonly version?: number };
  return { type: 'capabilities', capabilities: { ...known, agent_id: id } };
}

function duplicateIn({ tools }: Fields): string | undefined {
  const names = (tools as readonly OfferedTool[]).map(({ name }) => name);
  const twice = names.find((name, index) => names.indexOf(name) !== index);
  return twice === undefined ? undefined : `it lists the tool ${JSON.stringify(twice)} twice`;
}

export function encodeCapabilities(capabilities: Capabilities): string {
  return JSON.stringify({ ...capabilities, version: PROTOCOL_VERSION });
}

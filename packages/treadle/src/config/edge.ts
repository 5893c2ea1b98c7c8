import type { Shape } from '@treadle/tools/toml';
import type { Config } from './config.ts';

/** [edge]: the broker, and the devices whose tools runs may use. */
export interface EdgeConfig {
  /** `embedded`, or an address. */
  readonly broker?: string;
  /** Of the embedded broker. */
  readonly host?: string;
  readonly port?: number;
  readonly topic_prefix?: string;
  readonly username?: string;
  readonly password_env?: string;
  /** Of the broker; with `embedded`: clients need a certificate that it has signed. */
  readonly ca?: string;
  readonly cert?: string;
  readonly key?: string;
  /** Messages of people that come over MQTT are answered. */
  readonly prompts?: boolean;
  readonly offline_grace_ms?: number;
  readonly devices?: Readonly<Record<string, DeviceEntry>>;
}

/** One of [edge.devices.NAME]. */
export interface DeviceEntry {
  readonly tenant?: string;
  readonly on_offline?: 'error' | 'wait';
  readonly wait_ms?: number;
  readonly timeout_ms?: number;
  readonly built_ins?: 'device' | 'ops';
  /** Of a device that does not publish its tools: which it has, by the names of built-in tools and of packages here. */
  readonly tools?: readonly string[];
  /** The variable with its password, for the embedded broker. */
  readonly password_env?: string;
}

const DEVICE_NAME = /^[A-Za-z0-9_-][A-Za-z0-9_.-]{0,63}$/;
const PREFIX = /^[A-Za-z0-9_-][A-Za-z0-9_.-]*(\/[A-Za-z0-9_-][A-Za-z0-9_.-]*)*$/;

const text: Shape = { type: 'text' };
const ms: Shape = { type: 'count', min: 1, max: 2 ** 31 - 1 };
const variable: Shape = {
  type: 'text',
  form: {
    matches: (name) => /^[A-Za-z_]\w*$/.test(name),
    means: 'the name of an environment variable, such as MQTT_PASSWORD, and not the password itself',
  },
};
const password: Shape = {
  type: 'forbidden',
  why: 'passwords do not belong in a file. Put it in an environment variable, and name that with password_env',
};

export const EDGE_SHAPE: Shape = {
  type: 'table',
  fields: {
    broker: {
      type: 'text',
      form: { matches: isBroker, means: '"embedded", or an address such as mqtts://host:8883 without a user' },
    },
    host: text,
    port: { type: 'count', min: 0, max: 65_535 },
    topic_prefix: { type: 'text', form: { matches: (one) => PREFIX.test(one), means: 'a prefix such as treadle' } },
    username: text,
    password_env: variable,
    password,
    ca: text,
    cert: text,
    key: text,
    prompts: { type: 'switch' },
    offline_grace_ms: { type: 'count', min: 0, max: 3_600_000 },
    devices: {
      type: 'table',
      fields: {},
      others: {
        type: 'table',
        fields: {
          tenant: text,
          on_offline: { type: 'text', choices: ['error', 'wait'] },
          wait_ms: ms,
          timeout_ms: ms,
          built_ins: { type: 'text', choices: ['device', 'ops'] },
          tools: { type: 'texts' },
          password_env: variable,
          password,
        },
      },
    },
  },
};

function isBroker(broker: string): boolean {
  if (broker === 'embedded') return true;
  const url = URL.parse(broker);
  return url !== null && /^(mqtts?|wss?):$/.test(url.protocol) && url.hostname !== '' && url.username === '';
}

/** Problems of [edge] that the shape does not cover. */
export function edgeProblems({ edge }: Config): string[] {
  if (!edge) return [];
  const { broker = 'embedded', host = '127.0.0.1', devices = {}, cert, key } = edge;
  const names = Object.keys(devices);
  const wrong = names.filter((name) => !DEVICE_NAME.test(name));
  const problems = wrong.map(
    (name) => `edge.devices.${name} cannot be the name of a device: use at most 64 letters, digits, "_", "-" and "."`,
  );
  if ((cert === undefined) !== (key === undefined))
    problems.push('edge.cert and edge.key belong together: set both, or none');
  if (edge.password_env !== undefined && edge.username === undefined)
    problems.push('edge.password_env is the password of edge.username, which is missing');
  if (broker !== 'embedded') {
    for (const name of ['host', 'port'] as const) {
      if (edge[name] !== undefined)
        problems.push(`edge.${name} is for the embedded broker, and edge.broker is another one. Remove it`);
    }
    const { protocol, hostname } = new URL(broker);
    if (isLoopback(hostname)) return problems;
    // Others could read what is sent, or send commands.
    if (protocol !== 'mqtts:' && protocol !== 'wss:')
      problems.push('edge.broker is not on this machine, so it needs TLS: use mqtts:// or wss://');
    if (edge.password_env === undefined && cert === undefined) {
      problems.push(
        'edge.broker is not on this machine, so it needs credentials: set username and password_env, or cert and key',
      );
    }
    return problems;
  }
  if (edge.username !== undefined && names.includes(edge.username)) {
    problems.push(
      'edge.username is the name of a device, which has a user of that name. Give the orchestrator another one',
    );
  }
  const withPassword = names.filter((name) => devices[name]!.password_env !== undefined);
  if (
    !isLoopback(host) &&
    (cert === undefined || withPassword.length < names.length || edge.password_env === undefined)
  ) {
    problems.push(
      `edge.host is ${host}, which others can reach. Set cert and key, username and password_env, and password_env of each device`,
    );
  }
  if (withPassword.length > 0 && (withPassword.length < names.length || edge.password_env === undefined)) {
    problems.push(
      'edge: if one device has password_env, all need it, and [edge] needs username and password_env for the orchestrator',
    );
  }
  return problems;
}

function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '::1' || host === '[::1]' || /^127\.\d+\.\d+\.\d+$/.test(host);
}

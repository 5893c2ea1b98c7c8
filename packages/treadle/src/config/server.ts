import { isIP } from 'node:net';
import type { Scope, WebhookEvent } from '@treadle/server';
import type { Config } from './config.ts';
import type { Shape } from '@treadle/tools/toml';

/** [server] of treadle.toml: the settings of `treadle serve`. */
export interface ServerConfig {
  readonly host?: string;
  readonly port?: number;
  /** The keys of clients. Without keys, only programs on this machine can use the server. */
  readonly keys?: readonly KeyEntry[];
  /** Web pages of these origins can use the server. */
  readonly cors_origins?: readonly string[];
  /** For each key without its own limit. */
  readonly requests_per_minute?: number;
  readonly max_concurrent_runs?: number;
  readonly max_concurrent_runs_per_tenant?: number;
  readonly max_open_streams?: number;
  /** The tools of the server: names and sets; default: read-only. */
  readonly tools?: readonly string[];
  /** The tools of the server that every request gets. */
  readonly default_tools?: readonly string[];
  /** What the model is told in every request: one text, or one for each model by name, with `*` for the others. */
  readonly instructions?: string | Readonly<Record<string, string>>;
  /** Further names of models, such as those of Claude Code. One may end with `*`. The model `default` is the default one. */
  readonly model_aliases?: Readonly<Record<string, string>>;
  /** Sends the status `requires_action` to every client. Official clients do not support it. */
  readonly requires_action_status?: boolean;
  /** Stored responses wait for approvals and answers, which the runs API takes. */
  readonly wait_for_answers?: boolean;
  readonly record_unstored?: boolean;
  /** False: the model does not write titles for conversations. */
  readonly chat_titles?: boolean;
  readonly max_body_bytes?: number;
  /** Of all requests and conversations in progress. */
  readonly max_bytes_in_progress?: number;
  readonly max_duration_ms?: number;
  readonly heartbeat_ms?: number;
  readonly send_timeout_ms?: number;
  /** How long runs may take to end when the server stops. */
  readonly shutdown_grace_ms?: number;
  /** How long responses are stored after they ended or paused; 0 is forever. */
  readonly retention_days?: number;
  readonly log_level?: LogLevel;
  /** The log is kept in this file, too. */
  readonly log_file?: string;
  /** The size at which a new file is begun. */
  readonly log_file_max_bytes?: number;
  /** How many files there are. */
  readonly log_files?: number;
  readonly webhooks?: WebhookEntry;
  /** The budgets that all runs of the server draw on. */
  readonly budgets?: readonly string[];
  readonly tenants?: Readonly<Record<string, TenantEntry>>;
  /** The configuration is reloaded when its file has changed. */
  readonly reload?: boolean;
}

/** [server.tenants.NAME]. */
export interface TenantEntry {
  /** The budgets that the runs of the tenant draw on. */
  readonly budgets?: readonly string[];
}

/** [server.webhooks]: requests that tell another program when runs wait or have ended. */
export interface WebhookEntry {
  /** Required, like `secret_env`. `serverProblems` checks that. */
  readonly url?: string;
  /** The environment variable with the secret for signatures. */
  readonly secret_env?: string;
  readonly events?: readonly WebhookEvent[];
  /** The address may be private. */
  readonly allow_private?: boolean;
}

/** One of [[server.keys]]. */
export interface KeyEntry {
  /** Required, like `hash`. `serverProblems` checks that. */
  readonly name?: string;
  readonly hash?: string;
  readonly scopes?: readonly Scope[];
  readonly tenant?: string;
  readonly requests_per_minute?: number;
  readonly max_concurrent_requests?: number;
  /** A time with its zone. */
  readonly expires_at?: string;
  /** The budgets that its runs draw on. */
  readonly budgets?: readonly string[];
}

/** What a key can allow. A copy of the server's pattern, because loading the server takes time. */
export const SCOPE = {
  matches: (scope: string): scope is Scope =>
    /^(agents:(invoke(:[\w-]{1,64})?|write)|tools:execute(:[\w-]{1,64})?|(runs|chat|memory):(read|write)|(metrics|logs):read)$/.test(
      scope,
    ),
  means:
    'agents:invoke, agents:invoke:NAME, agents:write, tools:execute, tools:execute:TOOL, runs:read, runs:write, chat:read, chat:write, metrics:read, logs:read, memory:read or memory:write',
};

const LOG_LEVELS = ['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent'] as const;
export type LogLevel = (typeof LOG_LEVELS)[number];

export const HOST = {
  matches: (host: string): boolean => isIP(host) !== 0 || /^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9-]+)*$/i.test(host),
  means: 'a host such as 127.0.0.1, 0.0.0.0, ::1 or localhost, without "http://", port and brackets',
};

/** The names of keys and tenants, which logs contain. */
export const LABEL = {
  matches: (name: string): boolean => /^[A-Za-z0-9][\w.@-]{0,63}$/.test(name),
  means: 'at most 64 letters, digits and . _ @ -, starting with a letter or a digit',
};

const ORIGIN = {
  matches: (origin: string): boolean => origin === '*' || (URL.canParse(origin) && new URL(origin).origin === origin),
  means: 'origins of web pages such as "https://app.example.com", scheme and host without a path, or "*"',
};

const TIME = {
  matches: (time: string): boolean =>
    /^\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)$/i.test(time) && !Number.isNaN(Date.parse(time)),
  means: 'a time with its zone in quotes, such as "2027-01-31T00:00:00Z"',
};

const HASH = {
  matches: (hash: string): boolean => /^sha256:[0-9a-f]{64}$/i.test(hash),
  means: '"sha256:" and 64 hex digits, and not the key itself. "treadle key new" creates a key and prints its hash',
};

/** A copy of the server's list, like `SCOPE`. */
const WEBHOOK_EVENTS: readonly WebhookEvent[] = [
  'run.waiting',
  'run.completed',
  'run.exhausted',
  'run.failed',
  'run.cancelled',
];

const WEBHOOK_URL = {
  matches: (url: string): boolean => /^https?:$/.test(URL.parse(url)?.protocol ?? ''),
  means: 'a URL such as "https://example.com/hook"',
};

const VARIABLE = {
  matches: (name: string): boolean => /^[A-Za-z_]\w*$/.test(name),
  means: 'the name of an environment variable',
};

const count: Shape = { type: 'count', min: 1 };
const plainKey: Shape = {
  type: 'forbidden',
  why: 'keys do not belong in a file, only their hashes. "treadle key new" creates a key and prints the lines for this file',
};
const plainKeys: Readonly<Record<string, Shape>> = {
  key: plainKey,
  api_key: plainKey,
  apikey: plainKey,
  apiKey: plainKey,
  secret: plainKey,
  token: plainKey,
};

export const SERVER_SHAPE: Shape = {
  type: 'table',
  fields: {
    host: { type: 'text', form: HOST },
    port: { type: 'count', min: 0, max: 65_535 },
    keys: {
      type: 'tables',
      each: {
        type: 'table',
        fields: {
          name: { type: 'text', form: LABEL },
          hash: { type: 'text', form: HASH },
          scopes: { type: 'texts', form: SCOPE },
          tenant: { type: 'text', form: LABEL },
          requests_per_minute: count,
          max_concurrent_requests: count,
          expires_at: { type: 'text', form: TIME },
          budgets: { type: 'texts' },
          ...plainKeys,
        },
      },
    },
    cors_origins: { type: 'texts', form: ORIGIN },
    requests_per_minute: count,
    max_concurrent_runs: count,
    max_concurrent_runs_per_tenant: count,
    max_open_streams: count,
    tools: { type: 'texts' },
    default_tools: { type: 'texts' },
    instructions: {
      type: 'either',
      text: { type: 'text' },
      table: { type: 'table', fields: {}, others: { type: 'text' } },
    },
    model_aliases: { type: 'table', fields: {}, others: { type: 'text' } },
    requires_action_status: { type: 'switch' },
    wait_for_answers: { type: 'switch' },
    record_unstored: { type: 'switch' },
    chat_titles: { type: 'switch' },
    max_body_bytes: count,
    max_bytes_in_progress: count,
    max_duration_ms: count,
    heartbeat_ms: count,
    send_timeout_ms: count,
    shutdown_grace_ms: { type: 'count', min: 0 },
    retention_days: { type: 'count', min: 0 },
    log_level: { type: 'text', choices: LOG_LEVELS },
    log_file: { type: 'text' },
    log_file_max_bytes: { type: 'count', min: 1_024 },
    log_files: { type: 'count', min: 1, max: 1_000 },
    webhooks: {
      type: 'table',
      fields: {
        url: { type: 'text', form: WEBHOOK_URL },
        secret_env: { type: 'text', form: VARIABLE },
        events: { type: 'texts', choices: WEBHOOK_EVENTS },
        allow_private: { type: 'switch' },
        ...plainKeys,
        secret: {
          type: 'forbidden',
          why: 'secrets do not belong in a file. Put it in an environment variable, and name the variable with secret_env',
        },
      },
    },
    budgets: { type: 'texts' },
    tenants: {
      type: 'table',
      fields: {},
      others: { type: 'table', fields: { budgets: { type: 'texts' } } },
    },
    reload: { type: 'switch' },
    ...plainKeys,
  },
};

/** Problems of [server] that the shape does not cover. */
export function serverProblems({ server }: Config): string[] {
  const open = server?.cors_origins?.includes('*') && !server.keys?.length;
  return [
    ...(open
      ? [
          'server.cors_origins = ["*"] allows every web page to use a server without keys. Add [[server.keys]], or list origins',
        ]
      : []),
    ...keyProblems(server?.keys ?? []),
    ...tenantProblems(server),
    ...webhookProblems(server?.webhooks),
  ];
}

/** A tenant that no key has would never apply, and its budgets would not be enforced. */
function tenantProblems({ tenants = {}, keys = [] }: ServerConfig = {}): string[] {
  const known = new Set(['default', ...keys.map(({ tenant = 'default' }) => tenant)]);
  return Object.keys(tenants).flatMap((name) =>
    known.has(name) ? [] : [`server.tenants.${name} is not the tenant of a key. Tenants: ${[...known].join(', ')}`],
  );
}

function webhookProblems(webhooks: WebhookEntry | undefined): string[] {
  if (!webhooks) return [];
  const problems: string[] = [];
  if (webhooks.url === undefined) problems.push('server.webhooks.url is missing: where requests are sent');
  if (webhooks.secret_env === undefined) {
    problems.push('server.webhooks.secret_env is missing: the environment variable with the secret for signatures');
  }
  if (webhooks.events?.length === 0) problems.push('server.webhooks.events is empty. Remove it for all events');
  return problems;
}

function keyProblems(keys: readonly KeyEntry[]): string[] {
  const names = new Map<string, number>();
  const hashes = new Map<string, number>();
  return keys.flatMap(({ name, hash, scopes }, index) => {
    const at = `server.keys[${index}]`;
    const problems: string[] = [];
    if (name === undefined) problems.push(`${at}.name is missing: the name of the key in logs`);
    else if (names.has(name))
      problems.push(`${at}.name is already the name of server.keys[${names.get(name)}]. Choose another name`);
    else names.set(name, index);

    const digest = hash?.toLowerCase();
    if (digest === undefined) {
      problems.push(`${at}.hash is missing. "treadle key new" creates a key and prints its hash`);
    } else if (hashes.has(digest)) {
      problems.push(
        `${at}.hash is already the hash of server.keys[${hashes.get(digest)}]. Create another key with "treadle key new"`,
      );
    } else hashes.set(digest, index);

    if (scopes?.length === 0)
      problems.push(`${at}.scopes is empty. Remove it for the default agents:invoke, or name scopes`);
    return problems;
  });
}

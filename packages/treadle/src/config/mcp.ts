import type { Config } from './config.ts';
import type { Shape } from '@treadle/tools/toml';

/** One of [mcp.servers.NAME]: a program, or an address. */
export interface McpServerEntry {
  readonly command?: string;
  readonly args?: readonly string[];
  /** `$NAME` is the value of an environment variable of this process. */
  readonly env?: Readonly<Record<string, string>>;
  /** Relative to the folder of the configuration file. */
  readonly cwd?: string;
  readonly url?: string;
  /** Names of headers, with the environment variables that have their values. */
  readonly headers_env?: Readonly<Record<string, string>>;
  readonly oauth?: McpOAuthEntry;
  /** The tools that are offered; default: all. */
  readonly tools?: readonly string[];
  readonly prefix?: string;
  readonly timeout_ms?: number;
  readonly park_after_ms?: number;
  readonly approval?: 'always' | 'never' | { readonly always?: readonly string[]; readonly never?: readonly string[] };
  readonly trust_annotations?: boolean;
  /** The program runs in the sandbox of the tools. */
  readonly sandbox?: boolean;
}

/** A client that was registered at the authorization server beforehand. */
export interface McpOAuthEntry {
  readonly client_id?: string;
  readonly client_secret_env?: string;
  readonly scope?: string;
  /** Of the address that the browser returns to; default: any free one. */
  readonly redirect_port?: number;
}

const VARIABLE = /^[A-Za-z_]\w*$/;
/** Names of variables and options that usually have a secret as their value. */
const SECRET_NAME = /(^|[_-])(key|apikey|token|secret|password|passwd|pat|credentials?)$/i;

const text: Shape = { type: 'text' };
const variable: Shape = {
  type: 'text',
  form: {
    matches: (name) => VARIABLE.test(name),
    means: 'the name of an environment variable, such as GITHUB_TOKEN, and not the value itself',
  },
};
const secret = (key: string): Shape => ({
  type: 'forbidden',
  why: `secrets do not belong in a file. Put the value in an environment variable, and name the variable with ${key}`,
});

const serverEntry: Shape = {
  type: 'table',
  fields: {
    command: text,
    args: { type: 'texts' },
    env: { type: 'table', fields: {}, others: text },
    cwd: text,
    url: {
      type: 'text',
      form: {
        matches: (url) => /^https?:$/.test(URL.parse(url)?.protocol ?? ''),
        means: 'an address such as https://example.com/mcp',
      },
    },
    headers_env: { type: 'table', fields: {}, others: variable },
    oauth: {
      type: 'table',
      fields: {
        client_id: text,
        client_secret_env: variable,
        scope: text,
        redirect_port: { type: 'count', min: 1, max: 65_535 },
        client_secret: secret('client_secret_env'),
      },
    },
    tools: { type: 'texts' },
    prefix: {
      type: 'text',
      form: { matches: (prefix) => /^[\w-]{1,32}$/.test(prefix), means: 'at most 32 letters, digits, _ and -' },
    },
    timeout_ms: { type: 'count', min: 1, max: 2 ** 31 - 1 },
    park_after_ms: { type: 'count', min: 0, max: 2 ** 31 - 1 },
    approval: {
      type: 'either',
      text: { type: 'text', choices: ['always', 'never'] },
      table: { type: 'table', fields: { always: { type: 'texts' }, never: { type: 'texts' } } },
    },
    trust_annotations: { type: 'switch' },
    sandbox: { type: 'switch' },
    headers: secret('headers_env'),
    token: secret('headers_env'),
    bearer_token: secret('headers_env'),
    api_key: secret('headers_env'),
  },
};

export const MCP_SHAPE: Shape = {
  type: 'table',
  fields: { servers: { type: 'table', fields: {}, others: serverEntry } },
};

/** Problems of [mcp] that the shape does not cover. Never contains a value, which may be a secret. */
export function mcpProblems({ mcp }: Config): string[] {
  return Object.entries(mcp?.servers ?? {}).flatMap(([name, entry]) =>
    serverProblems(`mcp.servers.${name}`, name, entry),
  );
}

const OF_COMMAND = ['args', 'env', 'cwd', 'sandbox'] as const;
const OF_URL = ['headers_env', 'oauth'] as const;

function serverProblems(path: string, name: string, entry: McpServerEntry): string[] {
  const { command, url, args = [], env = {}, oauth } = entry;
  const problems: string[] = [];
  if (!/^[A-Za-z0-9][\w-]{0,31}$/.test(name)) {
    problems.push(`${path}: the name of a server has at most 32 letters, digits, _ and -`);
  }
  if (name === 'treadle') problems.push(`${path}: "treadle" is the label of Treadle's own tools. Choose another name`);
  if (command !== undefined && url !== undefined) {
    problems.push(`${path} has both command and url. Keep command for a program, or url for a server over HTTP`);
  } else if (command === undefined && url === undefined) {
    problems.push(`${path} needs command, the program to start, or url, the address of the server`);
  } else {
    const kind = command === undefined ? 'url' : 'command';
    for (const key of kind === 'url' ? OF_COMMAND : OF_URL) {
      if (entry[key] === undefined) continue;
      problems.push(`${path}.${key} is only for servers with ${kind === 'url' ? 'command' : 'url'}. Remove it`);
    }
  }
  for (const [key, value] of Object.entries(env)) {
    const isReference = value.startsWith('$') && VARIABLE.test(value.slice(1));
    if (!VARIABLE.test(key)) problems.push(`${path}.env has a key that is not the name of an environment variable`);
    else if (SECRET_NAME.test(key) && !isReference) {
      problems.push(
        `${path}.env.${key} looks like a secret, which does not belong in a file. Put it in an environment variable, and ` +
          `refer to that: ${key} = "$${key}"`,
      );
    }
  }
  args.forEach((arg, index) => {
    const [option = '', value] = arg.split('=', 2);
    const before = args[index - 1] ?? '';
    const isSecret = value !== undefined ? isSecretOption(option) : isSecretOption(before) && !arg.startsWith('-');
    if (!isSecret) return;
    problems.push(
      `${path}.args[${index}] looks like a secret, which does not belong in a file, and which other users see in the list of ` +
        'processes. Give it to the program in env',
    );
  });
  if (url !== undefined && containsSecret(new URL(url))) {
    problems.push(
      `${path}.url contains a password or a key, which do not belong in a file. Put it in an environment variable, and name ` +
        'the variable with headers_env',
    );
  }
  if (oauth?.client_secret_env !== undefined && oauth.client_id === undefined) {
    problems.push(`${path}.oauth.client_id is missing: the client that client_secret_env belongs to`);
  }
  return problems;
}

function isSecretOption(option: string): boolean {
  return option.startsWith('--') && SECRET_NAME.test(option.slice(1));
}

/** Whether an address contains a password, or a query that usually is a key. */
export function containsSecret({ username, password, searchParams }: URL): boolean {
  return (
    username !== '' || password !== '' || [...searchParams.keys()].some((key) => /key|token|secret|sig/i.test(key))
  );
}

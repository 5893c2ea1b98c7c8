import { existsSync, statSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { homedir, hostname } from 'node:os';
import { dirname, isAbsolute, join, resolve } from 'node:path';
import { checkShape, keyLines, lineOf, parseToml, TomlProblem, type Shape } from '@treadle/tools/toml';
import { brokerUrl, checkedBroker, type TlsFiles } from '../mqtt/transport.ts';
import type { Fields } from '../protocol/message.ts';
import { isDeviceId, isTopicPrefix } from '../protocol/topics.ts';
import type { AgentOptions } from './agent.ts';
import type { ToolSettings } from './runner.ts';

/** What a device is started with. */
export interface DeviceConfig {
  readonly id: string;
  readonly type?: string;
  readonly prefix: string;
  readonly broker: AgentOptions['broker'];
  /** The folder of its ledger. */
  readonly store: string;
  readonly tools: ToolSettings;
  readonly maxParallel?: number;
  readonly maxQueued?: number;
  /** For what runs, when it shuts down. */
  readonly graceMs?: number;
}

/** The configuration has an error. The message says where, and what to do. */
export class DeviceConfigError extends Error {
  override readonly name = 'DeviceConfigError';
}

interface DeviceFile {
  readonly agent?: { readonly id?: string; readonly type?: string; readonly capabilities?: readonly string[] };
  readonly tools?: {
    readonly sandboxing?: string;
    readonly timeout_ms?: number;
    readonly offer?: readonly string[];
    readonly folder?: string;
    readonly skills_path?: string;
    readonly max_parallel?: number;
    readonly max_queued?: number;
    readonly ops?: boolean;
    readonly on_ask?: 'allow' | 'deny';
    readonly paths?: { readonly bin?: string };
  };
  readonly edge?: {
    readonly broker?: string;
    readonly topic_prefix?: string;
    readonly username?: string;
    readonly password_env?: string;
    readonly ca?: string;
    readonly cert?: string;
    readonly key?: string;
    readonly keep_alive_ms?: number;
    readonly store?: string;
    readonly shutdown_grace_ms?: number;
  };
  readonly policy?: Fields;
}

const text: Shape = { type: 'text' };
const ms: Shape = { type: 'count', min: 1, max: 2 ** 31 - 1 };

const DEVICE_SHAPE: Shape = {
  type: 'table',
  fields: {
    agent: {
      type: 'table',
      fields: {
        id: {
          type: 'text',
          form: { matches: isDeviceId, means: 'a name of at most 64 letters, digits, "_", "-" and "."' },
        },
        type: text,
        capabilities: {
          type: 'texts',
          choices: ['file_read', 'file_write', 'shell', 'network', 'git', 'session'],
        },
      },
    },
    tools: {
      type: 'table',
      fields: {
        sandboxing: { type: 'text', choices: ['auto', 'bubblewrap', 'firejail', 'podman', 'seatbelt', 'none'] },
        timeout_ms: ms,
        offer: { type: 'texts' },
        folder: text,
        skills_path: text,
        max_parallel: { type: 'count', min: 1, max: 1000 },
        max_queued: { type: 'count', min: 0, max: 100_000 },
        ops: { type: 'switch' },
        on_ask: { type: 'text', choices: ['allow', 'deny'] },
        paths: { type: 'table', fields: { bin: text } },
      },
    },
    edge: {
      type: 'table',
      fields: {
        broker: { type: 'text', form: { matches: isBroker, means: 'an address such as mqtt://127.0.0.1:1883' } },
        topic_prefix: { type: 'text', form: { matches: isTopicPrefix, means: 'a prefix such as treadle' } },
        username: text,
        password_env: text,
        password: {
          type: 'forbidden',
          why: 'passwords do not belong in a file. Put it in an environment variable, and name that with password_env',
        },
        ca: text,
        cert: text,
        key: text,
        keep_alive_ms: { type: 'count', min: 1000, max: 3_600_000 },
        store: text,
        shutdown_grace_ms: { type: 'count', min: 0, max: 3_600_000 },
      },
    },
    policy: { type: 'checked', check: () => [] },
  },
};

export interface DeviceFlags {
  readonly config?: string;
  readonly broker?: string;
  readonly id?: string;
}

const DEFAULT_FILE = 'edge.toml';
const DEFAULT_BROKER = 'mqtt://127.0.0.1:1883';

/** Reads the configuration of a device. Throws a `DeviceConfigError` that names every problem. */
export async function loadDeviceConfig(
  flags: DeviceFlags,
  { cwd, env }: { readonly cwd: string; readonly env: NodeJS.ProcessEnv },
): Promise<DeviceConfig> {
  const name = flags.config ?? DEFAULT_FILE;
  const path = resolve(cwd, name);
  const file = await readDeviceFile(path, name, flags.config !== undefined);
  const folder = dirname(path);
  const at = (given: string): string => placeOf(given, folder);
  const { agent = {}, tools = {}, edge = {}, policy: rules = {} } = file;
  const { capabilities } = agent;
  if (capabilities === undefined) {
    throw new DeviceConfigError(
      `${name}: agent.capabilities is missing: list what tools may do, such as ["file_read"], or [] for nothing.`,
    );
  }
  const id = flags.id ?? agent.id ?? hostname();
  if (!isDeviceId(id)) {
    throw new DeviceConfigError(`The device cannot be named ${JSON.stringify(id)}. Set agent.id in ${name}, or --id.`);
  }
  const url = flags.broker ?? edge.broker ?? DEFAULT_BROKER;
  const store = at(edge.store ?? '~/.treadle/edge');
  if (edge.password_env !== undefined && edge.username === undefined) {
    throw new DeviceConfigError(`${name}: edge.password_env is the password of edge.username, which is missing.`);
  }
  const secret = edge.password_env === undefined ? undefined : env[edge.password_env];
  if (edge.password_env !== undefined && secret === undefined) {
    throw new DeviceConfigError(`${name}: edge.password_env names ${edge.password_env}, which is not set.`);
  }
  for (const key of ['folder', 'skills_path'] as const) {
    const given = tools[key];
    if (given === undefined || isFolder(at(given))) continue;
    throw new DeviceConfigError(`${name}: tools.${key} is not a folder: ${at(given)}.`);
  }
  checkedBroker(url, { hasCredentials: secret !== undefined || edge.cert !== undefined });
  const tls = await tlsFiles(edge, at);
  return {
    id,
    ...(agent.type !== undefined && { type: agent.type }),
    prefix: edge.topic_prefix ?? 'treadle',
    broker: {
      url,
      ...(tls && { tls }),
      ...(edge.username !== undefined && { username: edge.username }),
      ...(secret !== undefined && { password: secret }),
      ...(edge.keep_alive_ms !== undefined && { keepAliveMs: edge.keep_alive_ms }),
    },
    store: join(store, id),
    ...(tools.max_parallel !== undefined && { maxParallel: tools.max_parallel }),
    ...(tools.max_queued !== undefined && { maxQueued: tools.max_queued }),
    ...(edge.shutdown_grace_ms !== undefined && { graceMs: edge.shutdown_grace_ms }),
    tools: {
      folder: at(tools.folder ?? cwd),
      capabilities,
      offer: tools.offer ?? ['coding', 'packages'],
      skills: [at(tools.skills_path ?? '~/.treadle/skills'), ...binPackage(tools.paths?.bin, at, name)],
      sandboxing: tools.sandboxing ?? 'auto',
      timeoutMs: tools.timeout_ms ?? 30_000,
      rules,
      onAsk: tools.on_ask ?? 'allow',
      ops: tools.ops ?? true,
      hide: [store, ...(existsSync(path) ? [path] : []), ...(edge.key === undefined ? [] : [at(edge.key)])],
    },
  };
}

async function readDeviceFile(path: string, name: string, isNamed: boolean): Promise<DeviceFile> {
  let source: string;
  try {
    source = await readFile(path, 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT' || isNamed) {
      throw new DeviceConfigError(`${name} cannot be read: ${(error as Error).message}.`);
    }
    throw new DeviceConfigError(
      `There is no ${name}. Write one with [agent] id and capabilities, and [edge] broker, or name another with --config.`,
    );
  }
  let value: unknown;
  try {
    value = parseToml(source);
  } catch (error) {
    if (!(error instanceof TomlProblem)) throw error;
    throw new DeviceConfigError(`${name}:${error.line}:${error.column}: ${error.message}.`);
  }
  const problems = checkShape(value, DEVICE_SHAPE, '');
  if (problems.length === 0) return value as DeviceFile;
  const lines = keyLines(source);
  throw new DeviceConfigError(
    problems.map((problem) => `${name}:${lineOf(lines, problem) ?? 1}: ${problem}.`).join('\n'),
  );
}

function isFolder(path: string): boolean {
  return statSync(path, { throwIfNoEntry: false })?.isDirectory() === true;
}

/** `~/` is the home folder; other paths are relative to the configuration. */
function placeOf(given: string, folder: string): string {
  if (/^~($|[/\\])/.test(given)) return join(homedir(), given.slice(1));
  return isAbsolute(given) ? given : resolve(folder, given);
}

/** The package whose programs are in this folder. */
function binPackage(bin: string | undefined, at: (given: string) => string, name: string): readonly string[] {
  if (bin === undefined) return [];
  const folder = dirname(at(bin));
  if (existsSync(join(folder, 'skill.toml'))) return [folder];
  throw new DeviceConfigError(
    `${name}: tools.paths.bin is not the bin folder of a package: ${folder} has no skill.toml.`,
  );
}

async function tlsFiles(
  { ca, cert, key }: Pick<NonNullable<DeviceFile['edge']>, 'ca' | 'cert' | 'key'>,
  at: (given: string) => string,
): Promise<TlsFiles | undefined> {
  const given = Object.entries({ ca, cert, key }).flatMap(([name, file]) => (file === undefined ? [] : [[name, file]]));
  if (given.length === 0) return undefined;
  const read = async ([name, file]: readonly string[]): Promise<readonly [string, string]> => {
    try {
      return [name!, await readFile(at(file!), 'utf8')];
    } catch (error) {
      throw new DeviceConfigError(`edge.${name} cannot be read: ${(error as Error).message}.`);
    }
  };
  return Object.fromEntries(await Promise.all(given.map(read)));
}

function isBroker(url: string): boolean {
  try {
    brokerUrl(url);
    return true;
  } catch {
    return false;
  }
}

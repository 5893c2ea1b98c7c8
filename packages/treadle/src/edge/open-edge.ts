import { readFile } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';
import type { Broker, BrokerUser, DeviceOptions, EdgeLink, EdgeLogLine, EdgeOptions, TlsFiles } from '@treadle/edge';
import { didYouMean } from '@treadle/core/nearest';
import { CommandError } from '../command-line/command.ts';
import type { CommandContext } from '../config/context.ts';
import type { DeviceEntry, EdgeConfig } from '../config/edge.ts';
import type { Io } from '../terminal/io.ts';
import { commandTools } from '../tools/command-tools.ts';

/** Of an embedded broker that says nothing else, so that devices and other commands find it. */
const EMBEDDED_PORT = 1883;
/** For the broker to accept the connection. */
const CONNECT_MS = 5_000;

/** A connection to the devices of a configuration. */
export interface OpenEdge {
  readonly link: EdgeLink;
  /** Present if it runs in this process. */
  readonly broker?: Broker;
  close(): Promise<void>;
}

export interface OpenEdgeOptions {
  readonly context: CommandContext;
  readonly env: Io['env'];
  readonly log?: (line: EdgeLogLine) => void;
  readonly onPrompt?: EdgeOptions['onPrompt'];
  readonly readsCommands?: boolean;
  /** Starts the embedded broker, if the configuration says so. Otherwise another process has it. */
  readonly startsBroker?: boolean;
}

/** Throws if there is no [edge], or a secret is missing. */
export async function openEdge({
  context,
  env,
  log,
  onPrompt,
  readsCommands = false,
  startsBroker = false,
}: OpenEdgeOptions): Promise<OpenEdge> {
  const { edge } = context.loaded.config;
  if (!edge) {
    throw new CommandError(
      'There are no devices: the configuration has no [edge]. Add [edge] and [edge.devices.NAME] to treadle.toml.',
    );
  }
  const { edgeLink, openBroker } = await import('@treadle/edge');
  const prefix = edge.topic_prefix ?? 'treadle';
  const secret = secretOf(edge.password_env, 'edge.password_env', context, env);
  const tls = await tlsFiles(edge, context);
  const isEmbedded = (edge.broker ?? 'embedded') === 'embedded';
  const broker =
    isEmbedded && startsBroker
      ? await openBroker({
          prefix,
          host: edge.host ?? '127.0.0.1',
          port: edge.port ?? EMBEDDED_PORT,
          ...usersOf(edge, secret, context, env),
          ...(tls?.cert !== undefined && { tls }),
          onProblem: (why) => log?.({ level: 'warn', message: 'the broker', why }),
        }).catch((error: Error) => {
          throw new CommandError(`${error.message} Another server may have it: edge.port sets another port.`);
        })
      : undefined;
  const url = broker?.url.replace('0.0.0.0', '127.0.0.1') ?? (isEmbedded ? embeddedUrl(edge) : edge.broker!);
  const clientTls = isEmbedded && tls?.cert !== undefined ? ownTls(tls, tls.cert) : tls;
  const link = edgeLink({
    prefix,
    broker: {
      url,
      ...(clientTls && { tls: clientTls }),
      ...(edge.username !== undefined && { username: edge.username }),
      ...(secret !== undefined && { password: secret }),
    },
    devices: Object.entries(edge.devices ?? {}).map(([name, entry]) => deviceOptions(name, entry, context)),
    ...(edge.offline_grace_ms !== undefined && { offlineGraceMs: edge.offline_grace_ms }),
    ...(log && { log }),
    ...(edge.prompts && onPrompt && { onPrompt }),
    ...(readsCommands && { readsCommands }),
  });
  return {
    link,
    ...(broker && { broker }),
    async close() {
      await link.close();
      await broker?.close();
    },
  };
}

/** For the embedded broker: its certificate is for the names that devices use, and may need one of its clients. */
function ownTls({ ca, key }: TlsFiles, cert: string): TlsFiles {
  return { pin: cert, ...(ca !== undefined && { cert, ...(key !== undefined && { key }) }) };
}

/** The same for a command that needs the devices now. */
export async function connectEdge(options: OpenEdgeOptions): Promise<OpenEdge> {
  let problem = '';
  const failed = Promise.withResolvers<false>();
  const edge = await openEdge({
    ...options,
    log: (line) => {
      if (line.level === 'warn' && typeof line['why'] === 'string') {
        problem = line['why'];
        failed.resolve(false);
      }
      options.log?.(line);
    },
  });
  if (await Promise.race([edge.link.whenConnected(CONNECT_MS), failed.promise])) return edge;
  await edge.close();
  const { broker = 'embedded' } = options.context.loaded.config.edge ?? {};
  const remedy =
    broker === 'embedded' ? 'Its broker is that of "treadle serve": start it first.' : 'Check edge.broker.';
  throw new CommandError(`The broker cannot be reached: ${problem || 'it does not answer'}. ${remedy}`);
}

/** Throws if the configuration has no such device. */
export function checkDevice({ loaded }: CommandContext, name: string): void {
  const names = Object.keys(loaded.config.edge?.devices ?? {});
  if (names.includes(name)) return;
  const listed = names.length === 0 ? 'none' : names.join(', ');
  throw new CommandError(`There is no device ${JSON.stringify(name)}.${didYouMean(name, names)} Devices: ${listed}.`);
}

const DEVICE_WORD = 'device:';

/** Whether a word of a list of tools means a device. */
export function isDeviceWord(word: string): boolean {
  return word.startsWith(DEVICE_WORD);
}

/** The devices that a list of tools names. Throws for one that is not configured. */
export function splitDevices(context: CommandContext, words: readonly string[]): readonly string[] {
  const names = words.filter(isDeviceWord).map((word) => word.slice(DEVICE_WORD.length));
  for (const name of names) checkDevice(context, name);
  return context.loaded.config.orchestrator?.tool_loop_enabled === false ? [] : names;
}

function embeddedUrl({ host = '127.0.0.1', port = EMBEDDED_PORT, cert }: EdgeConfig): string {
  const local = host === '0.0.0.0' ? '127.0.0.1' : host;
  return `${cert === undefined ? 'mqtt' : 'mqtts'}://${local.includes(':') ? `[${local}]` : local}:${port}`;
}

function deviceOptions(name: string, entry: DeviceEntry, context: CommandContext): DeviceOptions {
  const { orchestrator } = context.loaded.config;
  const timeoutMs = entry.timeout_ms ?? orchestrator?.default_tool_timeout_ms;
  return {
    name,
    ...(entry.tenant !== undefined && { tenant: entry.tenant }),
    ...(entry.on_offline && { onOffline: entry.on_offline }),
    ...(entry.wait_ms !== undefined && { waitMs: entry.wait_ms }),
    ...(timeoutMs !== undefined && { timeoutMs }),
    ...(entry.built_ins && { builtIns: entry.built_ins }),
    ...(entry.tools && { tools: configuredTools(name, entry.tools, context) }),
  };
}

/** The definitions of tools that a device has and does not publish: those of the same name here. */
function configuredTools(
  device: string,
  names: readonly string[],
  context: CommandContext,
): NonNullable<DeviceOptions['tools']> {
  const known = commandTools(context);
  return names.map((name) => {
    const own = known.find((one) => one.name === name);
    if (!own) {
      const listed = known.map((one) => one.name);
      throw new CommandError(
        `${context.loaded.file}: edge.devices.${device}.tools names ${JSON.stringify(name)}, which is not a tool here.` +
          `${didYouMean(name, listed)} Tools: ${listed.join(', ')}.`,
      );
    }
    const { description, parameters, effect, permissions = [] } = own;
    return { name, description, parameters, effect, permissions, builtin: true };
  });
}

/** Users of the embedded broker, if devices have passwords. */
function usersOf(
  { devices = {}, username }: EdgeConfig,
  secret: string | undefined,
  context: CommandContext,
  env: Io['env'],
): { readonly users?: Readonly<Record<string, BrokerUser>> } {
  const entries = Object.entries(devices).flatMap(
    ([name, { password_env: variable }]): readonly [string, BrokerUser][] => {
      if (variable === undefined) return [];
      return [
        [name, { password: secretOf(variable, `edge.devices.${name}.password_env`, context, env)!, device: name }],
      ];
    },
  );
  // With passwords of devices, the configuration has those of the orchestrator.
  if (entries.length === 0) return {};
  return { users: { ...Object.fromEntries(entries), [username!]: { password: secret! } } };
}

function secretOf(
  variable: string | undefined,
  key: string,
  { loaded }: CommandContext,
  env: Io['env'],
): string | undefined {
  if (variable === undefined) return undefined;
  const value = env[variable];
  if (value !== undefined && value !== '') return value;
  throw new CommandError(`${loaded.file}: ${key} names ${variable}. Set this environment variable.`);
}

async function tlsFiles(
  { ca, cert, key }: EdgeConfig,
  { loaded, folder }: CommandContext,
): Promise<TlsFiles | undefined> {
  const base = loaded.path === undefined ? folder : dirname(loaded.path);
  const given = Object.entries({ ca, cert, key }).filter((entry): entry is [string, string] => entry[1] !== undefined);
  if (given.length === 0) return undefined;
  const read = async ([name, file]: [string, string]): Promise<readonly [string, string]> => {
    try {
      return [name, await readFile(resolve(base, file), 'utf8')];
    } catch (error) {
      throw new CommandError(`${loaded.file}: edge.${name} cannot be read: ${(error as Error).message}.`);
    }
  };
  return Object.fromEntries(await Promise.all(given.map(read)));
}

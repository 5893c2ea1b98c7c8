import type { Tool } from '@treadle/core';
import type { ApiKey, TreadleServerOptions, WebhookOptions } from '@treadle/server';
import { CommandError } from '../command-line/command.ts';
import { didYouMean } from '@treadle/core/nearest';
import type { LoadedConfig } from '../config/load.ts';
import { HOST, type KeyEntry } from '../config/server.ts';
import { isDeviceWord } from '../edge/open-edge.ts';
import { isMcpWord } from '../mcp/servers.ts';
import type { Io } from '../terminal/io.ts';

const DAY_MS = 24 * 60 * 60 * 1_000;

/** The options of the server that flags and configuration set. */
export type ServeOptions = Omit<
  TreadleServerOptions,
  | 'models'
  | 'store'
  | 'policy'
  | 'askingPolicy'
  | 'skills'
  | 'namedAgents'
  | 'agentSettings'
  | 'schedules'
  | 'triggers'
  | 'testModel'
  | 'mcp'
  | 'mcpServers'
  | 'log'
  | 'ledger'
  | 'devices'
  | 'memory'
>;

export interface AddressFlags {
  readonly host?: string | undefined;
  readonly port?: number | undefined;
}

export function serveOptions(
  flags: AddressFlags,
  loaded: LoadedConfig,
  { tools, env }: { readonly tools: readonly Tool[]; readonly env: Io['env'] },
): ServeOptions {
  if (flags.host !== undefined && !HOST.matches(flags.host)) {
    throw new CommandError(`--host cannot be ${JSON.stringify(flags.host)}. It takes ${HOST.means}.`);
  }
  const { server = {}, orchestrator = {} } = loaded.config;
  checkDefaultTools(loaded, tools);
  const options = {
    host: flags.host ?? server.host,
    port: flags.port ?? server.port,
    keys: apiKeys(loaded.config),
    corsOrigins: server.cors_origins,
    requestsPerMinute: server.requests_per_minute,
    maxConcurrentRuns: server.max_concurrent_runs,
    maxConcurrentRunsPerTenant: server.max_concurrent_runs_per_tenant,
    maxOpenStreams: server.max_open_streams,
    defaultTools: server.default_tools?.filter((name) => !isMcpWord(name) && !isDeviceWord(name)),
    instructions: server.instructions,
    requiresAction: server.requires_action_status,
    waitForAnswers: server.wait_for_answers,
    recordUnstored: server.record_unstored,
    chatTitles: server.chat_titles,
    maxBodyBytes: server.max_body_bytes,
    maxBytesInProgress: server.max_bytes_in_progress,
    maxDurationMs: server.max_duration_ms,
    heartbeatMs: server.heartbeat_ms,
    sendTimeoutMs: server.send_timeout_ms,
    maxTurns: orchestrator.max_tool_iterations,
    toolTimeoutMs: orchestrator.default_tool_timeout_ms,
    errorLimit: orchestrator.tool_error_limit,
    webhooks: webhookOptions(loaded, env),
    retentionMs: server.retention_days === undefined ? undefined : server.retention_days * DAY_MS,
  };
  return { tools, ...present(options) };
}

type Present<T> = { readonly [K in keyof T]?: Exclude<T[K], undefined> };

/** Without undefined values. */
function present<T extends object>(values: T): Present<T> {
  return Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined)) as Present<T>;
}

/** The keys of clients. */
function apiKeys({ server }: LoadedConfig['config']): readonly ApiKey[] | undefined {
  return server?.keys?.map(keyOf);
}

function keyOf({ name, hash, scopes, tenant, ...entry }: KeyEntry): ApiKey {
  return {
    // The configuration was validated, so both are present.
    name: name!,
    hash: hash!,
    ...present({
      scopes,
      tenant,
      requestsPerMinute: entry.requests_per_minute,
      maxConcurrentRequests: entry.max_concurrent_requests,
      expiresAt: entry.expires_at === undefined ? undefined : Date.parse(entry.expires_at),
    }),
  };
}

function webhookOptions({ config, file }: LoadedConfig, env: Io['env']): WebhookOptions | undefined {
  const { url, secret_env: variable, events, allow_private: allowPrivate } = config.server?.webhooks ?? {};
  if (url === undefined || variable === undefined) return undefined;
  const secret = env[variable];
  if (secret === undefined || secret.length < 16) {
    throw new CommandError(
      `${file}: server.webhooks.secret_env names ${variable}. Set this environment variable to a secret of at least 16 characters.`,
    );
  }
  return { url, secret, ...present({ events, allowPrivate }) };
}

function checkDefaultTools({ config, file }: LoadedConfig, tools: readonly Tool[]): void {
  const names = [...tools.map(({ name }) => name), ...(config.memory?.enabled ? ['remember', 'recall'] : [])];
  const unknown = config.server?.default_tools?.find(
    (name) => !isMcpWord(name) && !isDeviceWord(name) && !names.includes(name),
  );
  if (unknown === undefined) return;
  throw new CommandError(
    names.length === 0
      ? `${file}: server.default_tools names ${JSON.stringify(unknown)}, but the server has no tools: see tools in ` +
          `[server], and tool_loop_enabled in [orchestrator].`
      : `${file}: server.default_tools names ${JSON.stringify(unknown)}, which is not a tool of the server.` +
          `${didYouMean(unknown, names)} Tools: ${names.join(', ')}.`,
  );
}

import { randomUUID } from 'node:crypto';
import {
  checkOptions,
  TreadleError,
  type HandoffAgent,
  type Ledger,
  type OptionNames,
  type Policy,
  type Principal,
  type Tool,
} from '@treadle/core';
import { resourceKeeper } from '@treadle/store';
import type { Logger } from 'pino';
import { completions } from './apis/completions/completions.ts';
import { completionRoutes } from './apis/completions/routes.ts';
import { conversations } from './apis/chat/conversations.ts';
import { titleWriter } from './apis/chat/titles.ts';
import { conversationItems } from './apis/chat/conversation-items.ts';
import { itemRoutes } from './apis/chat/item-routes.ts';
import { conversationsRoutes } from './apis/chat/routes.ts';
import { activeRuns, type Engine, type ServedModels, type ServerStore } from './engine/engine.ts';
import { OWN_LABEL, registeredTools, type ToolExecutor } from './engine/executors.ts';
import { KEY_MS } from './requests/idempotency.ts';
import { mcpExecutor, type McpServersOptions } from './engine/mcp-servers.ts';
import { isDrivenElsewhere } from './requests/interruption.ts';
import { everyRunOptions, newRunOptions, type EveryRunOptions, type NewRunOptions } from './engine/loop-options.ts';
import { RECOVERED } from './requests/recovery.ts';
import { requests, type RequestKind, type Requests } from './requests/requests.ts';
import { checkWebhooks, sendWebhooks, type WebhookOptions } from './engine/webhooks.ts';
import { memoryLimit, streamLimit } from './http/limits.ts';
import { serverKeys, type ApiKey, type Keys } from './http/keys.ts';
import { newLog } from './http/log.ts';
import { CONTENT_TYPE, newMetrics, serverMetrics, type Metrics } from './http/metrics.ts';
import { route, type Route } from './http/routes.ts';
import { createServer, type Listening } from './http/server.ts';
import type { OpenedMcp } from './apis/mcp/endpoint.ts';
import { checkMcpNames, type McpOptions } from './apis/mcp/options.ts';
import { mcpRoutes } from './apis/mcp/routes.ts';
import { responses } from './apis/responses/responses.ts';
import { runStarter } from './apis/responses/start-run.ts';
import { responsesRoutes } from './apis/responses/routes.ts';
import { serveInbox } from './apis/runs/inbox.ts';
import { runsRoutes } from './apis/runs/routes.ts';
import { runs } from './apis/runs/runs.ts';
import { serverRoutes, type TestModel } from './server-routes.ts';

export interface TreadleServerOptions extends EveryRunOptions, NewRunOptions {
  readonly models: ServedModels;
  readonly store: ServerStore;
  /** Run on the server. Clients use them by the `server_label` "treadle". */
  readonly tools?: readonly Tool[];
  /** Run further kinds of tools on the server. */
  readonly executors?: readonly ToolExecutor[];
  /** Names of `tools` that are available to every request; default none. */
  readonly defaultTools?: readonly string[];
  /**
   * What every request tells the model, before the instructions of its conversation and its own: one text, or one for each model
   * by name, with `*` for the others.
   */
  readonly instructions?: string | Readonly<Record<string, string>>;
  /** The MCP servers that requests may use: those that they name by their URL, and those that are configured here. */
  readonly mcpServers?: McpServersOptions;
  /**
   * Judges the calls of all runs, for the key that sent the request. A response whose call needs an approval fails, because
   * nobody can be asked, unless `waitForAnswers` is set. Functions of clients are judged if the policy is code, or if its
   * rules name them.
   */
  readonly policy?: Policy;
  /**
   * Judges the calls of conversations instead, if their client says that a person answers (`"approvals": "ask"`) and the server
   * has no keys. Default: `policy`.
   */
  readonly askingPolicy?: Policy;
  /**
   * The ledger of the budgets that the runs of a caller draw on, such as `budgets.ledger(names)` of the store; undefined: none.
   * Called when a run starts or is resumed. `subject` is the name of the key, empty without keys. Must not throw.
   */
  readonly ledger?: (caller: Principal) => Ledger | undefined;
  /**
   * The agents that tools made by `handoff` may hand a run over to. Whoever may call such a tool may use the tools of its agent.
   */
  readonly agents?: readonly HandoffAgent[];
  /** Finds out whether a model works: `POST /v1/server/test`. Default: models cannot be tested over HTTP. */
  readonly testModel?: TestModel;
  /**
   * A stored response whose calls need an approval, an answer to a question or a result from outside waits for it:
   * `POST /v1/runs/{id}/answers`. Default: it fails.
   */
  readonly waitForAnswers?: boolean;
  /** The model writes titles for conversations, after their first answer; default true. */
  readonly chatTitles?: boolean;
  /** Settings of `/mcp`, where MCP clients call the tools and agents of the server. */
  readonly mcp?: McpOptions;
  /** Requests that tell another program when runs wait or have ended. */
  readonly webhooks?: WebhookOptions;
  /** Default 127.0.0.1. An address beyond loopback requires keys. */
  readonly host?: string;
  /** Default 3210; 0 for any free port. */
  readonly port?: number;
  readonly keys?: readonly ApiKey[];
  /** Origins of web pages that may use the server from a browser; default none. */
  readonly corsOrigins?: readonly string[];
  /** For each key that has no limit of its own, and for each address if there are no keys; default: no limit. */
  readonly requestsPerMinute?: number;
  /** Default 1,000. */
  readonly maxConcurrentRuns?: number;
  /** For one tenant; default: half of `maxConcurrentRuns` if the keys are of several tenants, else all. */
  readonly maxConcurrentRunsPerTenant?: number;
  /** Event streams of conversations, runs and MCP clients; default 4,000. One of several tenants gets at most half of them. */
  readonly maxOpenStreams?: number;
  /** All clients see the status `requires_action`; default: only those that request it. */
  readonly requiresAction?: boolean;
  /** Model calls of one response; default 10. */
  readonly maxTurns?: number;
  /** For one response; default 10 minutes. */
  readonly maxDurationMs?: number;
  /** For tools that have no timeout of their own; default one minute. */
  readonly toolTimeoutMs?: number;
  /** Consecutive turns with nothing but errors; default 3, 0 disables the limit. */
  readonly errorLimit?: number;
  /** The interval of heartbeats in a stream without events; default 15 seconds. */
  readonly heartbeatMs?: number;
  /**
   * How long a client may read nothing of a response; default 1 minute. One that reads less than 1,000 bytes a second is
   * disconnected after twice this time.
   */
  readonly sendTimeoutMs?: number;
  /** Default 16 MiB: room for images and files of 12 MB. */
  readonly maxBodyBytes?: number;
  /**
   * Of all requests and conversations in progress; default 192 MiB. One tenant gets at most half of it. The process needs up
   * to six times as much memory.
   */
  readonly maxBytesInProgress?: number;
  /** How long responses are stored after they ended or paused; default 30 days, 0 is forever. */
  readonly retentionMs?: number;
  readonly log?: Logger;
  /** What `/metrics` returns. The server adds its own metrics to it. Default: a registry of its own. */
  readonly metrics?: Metrics;
}

export interface TreadleServer {
  /** Rejects with advice if the host or the port cannot be used. `recovered`: the number of resumed responses. */
  listen(): Promise<Listening & { readonly recovered: number }>;
  /**
   * Replaces the keys. It applies to the next request, to open event streams, and to runs in progress. Throws if they are not valid; then the keys
   * remain as they are.
   */
  replaceKeys(keys: readonly ApiKey[]): void;
  /**
   * Replaces all options that can change while the server runs, with the keys; one that is absent gets its default. Requests and runs
   * that begin or are resumed later have the new ones. Of `mcp`, only `policy` changes. Throws if they are not valid; then
   * nothing has changed.
   */
  replace(options: ReplaceableOptions): void;
  /**
   * Accepts no more requests, waits up to `graceMs` (default 10 s) for those in progress, and detaches the remaining runs,
   * which are resumed at the next start.
   */
  close(graceMs?: number): Promise<void>;
}

/** The options that can change while the server runs. */
export type ReplaceableOptions = Pick<
  TreadleServerOptions,
  | 'models'
  | 'tools'
  | 'executors'
  | 'defaultTools'
  | 'instructions'
  | 'mcpServers'
  | 'policy'
  | 'askingPolicy'
  | 'ledger'
  | 'agents'
  | 'testModel'
  | 'waitForAnswers'
  | 'mcp'
  | 'keys'
  | 'maxTurns'
  | 'maxDurationMs'
  | 'toolTimeoutMs'
  | 'errorLimit'
  | keyof EveryRunOptions
  | keyof NewRunOptions
>;

/** What of the engine follows from them. */
type EngineSettings = Pick<
  Engine,
  | 'models'
  | 'serverTools'
  | 'limits'
  | 'instructionsFor'
  | 'policy'
  | 'askingPolicy'
  | 'ledgerFor'
  | 'agents'
  | 'everyRun'
  | 'newRun'
  | 'waits'
>;

function engineSettings(options: ReplaceableOptions, log: Logger): EngineSettings {
  const { models, tools = [], executors = [], defaultTools = [], mcpServers: configured = {} } = options;
  const { policy, toolTimeoutMs = 60_000 } = options;
  return {
    models,
    serverTools: {
      executors: [registeredTools(tools), ...executors, mcpExecutor(configured, { policy, toolTimeoutMs, log })],
      defaultTools,
      ...(configured.defaults && { defaultServers: configured.defaults }),
      ...(configured.listTimeoutMs !== undefined && { listTimeoutMs: configured.listTimeoutMs }),
    },
    limits: {
      maxTurns: options.maxTurns ?? 10,
      maxDurationMs: options.maxDurationMs ?? 600_000,
      toolTimeoutMs,
      errorLimit: options.errorLimit ?? 3,
    },
    ...(options.instructions !== undefined && { instructionsFor: instructionsBy(options.instructions) }),
    ...(policy && { policy }),
    ...(options.ledger && { ledgerFor: options.ledger }),
    ...(options.agents && { agents: options.agents }),
    everyRun: everyRunOptions(options),
    newRun: newRunOptions(options),
    ...(options.askingPolicy && { askingPolicy: options.askingPolicy }),
    waits: options.waitForAnswers ?? false,
  };
}

const NO_TOOLS: readonly Tool[] = [];

const REPLACEABLE: { readonly [Name in keyof Required<ReplaceableOptions>]: true } = {
  models: true,
  tools: true,
  executors: true,
  defaultTools: true,
  instructions: true,
  mcpServers: true,
  policy: true,
  askingPolicy: true,
  ledger: true,
  agents: true,
  testModel: true,
  waitForAnswers: true,
  mcp: true,
  keys: true,
  maxTurns: true,
  maxDurationMs: true,
  toolTimeoutMs: true,
  errorLimit: true,
  guardrails: true,
  resultFilters: true,
  exposes: true,
  verifyAnswer: true,
  audit: true,
  summariser: true,
  holdIdleMs: true,
  maxCallsPerTurn: true,
  crashLimit: true,
  repeatLimit: true,
  maxResultChars: true,
  narrow: true,
};

function replaceable(options: ReplaceableOptions): ReplaceableOptions {
  const names = Object.entries(options).filter(([name]) => Object.hasOwn(REPLACEABLE, name));
  return Object.fromEntries(names) as unknown as ReplaceableOptions;
}

const NOTHING_REPLACED = Object.fromEntries(Object.keys(REPLACEABLE).map((name) => [name, undefined]));

/** The labels of tools that every request has. */
function defaultLabels({ defaultTools = [], mcpServers = {} }: ReplaceableOptions): readonly string[] {
  return [...(defaultTools.length > 0 ? [OWN_LABEL] : []), ...(mcpServers.defaults ?? [])];
}

/** An OpenAI-compatible server. Throws for options that cannot work. The caller has to close the store. */
export function treadleServer(options: TreadleServerOptions): TreadleServer {
  checkServerOptions(options);
  const { store, log = newLog() } = options;
  /** With what was replaced. */
  let current: ReplaceableOptions = options;
  const { heartbeatMs = 15_000, maxBodyBytes = 16 * 1024 * 1024, requiresAction = false } = options;
  const { retentionMs = 30 * 24 * 3_600_000, maxConcurrentRuns = 1_000, maxOpenStreams = 4_000 } = options;
  const keys = serverKeys(options.keys ?? []);
  const maxBytes = options.maxBytesInProgress ?? 192 * 1024 * 1024;
  const memory = memoryLimit({ max: maxBytes });
  const registry = options.metrics ?? newMetrics();
  const metrics = serverMetrics(registry);
  if (options.webhooks) checkWebhooks(options.webhooks);
  const { maxConcurrentRunsPerTenant: maxPerTenant } = options;
  const kept = resourceKeeper({
    store: store.keptProcesses,
    onProblem: (run, why) => log.warn({ run, why }, 'a resource was not closed'),
  });
  let settings = engineSettings(options, log);
  const engine: Engine = {
    ...settings,
    store,
    keys,
    kept,
    startRun: (...started) => startRun(...started),
    driven: new Map(),
    runs: activeRuns({
      max: maxConcurrentRuns,
      ...(maxPerTenant !== undefined && { maxPerTenant }),
      keys,
      memory,
    }),
    log,
    metrics,
  };
  metrics.addGauges({
    runsInProgress: () => engine.runs.reserved,
    maxRuns: maxConcurrentRuns,
    bytesInProgress: () => memory.used,
    maxBytes,
  });
  store.onCommit?.(metrics.storeCommitted);
  // A response is stored at least as long as its key.
  const stored = requests(engine, retentionMs > 0 ? Math.min(KEY_MS, retentionMs) : KEY_MS);
  const stopping = new AbortController();
  const service = responses(engine, stored, stopping.signal);
  const startRun = runStarter(engine, service);
  const completing = completions(engine, stored);
  const allRuns = runs(engine, stored);
  const chats = conversations({
    engine,
    stored,
    runs: allRuns,
    histories: service.histories,
    onResponseDeleted: service.forget,
    stopping: stopping.signal,
    ...((options.chatTitles ?? true) && { onUntitled: titleWriter(engine, stopping.signal) }),
  });
  const items = conversationItems({ store, stored, accept: service.acceptItems });
  // Loaded when it is used for the first time.
  let openedMcp: Promise<OpenedMcp> | undefined;
  const openMcp = (): Promise<OpenedMcp> =>
    (openedMcp ??= import('./apis/mcp/endpoint.ts').then((mcp) =>
      mcp.openMcp({
        engine,
        stored,
        runs: allRuns,
        tools: () => current.tools ?? NO_TOOLS,
        options: () => ({ ...options.mcp, ...current.mcp }),
        heartbeatMs,
        stopping: stopping.signal,
      }),
    ));
  stored.register('mcp-call', {
    waits: true,
    plan: async (...taken) => (await openMcp()).calls.api.plan(...taken),
    fail: async (...taken) => (await openMcp()).calls.api.fail(...taken),
  });
  const parseOptions = { labels: defaultLabels(options) };
  const common = { parseOptions, maxBodyBytes, heartbeatMs };
  const { host, port, corsOrigins: cors, requestsPerMinute, sendTimeoutMs } = options;
  const server = createServer({
    ...(host !== undefined && { host }),
    ...(port !== undefined && { port }),
    keys,
    ...(cors && { cors }),
    ...(requestsPerMinute !== undefined && {
      limits: { requestsPerMinute, requestsPerMinutePerAddress: requestsPerMinute },
    }),
    ...(sendTimeoutMs !== undefined && { timeouts: { sendMs: sendTimeoutMs } }),
    memory,
    streams: streamLimit({ max: maxOpenStreams, keys }),
    log,
    metrics,
    routes: [
      ...responsesRoutes({ ...common, responses: service, requiresAction }),
      ...completionRoutes({ ...common, completions: completing }),
      ...conversationsRoutes({ conversations: chats, maxBodyBytes, heartbeatMs, stopping: stopping.signal }),
      ...itemRoutes({ items, conversations: chats, maxBodyBytes }),
      ...runsRoutes({ runs: allRuns, maxBodyBytes, heartbeatMs, stopping: stopping.signal }),
      ...serverRoutes({ offer: () => current, reserve: engine.runs.reserve, maxBodyBytes }),
      ...mcpRoutes({ open: async () => (await openMcp()).endpoint, maxBodyBytes }),
      metricsRoute(registry),
    ],
    describe: apiDescriber(keys),
    ready: () => checkWritable(store),
    durable: store.durable,
    drain: () => engine.runs.detachAll(),
  });

  function startBackgroundTasks(): () => void {
    const stopWatching = metrics.watchEventLoop();
    const stopPruning = pruneResponses(store, retentionMs, log, async () => {
      await kept.killAbandoned();
      await cancelAbandonedCalls(store, stored);
    });
    // Resumes the responses of other processes with the same store that have died, and those that are due.
    const stopRecovering = stored.keepRecovering();
    return () => {
      stopWatching();
      stopPruning();
      stopRecovering();
    };
  }

  let listening: ReturnType<TreadleServer['listen']> | undefined;
  let isClosed = false;
  let stopBackgroundTasks = (): void => {};
  let stopWebhooks = async (): Promise<void> => {};
  let stopInbox = (): void => {};

  async function startListening(): ReturnType<TreadleServer['listen']> {
    const address = await server.listen();
    // Before any run is resumed, so that all of them are reported.
    if (options.webhooks && !isClosed) stopWebhooks = sendWebhooks(options.webhooks, { store, log });
    if (!isClosed) stopInbox = serveInbox(engine, allRuns.performHere);
    try {
      await kept.killAbandoned();
      const recovered = await stored.recover();
      log.info({ recovered }, RECOVERED);
      if (!isClosed) stopBackgroundTasks = startBackgroundTasks();
      return { ...address, recovered };
    } catch (error) {
      stopInbox();
      await stopWebhooks();
      await server.close(0);
      throw error;
    }
  }

  return {
    listen: () => (listening ??= startListening()),
    replaceKeys: keys.replace,
    replace(given) {
      const next = { ...options, ...NOTHING_REPLACED, ...replaceable(given) };
      checkServerOptions(next);
      const replaced = engineSettings(next, log);
      keys.replace(given.keys ?? []);
      // From here on nothing fails.
      for (const name of Object.keys(settings)) Reflect.deleteProperty(engine, name);
      Object.assign(engine, replaced);
      [settings, current] = [replaced, next];
      parseOptions.labels = defaultLabels(next);
    },
    close(graceMs) {
      isClosed = true;
      stopBackgroundTasks();
      stopping.abort();
      return server.close(graceMs).finally(async () => {
        stopInbox();
        await kept.close();
        await stopWebhooks();
      });
    },
  };
}

/** As much as a response of ordinary size: when a disk is full, there may still be space for a few bytes. */
const WRITE_CHECK_CHARS = 65_536;

/** Writes to the store and deletes it again: a store on a full or read-only disk can still be read. */
async function checkWritable({ requests: stored }: ServerStore): Promise<void> {
  // A new id each time, because several servers may check the store at the same time. No route returns it.
  const id = `readyz_${randomUUID()}`;
  const now = Date.now();
  const times = { createdAt: now, updatedAt: now };
  await stored.create({
    id,
    kind: 'probe' satisfies RequestKind,
    tenant: id,
    runId: id,
    status: 'completed',
    ...times,
    request: ' '.repeat(WRITE_CHECK_CHARS),
  });
  await stored.delete(id, id);
}

function metricsRoute(registry: Metrics): Route {
  return route({
    method: 'GET',
    path: '/metrics',
    scope: 'metrics:read',
    summary: 'Metrics for Prometheus',
    answers: [CONTENT_TYPE],
    handle: (c) => c.body(registry.text(), 200, { 'content-type': CONTENT_TYPE }),
  });
}

/** Describes the API when somebody asks for it, and again only if keys are required since. */
function apiDescriber(keys: Keys): (routes: readonly Route[]) => Promise<Buffer> {
  const made = new Map<boolean, Promise<Buffer>>();
  return (routes) => {
    const hasKeys = keys.areRequired;
    const document =
      made.get(hasKeys) ??
      import('./openapi/document.ts').then(async (openapi) =>
        Buffer.from(JSON.stringify(await openapi.openApiDocument(routes, { hasKeys }))),
      );
    made.set(hasKeys, document);
    return document;
  };
}

const HOUR_MS = 3_600_000;

/**
 * Calls `first`, and deletes expired keys and responses, and responses and streams that were not updated for `retentionMs` unless it is 0; now and every hour.
 * Returns a function that stops it.
 */
function pruneResponses(
  { requests: records, conversations, streams }: ServerStore,
  retentionMs: number,
  log: Logger,
  first: () => Promise<void>,
): () => void {
  async function prune(): Promise<void> {
    const now = Date.now();
    await first();
    let deleted = await records.pruneExpired(now);
    // Without retention, it completes deletions that were interrupted.
    await conversations.prune(retentionMs > 0 ? now - retentionMs : -Infinity);
    if (retentionMs > 0) {
      deleted += await records.prune(now - retentionMs);
      await streams.prune(now - retentionMs);
    }
    if (deleted > 0) log.info({ deleted }, 'old responses deleted');
  }
  const pruneAndLog = (): void =>
    void prune().catch((error: unknown) => log.error({ err: error }, 'old responses could not be deleted'));
  pruneAndLog();
  const timer = setInterval(pruneAndLog, HOUR_MS).unref();
  return () => clearInterval(timer);
}

/** A call over MCP is cancelled if its client has not answered a question or an approval for this time. */
const ABANDONED_MS = 24 * HOUR_MS;

async function cancelAbandonedCalls({ requests: records, list }: ServerStore, stored: Requests): Promise<void> {
  const before = Date.now() - ABANDONED_MS;
  for (const record of await records.unfinished()) {
    if (record.kind !== ('mcp-call' satisfies RequestKind)) continue;
    const [run] = await list({ runId: record.runId, limit: 1 });
    if (run?.status !== 'paused' || run.updatedAt >= before) continue;
    await stored.resume(record, { cancel: true }).catch((error: unknown) => {
      if (!isDrivenElsewhere(error)) throw error;
    });
  }
}

/** The minimum of each numeric option. */
const MINIMUMS = {
  requestsPerMinute: 1,
  maxConcurrentRuns: 1,
  maxConcurrentRunsPerTenant: 1,
  maxOpenStreams: 1,
  maxTurns: 1,
  maxDurationMs: 1,
  toolTimeoutMs: 1,
  errorLimit: 0,
  holdIdleMs: 0,
  maxCallsPerTurn: 1,
  crashLimit: 0,
  repeatLimit: 0,
  maxResultChars: 1,
  heartbeatMs: 1,
  sendTimeoutMs: 1,
  maxBodyBytes: 1,
  maxBytesInProgress: 1,
  retentionMs: 0,
} as const satisfies Partial<Record<keyof TreadleServerOptions, number>>;

const NAMES: OptionNames<TreadleServerOptions> = {
  models: '',
  store: '',
  tools: 'array',
  executors: 'array',
  defaultTools: 'array',
  instructions: '',
  mcpServers: 'object',
  policy: '.judge',
  askingPolicy: '.judge',
  ledger: 'function',
  agents: 'array',
  guardrails: 'object',
  verifyAnswer: 'function',
  audit: '.rejectedAnswer',
  resultFilters: 'array',
  exposes: 'function',
  summariser: '.reply',
  holdIdleMs: '',
  maxCallsPerTurn: '',
  crashLimit: '',
  repeatLimit: '',
  maxResultChars: '',
  narrow: '',
  testModel: 'function',
  waitForAnswers: 'boolean',
  chatTitles: 'boolean',
  mcp: 'object',
  webhooks: 'object',
  host: 'string',
  port: '',
  keys: 'array',
  corsOrigins: 'array',
  requestsPerMinute: '',
  maxConcurrentRuns: '',
  maxConcurrentRunsPerTenant: '',
  maxOpenStreams: '',
  requiresAction: 'boolean',
  maxTurns: '',
  maxDurationMs: '',
  toolTimeoutMs: '',
  errorLimit: '',
  heartbeatMs: '',
  sendTimeoutMs: '',
  maxBodyBytes: '',
  maxBytesInProgress: '',
  retentionMs: '',
  log: '.info',
  metrics: 'object',
};

/** Names that users of the library expect, with the names here. */
const ELSEWHERE = { model: 'models', journal: 'store' };

function checkServerOptions(options: TreadleServerOptions): void {
  checkOptions('treadleServer', options, { names: NAMES, elsewhere: ELSEWHERE });
  const { models, store, tools = [], defaultTools = [] } = options;
  if (!(models?.models instanceof Map)) {
    throw invalidOption("There are no models. Pass { default: 'main', models: new Map([['main', model]]) } as models.");
  }
  if (typeof store?.requests !== 'object') throw invalidOption('There is no store. Pass sqliteStore(path) as store.');
  if (!models.models.get(models.default)) {
    const known = [...models.models.keys()].join(', ');
    throw invalidOption(`The default model "${models.default}" is not one of the models: ${known}.`);
  }
  for (const [name, minimum] of Object.entries(MINIMUMS)) {
    const value = options[name as keyof typeof MINIMUMS];
    if (value === undefined || (Number.isSafeInteger(value) && value >= minimum)) continue;
    throw invalidOption(`${name} must be a whole number of at least ${minimum}, not ${String(value)}.`);
  }
  const names = new Set(tools.map(({ name }) => name));
  for (const { name, execute } of tools) {
    if (execute) continue;
    throw new TreadleError('invalid-tool', `Tool "${name}" has no execute function, so the server cannot run it.`);
  }
  if (names.size < tools.length) {
    throw new TreadleError('duplicate-tool', 'Two of the tools have the same name. Rename one.');
  }
  checkServers(options.mcpServers ?? {});
  for (const name of defaultTools) {
    if (names.has(name)) continue;
    const known = [...names].join(', ') || 'none';
    throw invalidOption(`defaultTools contains "${name}", which is not one of the tools: ${known}.`);
  }
  if (options.mcp?.agents) checkMcpNames(tools, options.mcp.agents);
  checkInstructions(options);
}

function checkInstructions({ instructions = {}, models: { models } }: TreadleServerOptions): void {
  if (typeof instructions === 'string') return;
  for (const [name, text] of Object.entries(instructions)) {
    if (name !== '*' && !models.has(name)) {
      const known = [...models.keys()].join(', ');
      throw invalidOption(
        `instructions names "${name}", which is not one of the models: ${known}. "*" is for the others.`,
      );
    }
    if (typeof text !== 'string') throw invalidOption(`The instructions for "${name}" are not a text.`);
  }
}

function instructionsBy(
  given: NonNullable<TreadleServerOptions['instructions']>,
): (model: string) => string | undefined {
  const texts = new Map(Object.entries(typeof given === 'string' ? { '*': given } : given));
  return (model) => texts.get(model) ?? texts.get('*');
}

function checkServers({ servers = [], defaults = [] }: McpServersOptions): void {
  const labels = new Set(servers.map(({ name }) => name));
  if (labels.has(OWN_LABEL)) throw invalidOption(`No MCP server may have the name "${OWN_LABEL}". Rename it.`);
  if (labels.size < servers.length) throw invalidOption('Two of the MCP servers have the same name. Rename one.');
  const unknown = defaults.find((label) => !labels.has(label));
  if (unknown === undefined) return;
  throw invalidOption(`mcpServers.defaults contains "${unknown}", which is not one of the MCP servers.`);
}

function invalidOption(message: string): TreadleError {
  return new TreadleError('invalid-options', message);
}

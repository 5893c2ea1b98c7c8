import { randomUUID } from 'node:crypto';
import { waiting, walkInSlices, type Model, type Tool } from '@treadle/core';
import { churnMap } from '@treadle/core/churn';
import { resourceKeeper } from '@treadle/store';
import type { AgentRegistry } from '@treadle/core/named-agents';
import type { CallableAgents } from '@treadle/tools';
import type { Logger } from 'pino';
import { invocations } from './apis/agents/invocations.ts';
import { workflowRoutes } from './apis/workflows/routes.ts';
import { undoing } from './apis/workflows/undoing.ts';
import { scheduleRoutes } from './apis/schedules/routes.ts';
import { triggerRoutes } from './apis/schedules/trigger-routes.ts';
import { agentRoutes, agentsOf, type AgentWriter } from './apis/agents/routes.ts';
import { completions } from './apis/completions/completions.ts';
import { completionRoutes } from './apis/completions/routes.ts';
import { conversations } from './apis/chat/conversations.ts';
import { titleWriter } from './apis/chat/titles.ts';
import { conversationItems } from './apis/chat/conversation-items.ts';
import { itemRoutes } from './apis/chat/item-routes.ts';
import { conversationsRoutes } from './apis/chat/routes.ts';
import { callableAgents } from './engine/agent-plan.ts';
import { activeRuns, type Engine, type ServedAgents, type ServerStore } from './engine/engine.ts';
import { OWN_LABEL, registeredTools } from './engine/executors.ts';
import { KEY_MS } from './requests/idempotency.ts';
import { mcpExecutor } from './engine/mcp-servers.ts';
import { isDrivenElsewhere } from './requests/interruption.ts';
import { everyRunOptions, newRunOptions } from './engine/loop-options.ts';
import { readEntries } from './engine/stored-reads.ts';
import { RECOVERED } from './requests/recovery.ts';
import { onlyParked } from './requests/run.ts';
import { requests, type RequestKind, type Requests } from './requests/requests.ts';
import { checkWebhooks, handleNotices, webhookSender } from './engine/webhooks.ts';
import { memoryLimit, streamLimit } from './http/limits.ts';
import { serverKeys, type ApiKey, type Keys } from './http/keys.ts';
import { newLog } from './http/log.ts';
import { newMetrics, serverMetrics } from './http/metrics.ts';
import type { Route } from './http/routes.ts';
import { createServer, type Listening } from './http/server.ts';
import type { OpenedMcp } from './apis/mcp/endpoint.ts';
import type { McpOptions } from './apis/mcp/options.ts';
import { mcpRoutes } from './apis/mcp/routes.ts';
import { deviceCalls } from './apis/devices/calls.ts';
import { devicesRoutes, wakeForDevices } from './apis/devices/routes.ts';
import { logRoutes } from './apis/logs/routes.ts';
import { memoryRoutes } from './apis/memory/routes.ts';
import { messages } from './apis/messages/messages.ts';
import { metricsRoutes, runCounter } from './apis/metrics/routes.ts';
import { messagesRoutes } from './apis/messages/routes.ts';
import { responses } from './apis/responses/responses.ts';
import { runStarter } from './apis/responses/start-run.ts';
import { responsesRoutes } from './apis/responses/routes.ts';
import { serveInbox } from './apis/runs/inbox.ts';
import { runsRoutes } from './apis/runs/routes.ts';
import { runs } from './apis/runs/runs.ts';
import {
  checkServerOptions,
  NOTHING_REPLACED,
  replaceable,
  type ReplaceableOptions,
  type TreadleServerOptions,
} from './server-options.ts';
import { checkedSchedules } from './schedules/definition.ts';
import { scheduler, type ConfiguredSchedule } from './schedules/scheduler.ts';
import { starterCaller } from './schedules/starter.ts';
import { eventTriggers } from './schedules/triggers.ts';
import { serverRoutes } from './server-routes.ts';

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
   * that begin or are resumed later have the new ones. Of `mcp`, only `policy` and `register` change. Throws if they are not valid; then
   * nothing has changed.
   */
  replace(options: ReplaceableOptions): void;
  /**
   * Accepts no more requests, waits up to `graceMs` (default 10 s) for those in progress, and detaches the remaining runs,
   * which are resumed at the next start.
   */
  close(graceMs?: number): Promise<void>;
}

/** What of the engine follows from them. */
type EngineSettings = Pick<
  Engine,
  | 'models'
  | 'serverTools'
  | 'limits'
  | 'instructionsFor'
  | 'policy'
  | 'askingPolicy'
  | 'skills'
  | 'ledgerFor'
  | 'agents'
  | 'namedAgents'
  | 'everyRun'
  | 'newRun'
  | 'waits'
  | 'recordsUnstored'
>;

function engineSettings(options: ReplaceableOptions, log: Logger): EngineSettings {
  const { models, tools = [], otherVersions = [], executors = [], defaultTools = [] } = options;
  const { mcpServers: configured = {} } = options;
  const { policy, toolTimeoutMs = 60_000 } = options;
  return {
    models,
    serverTools: {
      executors: [registeredTools(tools), ...executors, mcpExecutor(configured, { policy, toolTimeoutMs, log })],
      defaultTools,
      versions: [...tools, ...otherVersions],
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
    namedAgents: servedAgents(options),
    everyRun: everyRunOptions(options),
    newRun: newRunOptions(options),
    ...(options.askingPolicy && { askingPolicy: options.askingPolicy }),
    ...(options.skills && { skills: options.skills }),
    waits: options.waitForAnswers ?? false,
    recordsUnstored: options.recordUnstored ?? false,
  };
}

function instructionsBy(
  given: NonNullable<TreadleServerOptions['instructions']>,
): NonNullable<Engine['instructionsFor']> {
  const texts = new Map(Object.entries(typeof given === 'string' ? { '*': given } : given));
  return (names) => texts.get([...names, '*'].find((name) => texts.has(name)) ?? '');
}

/** Those that the server was started with, and what of the current ones replaces them. */
function mcpOptions({ policy: _, register: __, ...started }: McpOptions = {}, current: McpOptions = {}): McpOptions {
  const { policy, register } = current;
  return { ...started, ...(policy && { policy }), ...(register && { register }) };
}

/** Without agents, runs of agents that were removed still go on. */
const NO_AGENTS: AgentRegistry = { list: () => [], get: () => undefined, onChange: () => () => {} };

/** The default number of turns of a response does not apply to agents, which have their own. */
function servedAgents(options: ReplaceableOptions): ServedAgents {
  const { namedAgents: registry = NO_AGENTS } = options;
  const { tools = [], maxTurns, maxCallsPerTurn, errorLimit, repeatLimit, toolTimeoutMs, agentSettings } = options;
  const { maxDurationMs: durationMs = 600_000 } = options;
  return {
    registry,
    tools,
    bounds: {
      ...(maxTurns !== undefined && { maxTurns }),
      ...(maxCallsPerTurn !== undefined && { maxCallsPerTurn }),
      ...(errorLimit !== undefined && { errorLimit }),
      ...(repeatLimit !== undefined && { repeatLimit }),
      ...(toolTimeoutMs !== undefined && { toolTimeoutMs }),
      limits: { durationMs },
    },
    ...(agentSettings?.maxDepth !== undefined && { maxDepth: agentSettings.maxDepth }),
    ...(agentSettings?.injection !== undefined && { injection: agentSettings.injection }),
  };
}

/**
 * The agents of a server for `taskTool` and `agentsListTool`: those that the caller of a run may invoke, under its scopes. `options` are
 * those of the server, which are read with each call, because they contain the tools.
 */
export function serverAgents(
  options: () => ReplaceableOptions & Pick<TreadleServerOptions, 'memory'>,
  models: readonly Model[] = [],
): CallableAgents {
  return callableAgents(() => {
    const { models: served, policy, skills, memory } = options();
    const given = { ...(policy && { policy }), ...(skills && { skills }), ...(memory && { memory }) };
    return { models: served, namedAgents: servedAgents(options()), ...given };
  }, models);
}

const NO_TOOLS: readonly Tool[] = [];

function configuredSchedules({ schedules = [] }: ReplaceableOptions): ReadonlyMap<string, ConfiguredSchedule> {
  const keys = new Map(schedules.map(({ name, key = '' }) => [name, key]));
  return new Map(
    Array.from(checkedSchedules(schedules), ([name, definition]) => [name, { ...definition, key: keys.get(name)! }]),
  );
}

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
    async stopRun(runId, { tenant, subject, scopes }) {
      await storedRuns.cancel(runId, { tenant, key: subject, scopes });
    },
    driven: churnMap(),
    runs: activeRuns({
      max: maxConcurrentRuns,
      ...(maxPerTenant !== undefined && { maxPerTenant }),
      keys,
      memory,
    }),
    log,
    metrics,
    ...(options.memory && { memory: options.memory }),
  };
  metrics.addGauges({
    runsInProgress: () => engine.runs.reserved,
    maxRuns: maxConcurrentRuns,
    bytesInProgress: () => memory.used,
    maxBytes,
  });
  store.onCommit?.(metrics.storeCommitted);
  const counter = runCounter(engine);
  options.memory?.attach({
    keep: counter.count,
    onProblem: (error) => log.warn({ err: error }, 'the model for embeddings failed'),
  });
  // A response is stored at least as long as its key.
  const stored = requests(engine, retentionMs > 0 ? Math.min(KEY_MS, retentionMs) : KEY_MS);
  const stopping = new AbortController();
  const service = responses(engine, stored, stopping.signal);
  const startRun = runStarter(engine, service);
  const completing = completions(engine, stored);
  const messaging = messages(engine, stored);
  const invoking = invocations({ engine, stored });
  const storedRuns = runs(engine, stored);
  const undo = undoing({ runs: storedRuns, store, invocations: invoking, log });
  const allRuns = undo.runs;
  const chats = conversations({
    engine,
    stored,
    runs: allRuns,
    histories: service.histories,
    onResponseDeleted: service.forget,
    stopping: stopping.signal,
    ...((options.chatTitles ?? true) && { onUntitled: titleWriter(engine, stopping.signal) }),
  });
  const scheduling = scheduler({ engine, invocations: invoking, keys });
  scheduling.configure(configuredSchedules(options));
  const triggering = eventTriggers({
    engine,
    invocations: invoking,
    whenEnded: stored.whenEnded,
    callerOf: ({ name, key }) => starterCaller(keys, { log, kind: 'trigger', name, key }),
  });
  triggering.configure(options.triggers ?? []);
  const noticing = handleNotices({ store, log });
  const { webhooks } = options;
  const sending = new AbortController();
  const sender = webhooks && webhookSender(webhooks, { store, signal: sending.signal });
  const stopNoticing = (): Promise<void> => {
    sending.abort();
    return noticing.stop();
  };
  const watchRuns = (): void =>
    noticing.setHandlers([sender, undo.handler, triggering.handler()].filter((one) => one !== undefined));
  const writer = (): AgentWriter | undefined => {
    const { namedAgents, agentSettings } = current;
    if (!agentSettings?.writable || !namedAgents?.write || !namedAgents.remove) return undefined;
    return { write: (agent) => namedAgents.write!(agent), remove: (name) => namedAgents.remove!(name) };
  };
  const callingDevices = deviceCalls(engine, stored);
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
        options: () => mcpOptions(options.mcp, current.mcp),
        heartbeatMs,
        stopping: stopping.signal,
        ...(retentionMs > 0 && { keptMs: retentionMs }),
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
    quotas: store.quotas,
    memory,
    streams: streamLimit({ max: maxOpenStreams, keys }),
    log,
    metrics,
    routes: [
      ...responsesRoutes({ ...common, responses: service, requiresAction }),
      ...completionRoutes({ ...common, completions: completing }),
      ...messagesRoutes({ messages: messaging, maxBodyBytes, heartbeatMs }),
      ...conversationsRoutes({ conversations: chats, maxBodyBytes, heartbeatMs, stopping: stopping.signal }),
      ...itemRoutes({ items, conversations: chats, maxBodyBytes }),
      ...runsRoutes({ runs: allRuns, maxBodyBytes, heartbeatMs, stopping: stopping.signal }),
      ...agentRoutes({ engine, invocations: invoking, writer, maxBodyBytes, heartbeatMs }),
      ...workflowRoutes({ engine, invocations: invoking, runs: allRuns, maxBodyBytes, heartbeatMs }),
      ...triggerRoutes({ triggers: triggering, maxBodyBytes }),
      ...scheduleRoutes({ engine, scheduler: scheduling, invocations: invoking, maxBodyBytes }),
      ...serverRoutes({
        offer: () => current,
        agents: (caller) => agentsOf(engine, caller),
        hasMemory: engine.memory !== undefined,
        reserve: engine.runs.reserve,
        maxBodyBytes,
      }),
      ...devicesRoutes({ devices: options.devices, calls: callingDevices, maxBodyBytes }),
      ...mcpRoutes({ open: async () => (await openMcp()).endpoint, maxBodyBytes }),
      ...memoryRoutes({ engine, maxBodyBytes }),
      ...logRoutes(options.keptLog),
      ...metricsRoutes({
        registry,
        counter,
        ready: () =>
          checkWritable(store).then(
            () => true,
            () => false,
          ),
        offer: () => ({
          models: [...current.models.models.keys()],
          tools: (current.tools ?? NO_TOOLS).map(({ name }) => name),
        }),
        runs: () => ({ runs_in_progress: engine.runs.reserved, max_runs: maxConcurrentRuns }),
      }),
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
    const stopCounting = counter.start();
    const stopWaking =
      options.devices &&
      wakeForDevices(options.devices, (name) => {
        stored.wakeParked(`device:${name}`).catch((error: unknown) => {
          log.error({ err: error, device: name }, 'the runs that wait for a device could not be resumed');
        });
      });
    return () => {
      stopWaking?.();
      stopWatching();
      stopPruning();
      stopCounting();
      stopRecovering();
    };
  }

  let listening: ReturnType<TreadleServer['listen']> | undefined;
  let isClosed = false;
  let stopBackgroundTasks = (): void => {};
  let stopInbox = (): void => {};

  async function startListening(): ReturnType<TreadleServer['listen']> {
    const address = await server.listen();
    // Before any run is resumed, so that all of them are reported.
    if (!isClosed) watchRuns();
    if (!isClosed) stopInbox = serveInbox(engine, allRuns.performHere);
    try {
      await kept.killAbandoned();
      const recovered = await stored.recover();
      log.info({ recovered }, RECOVERED);
      if (!isClosed) stopBackgroundTasks = startBackgroundTasks();
      if (!isClosed) await scheduling.start();
      if (!isClosed) await triggering.start();
      return { ...address, recovered };
    } catch (error) {
      await Promise.all([scheduling.stop(), triggering.stop()]);
      stopInbox();
      await stopNoticing();
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
      scheduling.configure(configuredSchedules(next));
      triggering.configure(next.triggers ?? []);
      if (listening && !isClosed) watchRuns();
      parseOptions.labels = defaultLabels(next);
    },
    close(graceMs) {
      isClosed = true;
      stopBackgroundTasks();
      stopping.abort();
      const stopped = Promise.all([scheduling.stop(), triggering.stop()]);
      return server.close(graceMs).finally(async () => {
        await stopped;
        stopInbox();
        await kept.close();
        await stopNoticing();
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

async function cancelAbandonedCalls(store: ServerStore, stored: Requests): Promise<void> {
  const before = Date.now() - ABANDONED_MS;
  for (const record of await store.requests.unfinished()) {
    if (record.kind !== ('mcp-call' satisfies RequestKind)) continue;
    const [run] = await store.list({ runId: record.runId, limit: 1 });
    if (run?.status !== 'paused' || run.updatedAt >= before) continue;
    const { state } = await walkInSlices(await readEntries(store, record.runId, record));
    // A parked call waits for something else, as long as that takes.
    if (onlyParked(waiting(state))) continue;
    await stored.resume(record, { cancel: true }).catch((error: unknown) => {
      if (!isDrivenElsewhere(error)) throw error;
    });
  }
}

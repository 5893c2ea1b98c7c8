import {
  CLIENT_CAPABILITIES_META_KEY,
  isInputRequiredResult,
  McpServer,
  ProtocolError,
  ProtocolErrorCode,
  ResourceNotFoundError,
  ResourceTemplate,
  type CallToolResult,
  type ClientCapabilities,
  type InputRequiredResult,
  type ListResourcesResult,
  type McpRequestContext,
  type ReadResourceResult,
  type Resource,
  type ServerContext,
  type Tool as ListedTool,
} from '@modelcontextprotocol/server';
import { ApiError, toApiError } from '../../api-error.ts';
import type { Engine } from '../../engine/engine.ts';
import type { Caller } from '../../http/admission.ts';
import { traceIn } from '../../http/run-facts.ts';
import { cursorOf, positionOf, wireDetails } from '../runs/routes.ts';
import type { Runs } from '../runs/runs.ts';
import type { Callable } from './callables.ts';
import type { McpCalls } from './calls.ts';
import type { CallEvent } from './projection.ts';
import type { McpOptions } from './options.ts';
import { isRepeated } from './session-transport.ts';
import { callAsTask, hasTasks, LEGACY_TASKS, serveTasks, TASKS, type TaskMethods } from './task-methods.ts';
import type { CallTasks, TaskState } from './tasks.ts';

/** What the protocol is served with. */
export interface McpService {
  readonly calls: McpCalls;
  readonly tasks: CallTasks;
  readonly runs: Runs;
  readonly watch: Engine['store']['watch'];
  readonly options: McpOptions;
}

export type McpEra = McpRequestContext['era'];

const RUNS = 'treadle://runs/';
const RUNS_TEMPLATE = `${RUNS}{id}`;
/** Runs in one page of the resources. */
const PAGE = 50;
/** Runs that one session can subscribe to. */
const MOST_WATCHED = 1_000;
/** A client is told that a run has changed at most so often. */
const UPDATE_MS = 250;
/** How often a client of an older revision can be asked during one call. */
const MOST_ROUNDS = 100;

/** A server for one client: for one request, or for the connection of a client of an older revision. */
export function mcpServerFor(service: McpService, creator: Caller, era: McpEra): McpServer {
  const { calls, tasks, runs, options, watch } = service;
  const { name = 'treadle', version = '0.0.0', instructions, register } = options;
  const mayRegister = register !== undefined && creator.scopes.includes('agents:invoke');
  const mayRead = creator.scopes.includes('runs:read');
  const hasResources = mayRegister || mayRead;
  const isLegacy = era === 'legacy';
  const mcp = new McpServer(
    { name, version },
    {
      capabilities: {
        tools: { listChanged: false },
        logging: {},
        ...(isLegacy ? { tasks: LEGACY_TASKS } : { extensions: { [TASKS]: {} } }),
        ...(mayRegister && { prompts: { listChanged: false }, completions: {} }),
        // In the revision 2026-07-28 there are only streams for all clients, which must not tell of the runs of a tenant.
        ...(hasResources && { resources: { listChanged: false, ...(isLegacy && { subscribe: true }) } }),
      },
      ...(instructions !== undefined && { instructions }),
      inputRequired: { maxRounds: MOST_ROUNDS },
    },
  );
  const { server } = mcp;
  /** Keys can change while a session lasts, so each request has the caller of its own. */
  const callerOf = ({ http }: ServerContext): Caller =>
    (http?.authInfo?.extra?.['caller'] as Caller | undefined) ?? creator;

  // By this, the SDK checks the headers that repeat arguments (`x-mcp-header`).
  mcp.toolInputSchemaJson = (tool) => calls.offered(creator).find((one) => one.name === tool)?.tool.parameters;
  server.setRequestHandler('tools/list', (_, ctx) => ({
    tools: calls.offered(callerOf(ctx)).map((one) => listedTool(one, isLegacy)),
  }));

  /** A client of an older revision is asked during its request: the call is continued with the progress that it had. */
  const sent = new WeakMap<AbortSignal, SentProgress>();
  const progressOf = (signal: AbortSignal): SentProgress => {
    const progress = sent.get(signal) ?? { last: -1, at: 0, logs: 0 };
    sent.set(signal, progress);
    return progress;
  };

  const handle: TaskMethods['handle'] = (ctx, work) => translateErrors(callerOf(ctx), () => work(callerOf(ctx)));
  server.setRequestHandler('tools/call', ({ params }, ctx) =>
    handle(ctx, async (from) => {
      const { mcpReq } = ctx;
      const caller = tracedCaller(from, mcpReq._meta?.['traceparent']);
      const capabilities = capabilitiesOf(mcp, ctx);
      const request = {
        name: params.name,
        arguments: params.arguments ?? {},
        state: mcpReq.requestState<string>(),
        responses: mcpReq.inputResponses,
        capabilities,
        signal: mcpReq.signal,
        emit: progressSender(ctx, progressOf(mcpReq.signal)),
      };
      const becomes = isLegacy ? isAugmented(params) && 'now' : hasTasks(capabilities) && 'later';
      if (becomes) {
        const get = (id: string): Promise<TaskState> => tasks.get(id, caller, capabilities);
        return callAsTask({ calls, request, caller, becomes, get });
      }
      const result = (await calls.call(request, caller)) as CallToolResult | InputRequiredResult;
      // A client of an older revision is asked while its request is open. If it is cancelled then, nobody answers.
      if (isLegacy && isInputRequiredResult(result) && result.requestState !== undefined) {
        const { requestState } = result;
        mcpReq.signal.addEventListener('abort', () => void calls.cancel(requestState, caller), { once: true });
      }
      return result;
    }),
  );

  serveTasks({ mcp, isLegacy, tasks, capabilitiesOf: (ctx) => capabilitiesOf(mcp, ctx), handle });
  if (hasResources) serveResources();
  if (mayRegister) serveCompletions();
  return mcp;

  function serveResources(): void {
    const listed: Resource[] = [];
    const templates: ResourceTemplate[] = [];
    if (mayRegister) {
      const registerResource = ((...given: Parameters<McpServer['registerResource']>) => {
        const [resourceName, uri, metadata] = given;
        if (typeof uri === 'string') listed.push({ ...metadata, uri, name: resourceName });
        else templates.push(uri);
        return mcp.registerResource(...given);
      }) as McpServer['registerResource'];
      let hasPrompts = false;
      const registerPrompt = ((...given: Parameters<McpServer['registerPrompt']>) => {
        hasPrompts = true;
        return mcp.registerPrompt(...given);
      }) as McpServer['registerPrompt'];
      register!({ registerResource, registerPrompt });
      // There may be some later, or have been some before.
      if (!hasPrompts) server.setRequestHandler('prompts/list', () => ({ prompts: [] }));
    }
    if (mayRead) {
      mcp.registerResource(
        'runs',
        new ResourceTemplate(RUNS_TEMPLATE, { list: undefined }),
        { title: 'Runs', description: 'The state of a run of this server', mimeType: 'application/json' },
        (uri, { id }, ctx) => translateErrors(callerOf(ctx), () => readRun(uri, String(id), callerOf(ctx))),
      );
    }
    // Replaces the handler of the SDK, which has no pages.
    server.setRequestHandler('resources/list', ({ params }, ctx) =>
      translateErrors(callerOf(ctx), async (): Promise<ListResourcesResult> => {
        const cursor = params?.cursor;
        const own: Resource[] = cursor === undefined ? [...listed] : [];
        if (cursor === undefined) {
          for (const { listCallback } of templates) own.push(...((await listCallback?.(ctx))?.resources ?? []));
        }
        if (!callerOf(ctx).scopes.includes('runs:read')) return { resources: own };
        const after = cursor === undefined ? {} : { after: positionOf(cursor) };
        const found = await runs.list({ ...after, limit: PAGE + 1 }, callerOf(ctx));
        const page = found.slice(0, PAGE);
        return {
          resources: [...own, ...page.map((run) => runResource(run.runId, run.title))],
          ...(found.length > PAGE && { nextCursor: cursorOf(page.at(-1)!) }),
        };
      }),
    );
    if (isLegacy) serveSubscriptions();
  }

  async function readRun(uri: URL, id: string, caller: Caller): Promise<ReadResourceResult> {
    if (!caller.scopes.includes('runs:read')) throw new ResourceNotFoundError(uri.href);
    try {
      const text = JSON.stringify(wireDetails(await runs.retrieve(id, caller)), null, 2);
      return { contents: [{ uri: uri.href, mimeType: 'application/json', text }] };
    } catch (error) {
      throw error instanceof ApiError && error.status === 404 ? new ResourceNotFoundError(uri.href) : error;
    }
  }

  function serveSubscriptions(): void {
    const watched = new Map<string, () => void>();
    let isClosed = false;
    server.setRequestHandler('resources/subscribe', ({ params: { uri } }, ctx) =>
      translateErrors(callerOf(ctx), async () => {
        // Registered resources do not change.
        if (!uri.startsWith(RUNS)) return {};
        const id = runIdIn(uri);
        if (id === undefined) throw new ResourceNotFoundError(uri);
        // The client may unsubscribe while the run is read.
        const begun = watched.has(uri) ? undefined : beginToWatch(uri);
        try {
          await readRun(new URL(uri), id, callerOf(ctx));
        } catch (error) {
          if (begun && watched.get(uri) === begun) watched.delete(uri);
          throw error;
        }
        if (!begun || isClosed || watched.get(uri) !== begun) return {};
        let timer: NodeJS.Timeout | undefined;
        const update = (): void => {
          timer ??= setTimeout(() => {
            timer = undefined;
            void server.sendResourceUpdated({ uri }).catch(() => {});
          }, UPDATE_MS).unref();
        };
        const stopWatching = watch(id, update);
        watched.set(uri, () => {
          clearTimeout(timer);
          stopWatching();
        });
        // It may have changed since the client has subscribed.
        if (isRepeated(ctx.mcpReq)) update();
        return {};
      }),
    );
    function beginToWatch(uri: string): () => void {
      if (watched.size >= MOST_WATCHED) {
        const message = `You have subscribed to ${watched.size} runs, which is the limit of a session.`;
        throw new ProtocolError(ProtocolErrorCode.InvalidParams, message);
      }
      const begun = (): void => {};
      watched.set(uri, begun);
      return begun;
    }
    server.setRequestHandler('resources/unsubscribe', ({ params: { uri } }) => {
      watched.get(uri)?.();
      watched.delete(uri);
      return {};
    });
    const { onclose } = server;
    // The SDK has no other way.
    // oxlint-disable-next-line unicorn/prefer-add-event-listener
    server.onclose = () => {
      isClosed = true;
      for (const stop of watched.values()) stop();
      watched.clear();
      onclose?.();
    };
  }

  /** The SDK answers completions only if an argument can be completed. */
  function serveCompletions(): void {
    try {
      server.assertCanSetRequestHandler('completion/complete');
    } catch {
      return;
    }
    server.setRequestHandler('completion/complete', () => ({ completion: { values: [], hasMore: false } }));
  }
}

function uriOf(runId: string): string {
  return RUNS + encodeURIComponent(runId);
}

/** The run of an address as the server writes it. Undefined for other forms of it, which would be other addresses. */
function runIdIn(uri: string): string | undefined {
  try {
    const id = decodeURIComponent(uri.slice(RUNS.length));
    return uriOf(id) === uri ? id : undefined;
  } catch {
    return undefined;
  }
}

function runResource(runId: string, title: string): Resource {
  return {
    uri: uriOf(runId),
    name: runId,
    ...(title !== '' && { title }),
    mimeType: 'application/json',
  };
}

/** A tool for `tools/list`. The order is that of the program. */
function listedTool({ tool, outputSchema, type }: Callable, isLegacy: boolean): ListedTool {
  const { name, description, parameters, effect } = tool;
  const annotations = effect === 'pure' ? { readOnlyHint: true } : { idempotentHint: effect === 'idempotent' };
  return {
    name,
    description,
    inputSchema: { type: 'object', properties: {}, ...parameters } as ListedTool['inputSchema'],
    ...(outputSchema && { outputSchema: outputSchema as NonNullable<ListedTool['outputSchema']> }),
    ...(type === 'tool' && { annotations }),
    ...(isLegacy && { execution: { taskSupport: 'optional' as const } }),
  };
}

/** Clients of MCP say in a request which trace it is part of: one HTTP connection may have several. */
function tracedCaller(caller: Caller, traceparent: unknown): Caller {
  const trace = typeof traceparent === 'string' ? traceIn(traceparent) : undefined;
  if (trace === undefined) return caller;
  const { tenant, key, scopes, requestId, log, hold } = caller;
  return {
    tenant,
    key,
    scopes,
    requestId,
    log,
    ...(hold && { hold }),
    facts: { ...caller.facts, trace },
    // The log of the request names the run.
    get runId() {
      return caller.runId!;
    },
    set runId(id: string) {
      caller.runId = id;
    },
  };
}

/** The client of an older revision wants a task. */
function isAugmented(params: object): boolean {
  return 'task' in params && typeof params.task === 'object' && params.task !== null;
}

/** What the client has declared: with this request, or with the first one of its connection. */
function capabilitiesOf({ server }: McpServer, { mcpReq: { envelope } }: ServerContext): ClientCapabilities {
  const own = (envelope as Readonly<Record<string, unknown>> | undefined)?.[CLIENT_CAPABILITIES_META_KEY];
  return (own as ClientCapabilities | undefined) ?? server.getClientCapabilities() ?? {};
}

/** What was sent for a request. */
interface SentProgress {
  /** The last progress: it has to grow. */
  last: number;
  /** When it was sent. */
  at: number;
  logs: number;
}

/** Progress that comes faster is left out. */
const LEAST_PROGRESS_MS = 10;
/** Lines for the client's log, for one request. */
const MOST_LOGS = 1_000;

function progressSender({ mcpReq }: ServerContext, sent: SentProgress): (event: CallEvent) => void {
  const token = mcpReq._meta?.progressToken;
  return (event) => {
    if (event.type === 'log') {
      const { level, data, logger } = event;
      sent.logs += 1;
      if (sent.logs > MOST_LOGS) return;
      void mcpReq.log(level, data, typeof logger === 'string' ? logger : undefined).catch(() => {});
      return;
    }
    const { progress, total, message } = event;
    const next = typeof progress === 'number' && Number.isFinite(progress) ? progress : Math.max(sent.last, 0) + 1;
    const now = performance.now();
    if (token === undefined || next <= sent.last || now < sent.at + LEAST_PROGRESS_MS) return;
    sent.last = next;
    sent.at = now;
    const params = {
      progressToken: token,
      progress: next,
      ...(typeof total === 'number' && { total }),
      ...(typeof message === 'string' && { message }),
    };
    // The client may have disconnected.
    void mcpReq.notify({ method: 'notifications/progress', params }).catch(() => {});
  };
}

/** An error as MCP has it. Details of unexpected errors are only in the log. */
async function translateErrors<T>({ log, requestId }: Caller, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof ProtocolError) throw error;
    if (!(error instanceof ApiError)) log.error({ err: error }, 'an MCP request failed unexpectedly');
    const { message, status, code, headers } = toApiError(error, requestId);
    const number = status < 500 ? ProtocolErrorCode.InvalidParams : ProtocolErrorCode.InternalError;
    const seconds = headers['Retry-After'];
    throw new ProtocolError(number, message, seconds && { code, retry_after: Number(seconds) });
  }
}

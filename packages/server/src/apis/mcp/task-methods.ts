import {
  CLIENT_CAPABILITIES_META_KEY,
  isJSONRPCRequest,
  MissingRequiredClientCapabilityError,
  ProtocolError,
  ProtocolErrorCode,
  RELATED_TASK_META_KEY,
  type CallToolResult,
  type ClientCapabilities,
  type InputRequest,
  type InputRequiredResult,
  type JSONRPCErrorResponse,
  type JSONRPCMessage,
  type McpServer,
  type ServerContext,
  type StandardSchemaV1,
} from '@modelcontextprotocol/server';
import type { Caller } from '../../http/admission.ts';
import type { McpCallRequest, McpCalls } from './calls.ts';
import { isObject } from './content.ts';
import type { CallTasks, TaskState } from './tasks.ts';

/*
 * The methods of tasks.
 *
 * - 2026-07-28: the extension `io.modelcontextprotocol/tasks`. A call of a client that has it becomes a task when it takes long.
 * - 2025-11-25: a call becomes a task if the client says so.
 *
 * The SDK knows neither of them. It sends the result of a call that became a task as an empty result with a mark, and the
 * transport replaces it.
 */

export const TASKS = 'io.modelcontextprotocol/tasks';
/** What a server of an older revision declares. */
export const LEGACY_TASKS = { list: {}, cancel: {}, requests: { tools: { call: {} } } };

/** Calls that take longer become tasks, of clients that have the extension. */
const TASK_AFTER_MS = 400;
/** How often a client should look for the state of a task. */
const POLL_MS = 1_000;
const MARK = 'treadle/task';
/** The SDK limits every request. People take their time. */
const NO_TIMEOUT_MS = 2 ** 31 - 1;

export interface TaskMethods {
  readonly mcp: McpServer;
  readonly isLegacy: boolean;
  readonly tasks: CallTasks;
  readonly capabilitiesOf: (ctx: ServerContext) => ClientCapabilities;
  /** Handles a request for its caller, with errors as MCP has them. */
  readonly handle: <T>(ctx: ServerContext, work: (caller: Caller) => Promise<T>) => Promise<T>;
}

/** Returns the result of a method about a task. */
type TaskMethod = (id: string, caller: Caller, ctx: ServerContext) => Promise<object>;

export function serveTasks(methods: TaskMethods): void {
  const { mcp, isLegacy } = methods;
  sendTasks(mcp);
  if (isLegacy) serveLegacyTasks(methods);
  else serveExtension(methods);
}

function serveExtension({ mcp: { server }, tasks, capabilitiesOf, handle }: TaskMethods): void {
  const serve = (method: string, work: TaskMethod): void =>
    server.setRequestHandler(method, { params: ANY }, async (params, ctx) => {
      if (!hasTasks(capabilitiesOf(ctx))) throw new MissingRequiredClientCapabilityError(REQUIRED);
      return handle(ctx, async (caller) => ({ ...(await work(taskIdIn(params), caller, ctx)) }));
    });
  serve('tasks/get', async (id, caller, ctx) => detailedTask(await tasks.get(id, caller, capabilitiesOf(ctx))));
  serve('tasks/update', async (id, caller, ctx) => {
    // The SDK takes them out of the parameters of every request.
    const { inputResponses = {}, signal } = ctx.mcpReq;
    await tasks.update(id, inputResponses, { caller, capabilities: capabilitiesOf(ctx), signal });
    return {};
  });
  serve('tasks/cancel', async (id, caller) => {
    await tasks.cancel(id, caller);
    return {};
  });
}

/**
 * The SDK answers `subscriptions/listen`, and ignores tasks there: there are no notifications of them. A client without the
 * extension has to get an error.
 */
export function refusedSubscription(message: unknown): JSONRPCErrorResponse | undefined {
  if (!isJSONRPCRequest(message) || message.method !== 'subscriptions/listen') return undefined;
  const { notifications, _meta } = (message.params ?? {}) as { notifications?: unknown; _meta?: object };
  const capabilities = (_meta as Readonly<Record<string, unknown>> | undefined)?.[CLIENT_CAPABILITIES_META_KEY];
  if (!isObject(notifications) || notifications['taskIds'] === undefined) return undefined;
  if (isObject(capabilities) && hasTasks(capabilities as ClientCapabilities)) return undefined;
  const { code, message: why, data } = new MissingRequiredClientCapabilityError(REQUIRED);
  return { jsonrpc: '2.0', id: message.id, error: { code, message: why, data } };
}

function serveLegacyTasks({ mcp: { server }, tasks, capabilitiesOf, handle }: TaskMethods): void {
  const serve = (method: string, work: TaskMethod): void =>
    server.setRequestHandler(method, { params: ANY }, (params, ctx) =>
      handle(ctx, async (caller) => ({ ...(await work(taskIdIn(params), caller, ctx)) })),
    );
  const get = (id: string, caller: Caller, ctx: ServerContext): Promise<TaskState> =>
    tasks.get(id, caller, capabilitiesOf(ctx));
  /** Tasks whose client has seen that they ask, and has not waited for the result. Those that are asked for have a promise. */
  const asking = new Map<string, Promise<void> | undefined>();
  serve('tasks/get', async (id, caller, ctx) => {
    const state = await get(id, caller, ctx);
    if (state.status !== 'input_required') asking.delete(id);
    else if (!asking.has(id)) asking.set(id, undefined);
    else if (!asking.get(id)) {
      const answered = askLater(server, state, { tasks, caller }).finally(() => asking.delete(id));
      asking.set(id, answered);
    }
    return legacyTask(state);
  });
  serve('tasks/cancel', async (id, caller, ctx) => {
    if (await tasks.cancel(id, caller)) return legacyTask(await get(id, caller, ctx));
    throw new ProtocolError(ProtocolErrorCode.InvalidParams, `The task ${JSON.stringify(id)} has ended.`);
  });
  serve('tasks/result', (id, caller, ctx) => legacyResult({ id, caller, ctx, tasks, get }));
  server.setRequestHandler('tasks/list', { params: ANY }, (params, ctx) =>
    handle(ctx, async (caller) => {
      const { cursor } = isObject(params) ? params : {};
      const page = await tasks.list(typeof cursor === 'string' ? cursor : undefined, caller);
      return { ...page, tasks: page.tasks.map(legacyTask) };
    }),
  );
}

/**
 * Some clients only look at the state of a task, and expect to be asked on the stream of their session. Without one, nobody is
 * asked until the client waits for the result.
 */
async function askLater(
  server: McpServer['server'],
  { id, requests }: TaskState & { readonly status: 'input_required' },
  { tasks, caller }: { readonly tasks: CallTasks; readonly caller: Caller },
): Promise<void> {
  try {
    const ask: AskClient = (request) => server.request(request, { timeout: NO_TIMEOUT_MS });
    await tasks.update(id, await responsesTo(id, requests, ask), { caller, capabilities: ALL });
  } catch {
    // The task still asks.
  }
}

/** Sends a request to the client. */
type AskClient = (request: { method: InputRequest['method']; params: Record<string, unknown> }) => Promise<unknown>;

async function responsesTo(
  id: string,
  requests: Readonly<Record<string, InputRequest>>,
  ask: AskClient,
): Promise<Record<string, unknown>> {
  const _meta = { [RELATED_TASK_META_KEY]: { taskId: id } };
  const responses = Object.entries(requests).map(async ([key, { method, ...request }]) => {
    const params = { ...('params' in request && request.params), _meta };
    return [key, await ask({ method, params })] as const;
  });
  return Object.fromEntries(await Promise.all(responses));
}

interface LegacyResult {
  readonly id: string;
  readonly caller: Caller;
  readonly ctx: ServerContext;
  readonly tasks: CallTasks;
  readonly get: (id: string, caller: Caller, ctx: ServerContext) => Promise<TaskState>;
}

/** Waits for the end of a task, and asks the client meanwhile for what it needs. */
async function legacyResult({ id, caller, ctx, tasks, get }: LegacyResult): Promise<CallToolResult> {
  const { signal, send } = ctx.mcpReq;
  const _meta = { [RELATED_TASK_META_KEY]: { taskId: id } };
  const ask: AskClient = (request) => send(request, { timeout: NO_TIMEOUT_MS, signal });
  for (;;) {
    signal.throwIfAborted();
    const state = await get(id, caller, ctx);
    switch (state.status) {
      case 'completed':
      case 'cancelled':
        return { ...state.result, _meta: { ...state.result._meta, ..._meta } };
      case 'failed':
        throw new ProtocolError(state.error.code, state.error.message, state.error.data);
      case 'input_required': {
        await tasks.update(id, await responsesTo(id, state.requests, ask), { caller, capabilities: ALL });
        break;
      }
      case 'working':
        await tasks.changed(id, caller, signal);
        break;
      default:
        return state satisfies never;
    }
  }
}

/** The client has just answered. */
const ALL: ClientCapabilities = { elicitation: {}, sampling: {}, roots: {} };

// ── Calls that become tasks ──────────────────────────────────────────────────────────────────────────────────────────

export interface TaskCall {
  readonly calls: McpCalls;
  readonly request: Omit<McpCallRequest, 'task'>;
  readonly caller: Caller;
  /** `now`: the client wants a task. `later`: it accepts one. */
  readonly becomes: 'now' | 'later';
  readonly get: (id: string) => Promise<TaskState>;
}

/** Makes a call, as a task if it takes long or its client wants one. Then it goes on without the request. */
export async function callAsTask(given: TaskCall): Promise<CallToolResult | InputRequiredResult> {
  const { calls, request, caller, becomes, get } = given;
  const controller = new AbortController();
  const abort = (): void => controller.abort(request.signal.reason);
  request.signal.addEventListener('abort', abort);
  if (request.signal.aborted) abort();
  const created = Promise.withResolvers<string>();
  let isTask = false;
  const task = { created: created.resolve, isTask: () => isTask };
  // In the newer revision, a task has no progress: its request is answered.
  const emit: typeof request.emit = (event) => void ((isTask && becomes === 'later') || request.emit(event));
  const work = calls.call({ ...request, signal: controller.signal, task, emit }, caller);
  const turned = created.promise.then(async (id) => {
    if (becomes === 'later') await new Promise((done) => void setTimeout(done, TASK_AFTER_MS).unref());
    return { id };
  });
  const first = await Promise.race([work, turned]).finally(() => request.signal.removeEventListener('abort', abort));
  if (first !== 'left' && !('id' in first)) return first as CallToolResult | InputRequiredResult;
  isTask = true;
  // Its end is stored. An error is in the log, and in the state of the task.
  work.catch(() => {});
  // A task begins as one that works, also if it has ended meanwhile.
  const { id, createdAt, updatedAt, ttlMs } = await get(await created.promise);
  const state: TaskState = { id, createdAt, updatedAt, ttlMs, status: 'working' };
  return { content: [], _meta: { [MARK]: state } };
}

/** Replaces the marked results by what the client gets. */
function sendTasks({ server }: McpServer): void {
  const connect = server.connect.bind(server);
  server.connect = (transport) => {
    const send = transport.send.bind(transport);
    transport.send = (message, options) => send(withTask(message), options);
    return connect(transport);
  };
}

function withTask(message: JSONRPCMessage): JSONRPCMessage {
  if (!('result' in message)) return message;
  const { _meta: { [MARK]: state, ..._meta } = {}, resultType } = message.result as CallToolResult & {
    readonly resultType?: unknown;
  };
  if (state === undefined) return message;
  const result =
    resultType === undefined
      ? { task: legacyTask(state as TaskState), _meta }
      : { ...taskFields(state as TaskState), resultType: 'task', _meta };
  return { ...message, result };
}

// ── On the wire ──────────────────────────────────────────────────────────────────────────────────────────────────────

const REQUIRED = { requiredCapabilities: { extensions: { [TASKS]: {} } } };

export function hasTasks({ extensions }: ClientCapabilities): boolean {
  return isObject(extensions?.[TASKS]);
}

function taskIdIn(params: unknown): string {
  const { taskId } = isObject(params) ? params : {};
  if (typeof taskId === 'string') return taskId;
  throw new ProtocolError(ProtocolErrorCode.InvalidParams, 'taskId must be a text.');
}

function taskFields(state: TaskState): Record<string, unknown> {
  const { ttlMs } = state;
  return { ...commonFields(state), status: state.status, ttlMs, pollIntervalMs: POLL_MS };
}

function commonFields(state: TaskState): Record<string, unknown> {
  const { id, createdAt, updatedAt } = state;
  const message = state.status === 'failed' ? state.error.message : 'message' in state ? state.message : undefined;
  return {
    taskId: id,
    ...(message !== undefined && { statusMessage: message }),
    createdAt: new Date(createdAt).toISOString(),
    lastUpdatedAt: new Date(updatedAt).toISOString(),
  };
}

function detailedTask(state: TaskState): Record<string, unknown> {
  const fields = taskFields(state);
  switch (state.status) {
    case 'input_required':
      return { ...fields, inputRequests: state.requests };
    case 'completed':
      // As the call itself would have had it.
      return { ...fields, result: { ...state.result, resultType: 'complete' } };
    case 'failed':
      return { ...fields, error: state.error };
    case 'working':
    case 'cancelled':
      return fields;
    default:
      return state satisfies never;
  }
}

/** In the older revision, a result that is an error is a task that has failed. */
function legacyTask(state: TaskState): Record<string, unknown> {
  const { ttlMs } = state;
  const status = state.status === 'completed' && state.result.isError === true ? 'failed' : state.status;
  return { ...commonFields(state), status, ttl: ttlMs, pollInterval: POLL_MS };
}

const ANY: StandardSchemaV1<unknown> = {
  '~standard': { version: 1, vendor: 'treadle', validate: (value) => ({ value }) },
};

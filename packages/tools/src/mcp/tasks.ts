import { setTimeout as sleep } from 'node:timers/promises';
import {
  isSpecType,
  type CallToolResult,
  type Client,
  type InputRequests,
  type InputResponse,
  type JSONRPCMessage,
  type Transport,
} from '@modelcontextprotocol/client';
import { isDetached, Parked, type ParkedUntil, type ToolContext } from '@treadle/core';
import type { ActiveCall } from './calls.ts';
import { cleanText } from './describe.ts';
import { McpError, type McpTool } from './options.ts';

/*
 * Calls that a server makes tasks of: the extension of 2026-07-28, and the tasks of 2025-11-25.
 *
 * 1. The SDK knows none of their messages, so they are renamed on the way to the transport, and marked on the way back.
 * 2. What a call is parked with, and what it asks, names its task. So a process that resumes the run finds it, and the call is not
 *    made again.
 * 3. A task outlives the connection, and a run that is detached or waits for people. A call that ends before it cancels it.
 */

export const TASKS = 'io.modelcontextprotocol/tasks';
const RELATED = 'io.modelcontextprotocol/related-task';
const MARK = 'treadle/task';
/** The SDK does not send methods that it knows to be of another revision. */
const RENAMED = 'treadle/';
/** A server that says nothing, and one that says too little or too much, is asked at this interval. */
const POLL_MS = 1_000;
const MIN_POLL_MS = 100;
const MAX_POLL_MS = 300_000;
const MAX_ID = 1_024;
const MAX_MESSAGE = 1_000;
const NO_TIMEOUT_MS = 2 ** 31 - 1;
const INVALID_PARAMS = -32_602;

export interface Task {
  readonly id: string;
  readonly status: 'working' | 'input_required' | 'completed' | 'failed' | 'cancelled';
  readonly message?: string;
  readonly createdAt: number;
  readonly pollMs: number;
  readonly ttlMs?: number;
  /** Only in the newer revision. */
  readonly result?: unknown;
  readonly error?: { readonly code?: unknown; readonly message?: unknown };
  readonly requests?: InputRequests;
}

// ── Messages ─────────────────────────────────────────────────────────────────────────────────────────────────────────

/** Lets messages of tasks through. To be called before a client connects. */
export function passTasks(transport: Transport): void {
  const send = transport.send.bind(transport);
  transport.send = (message, options) => send(named(message), options);
  // The SDK calls it before its own, with the same message.
  Object.assign(transport, { onmessage: markTask });
}

function named(message: JSONRPCMessage): JSONRPCMessage {
  if (!('method' in message) || !message.method.startsWith(RENAMED)) return message;
  return { ...message, method: message.method.slice(RENAMED.length) };
}

/** The result of a call that became a task, as an empty result with a mark. */
function markTask(message: JSONRPCMessage): void {
  const { result } = message as { result?: Readonly<Record<string, unknown>> };
  const task = result?.['resultType'] === 'task' ? result : result?.['task'];
  if (!isObject(task) || typeof task['taskId'] !== 'string') return;
  Object.assign(message, { result: { resultType: 'complete', content: [], _meta: { [MARK]: task } } });
}

/** The task that a call became. */
export function taskIn(result: CallToolResult): Task | undefined {
  const task = taskMark(result);
  return task === undefined ? undefined : readTask(task);
}

function taskMark({ _meta }: Pick<CallToolResult, '_meta'>): unknown {
  return _meta?.[MARK];
}

/** What makes a call a task, of a server that wants to be told. */
export function taskParams(client: Client, { taskSupport }: McpTool): { readonly task?: object } {
  const { tasks } = client.getServerCapabilities() ?? {};
  return tasks?.requests?.tools?.call && taskSupport !== undefined ? { task: {} } : {};
}

/** Whether calls of a tool can become tasks. */
export function mayBecomeTask(client: Client, { taskSupport }: Pick<McpTool, 'taskSupport'>): boolean {
  const { tasks, extensions } = client.getServerCapabilities() ?? {};
  if (isModern(client)) return isObject(extensions?.[TASKS]);
  return tasks?.requests?.tools?.call !== undefined && taskSupport !== undefined;
}

/** The task that a request of a server of the older revision is about. */
export function relatedTask(params: { readonly _meta?: Readonly<Record<string, unknown>> | undefined }): unknown {
  return (params._meta?.[RELATED] as { readonly taskId?: unknown } | undefined)?.taskId;
}

function isModern(client: Client): boolean {
  return client.getProtocolEra() === 'modern';
}

function readTask(given: unknown): Task {
  const task = isObject(given) ? given : {};
  const { taskId: id, status, statusMessage, result, error, inputRequests } = task;
  const [ttl, poll] = [task['ttlMs'] ?? task['ttl'], task['pollIntervalMs'] ?? task['pollInterval']];
  if (typeof id !== 'string' || id.length > MAX_ID || !isStatus(status)) {
    throw new McpError('protocol', 'The MCP server sent a task without an id or with an unknown status.');
  }
  const createdAt = Date.parse(String(task['createdAt']));
  return {
    id,
    status,
    createdAt: Number.isFinite(createdAt) ? createdAt : Date.now(),
    pollMs: Math.min(MAX_POLL_MS, Math.max(MIN_POLL_MS, isTime(poll) ? poll : POLL_MS)),
    ...(isTime(ttl) && { ttlMs: ttl }),
    ...(typeof statusMessage === 'string' && { message: cleanText(statusMessage, MAX_MESSAGE) }),
    ...(result !== undefined && { result }),
    ...(isObject(error) && { error }),
    ...(isObject(inputRequests) && { requests: inputRequests as InputRequests }),
  };
}

function isStatus(status: unknown): status is Task['status'] {
  return ['working', 'input_required', 'completed', 'failed', 'cancelled'].includes(status as string);
}

function isTime(value: unknown): value is number {
  return typeof value === 'number' && Number.isFinite(value) && value > 0;
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

// ── The task of a call ───────────────────────────────────────────────────────────────────────────────────────────────

const QUESTION = 'mcp task ';

/** The id of a question that a task asks. */
export function taskQuestion(task: string, request: string): string {
  return `${QUESTION}${JSON.stringify({ task, request })}`;
}

function parkedOn(server: string, id: string): string {
  return `task ${id} of MCP server "${server}"`;
}

/** The task of a call that another process has made. */
export function taskOfCall(server: string, { parked, asked = [] }: ToolContext): string | undefined {
  const [start, end] = parkedOn(server, '\0').split('\0') as [string, string];
  const on = parked?.on ?? '';
  if (on.startsWith(start) && on.endsWith(end)) return on.slice(start.length, -end.length);
  const last = asked.findLast(({ key }) => key.startsWith(QUESTION));
  return last && (JSON.parse(last.key.slice(QUESTION.length)) as { readonly task: string }).task;
}

// ── Following a task ─────────────────────────────────────────────────────────────────────────────────────────────────

export interface FollowedTask {
  readonly id: string;
  /** As it was created. */
  readonly created?: Task | undefined;
  readonly server: string;
  readonly call: ActiveCall;
  /** The part of the call's time after which it is parked. Absent: never, because its run has no journal. */
  readonly parkAfterMs?: number | undefined;
  /** On the open connection, or on a new one. */
  readonly onClient: <T>(signal: AbortSignal, work: (client: Client) => Promise<T>) => Promise<T>;
  readonly fulfil: (
    requests: InputRequests,
    idOf: (request: string) => string,
  ) => Promise<Record<string, InputResponse>>;
}

/** Waits for the result of a task. The call is parked when it has waited long enough. */
export async function followTask(task: FollowedTask): Promise<CallToolResult | Parked> {
  const { call } = task;
  const stop = new AbortController();
  const signal = AbortSignal.any([call.signal, stop.signal]);
  call.task = task.id;
  let last = task.created;
  const seen = (now: Task): void => void (last = now);
  const ends = timeToPark(task, signal).then(() => parkedTask(task, last));
  try {
    return await Promise.race([persistently(signal, () => resultOf(task, signal, seen)), ends]);
  } catch (error) {
    // A run that is detached, or paused until people answer, finds the task again.
    if (call.signal.aborted && !isDetached(call.context.signal) && !call.isWaiting()) void cancelTask(task);
    throw error;
  } finally {
    ends.catch(() => {});
    stop.abort();
  }
}

/** The result of a task that has one by now. Otherwise the call stays parked. */
export async function lookAtTask(task: FollowedTask): Promise<CallToolResult | Parked> {
  const { call } = task;
  call.task = task.id;
  const now = await getTask(task, call.signal);
  return now.status === 'working' ? parkedTask(task, now) : resultOf(task, call.signal);
}

async function timeToPark({ call, parkAfterMs }: FollowedTask, signal: AbortSignal): Promise<void> {
  // While people are waited for, the time stands still.
  for (;;) {
    const left = parkAfterMs === undefined ? NO_TIMEOUT_MS : parkAfterMs - call.spentMs();
    if (left <= 0) return;
    await sleep(Math.max(left, MIN_POLL_MS), undefined, { signal });
  }
}

function parkedTask({ id, server }: FollowedTask, task: Task | undefined): Parked {
  const now = Date.now();
  const { ttlMs, pollMs = POLL_MS, createdAt = now } = task ?? {};
  // The longer it takes, the less often it is looked at.
  const wakeAt = now + Math.min(MAX_POLL_MS, Math.max(pollMs, (now - createdAt) / 10));
  const until: ParkedUntil = { wakeAt, ...(ttlMs !== undefined && { ttlMs }) };
  return new Parked(parkedOn(server, id), [], until);
}

/** A connection that is lost, and a server that cannot be reached, do not end a task. */
async function persistently<T>(signal: AbortSignal, work: () => Promise<T>): Promise<T> {
  for (;;) {
    try {
      return await work();
    } catch (error) {
      if (signal.aborted || !isPassing(error)) throw error;
      await sleep(POLL_MS, undefined, { signal });
    }
  }
}

const PASSING: ReadonlySet<string> = new Set(['ended', 'unreachable', 'timeout']);

function isPassing(error: unknown): boolean {
  return error instanceof McpError && PASSING.has(error.code);
}

async function resultOf(
  task: FollowedTask,
  signal: AbortSignal,
  seen: (now: Task) => void = () => {},
): Promise<CallToolResult> {
  const { server, call, fulfil, id } = task;
  if (!(await task.onClient(signal, async (client) => isModern(client)))) return legacyResult(task, signal);
  const answered = new Set<string>();
  let message: string | undefined;
  for (;;) {
    const now = await getTask(task, signal);
    seen(now);
    if (now.message !== undefined && now.message !== message) call.context.report({ message: (message = now.message) });
    if (hasEnded(now)) return endOf(task, now);
    const open = Object.entries(now.requests ?? {}).filter(([key]) => !answered.has(key));
    if (open.length === 0) {
      await sleep(now.pollMs, undefined, { signal });
      continue;
    }
    try {
      const inputResponses = await fulfil(Object.fromEntries(open), (asked) => taskQuestion(id, asked));
      for (const [key] of open) answered.add(key);
      await request(task, 'tasks/update', { inputResponses }, { signal });
    } catch (error) {
      // Without what it asks for, it would wait for ever.
      if (!signal.aborted && !isPassing(error)) void cancelTask(task);
      throw error;
    }
  }

  function endOf({ server: name }: FollowedTask, { status, result, error = {}, message: said }: Task): CallToolResult {
    if (status === 'completed') return checkedResult(name, result);
    if (status === 'cancelled') throw new McpError('refused', `MCP server "${name}" has cancelled the task ${id}.`);
    const why = cleanText(String(error.message ?? said ?? 'it gives no reason'), MAX_MESSAGE);
    const protocolCode = Number.isSafeInteger(error.code) ? { protocolCode: error.code as number } : {};
    throw new McpError('refused', `The task ${id} of MCP server "${server}" failed: ${why}`, protocolCode);
  }
}

/** The server answers when there is a result, and asks meanwhile. */
async function legacyResult(task: FollowedTask, signal: AbortSignal): Promise<CallToolResult> {
  const result = await known(task, () => request(task, 'tasks/result', {}, { signal, timeout: NO_TIMEOUT_MS }));
  return checkedResult(task.server, result);
}

function hasEnded({ status }: Task): boolean {
  return status === 'completed' || status === 'failed' || status === 'cancelled';
}

function checkedResult(server: string, result: unknown): CallToolResult {
  if (isSpecType.CallToolResult(result) && 'content' in result) return result as CallToolResult;
  throw new McpError('protocol', `MCP server "${server}" sent a result of a task that is not one of a tool.`);
}

async function getTask(task: FollowedTask, signal: AbortSignal): Promise<Task> {
  const state = await known(task, () => request(task, 'tasks/get', {}, { signal }));
  // Some servers answer as if they had made a task.
  return readTask(taskMark(state as CallToolResult) ?? state);
}

/** A task that the server has forgotten, or never had. */
async function known<T>({ id, server }: FollowedTask, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (!(error instanceof McpError) || error.protocolCode !== INVALID_PARAMS) throw error;
    const why = `(${error.message}). It is not known whether the call took effect.`;
    throw new McpError('refused', `The task ${id} of MCP server "${server}" cannot be found ${why}`, {
      cause: error,
      protocolCode: INVALID_PARAMS,
    });
  }
}

const CANCEL_MS = 5_000;

/** The server is told that nobody needs the result. */
export async function cancelTask(task: FollowedTask): Promise<void> {
  await request(task, 'tasks/cancel', {}, { signal: AbortSignal.timeout(CANCEL_MS) }).catch(() => {});
}

function request(
  { id, onClient }: FollowedTask,
  method: string,
  params: object,
  options: { readonly signal: AbortSignal; readonly timeout?: number },
): Promise<unknown> {
  return onClient(options.signal, (client) =>
    client.request({ method: `${RENAMED}${method}`, params: { taskId: id, ...params } }, ANY, options),
  );
}

const ANY = {
  '~standard': { version: 1, vendor: 'treadle', validate: (value: unknown) => ({ value }) },
} as const;

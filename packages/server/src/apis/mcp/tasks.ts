import {
  MissingRequiredClientCapabilityError,
  ProtocolError,
  ProtocolErrorCode,
  type CallToolResult,
  type ClientCapabilities,
  type InputRequest,
} from '@modelcontextprotocol/server';
import { setTimeout as delay } from 'node:timers/promises';
import { waiting, walkInSlices, type RunSummary, type Waiting } from '@treadle/core';
import type { RequestRecord } from '@treadle/store';
import { ApiError } from '../../api-error.ts';
import type { Engine } from '../../engine/engine.ts';
import { readEntries, readRecord } from '../../engine/stored-reads.ts';
import type { Caller } from '../../http/admission.ts';
import { MCP_CALL_PREFIX } from '../../ids.ts';
import { isAnswerUnfit, isDrivenElsewhere, notDone } from '../../requests/interruption.ts';
import { isOpenRecord, type RequestKind, type Requests } from '../../requests/requests.ts';
import { onlyParked } from '../../requests/run.ts';
import { cursorOf, positionOf } from '../runs/routes.ts';
import type { Runs } from '../runs/runs.ts';
import { answersTo, requestsFor, type KeyedWait } from './call-waits.ts';
import type { StoredCall } from './calls.ts';
import { neededCapability } from './client-input.ts';
import { errorResult } from './content.ts';

/**
 * Calls as tasks, for clients that do not wait for them. A task is the stored request of the call, and its id that of the run.
 *
 * 1. A task exists only for the key that made the call.
 * 2. Nothing about it is in memory, so it is the same on every server of a store, and after a restart.
 * 3. Its state never changes after it has ended.
 */
export interface CallTasks {
  /** The state of a task. What the client cannot be asked for is denied, or fails the task. Rejects if there is no such task. */
  get(id: string, caller: Caller, capabilities: ClientCapabilities): Promise<TaskState>;
  /** Answers what a task has asked for. Responses to anything else are ignored. */
  update(id: string, responses: Readonly<Record<string, unknown>>, asking: Asking): Promise<void>;
  /** False if the task has ended. */
  cancel(id: string, caller: Caller): Promise<boolean>;
  /** The tasks of the caller, the newest first. */
  list(cursor: string | undefined, caller: Caller): Promise<TaskPage>;
  /** Resolves when a task may have changed. */
  changed(id: string, caller: Caller, signal?: AbortSignal): Promise<void>;
}

export interface Asking {
  readonly caller: Caller;
  readonly capabilities: ClientCapabilities;
  /** Stops waiting for an agent that takes no answers now. */
  readonly signal?: AbortSignal;
}

export interface TaskPage {
  readonly tasks: readonly TaskState[];
  readonly nextCursor?: string;
}

export type TaskState = TaskTimes &
  (
    | { readonly status: 'working'; readonly message?: string }
    | { readonly status: 'input_required'; readonly requests: Readonly<Record<string, InputRequest>> }
    | { readonly status: 'completed'; readonly result: CallToolResult }
    | { readonly status: 'cancelled'; readonly result: CallToolResult }
    /** The call failed by an error of the protocol. */
    | { readonly status: 'failed'; readonly error: TaskError }
  );

export interface TaskError {
  readonly code: number;
  readonly message: string;
  readonly data?: unknown;
}

interface TaskTimes {
  readonly id: string;
  readonly createdAt: number;
  readonly updatedAt: number;
  /** From its creation. Null: it is kept at least until it has ended. */
  readonly ttlMs: number | null;
}

/** Runs that one page of a list looks at. Those of other requests are among them. */
const LOOKED = 500;
const PAGE = 50;
/** How long to wait for a change that nobody reports. */
const POLL_MS = 500;
/** The error with which a task has failed, in the stored result. */
const ERROR = 'treadle/error';
const KIND: RequestKind = 'mcp-call';

interface TaskParts {
  readonly engine: Pick<Engine, 'store'>;
  readonly stored: Pick<Requests, 'recoverRecord' | 'ended'>;
  readonly runs: Pick<Runs, 'answer' | 'cancel' | 'list'>;
  /** How long requests are kept after their end. Absent: for ever. */
  readonly keptMs?: number | undefined;
}

export function callTasks({ engine: { store }, stored, runs, keptMs }: TaskParts): CallTasks {
  const records = store.requests;

  async function find(id: string, caller: Caller): Promise<RequestRecord> {
    const record = id.startsWith(MCP_CALL_PREFIX) ? await readRecord(store, id, caller) : undefined;
    if (record?.kind !== KIND || (record.request as StoredCall).key !== caller.key) {
      throw new ProtocolError(ProtocolErrorCode.InvalidParams, `There is no task ${JSON.stringify(id)} of this key.`);
    }
    return record;
  }

  function timesOf({ id, createdAt, updatedAt, ...record }: RequestRecord, run?: RunSummary): TaskTimes {
    const ttlMs = isOpenRecord(record) || keptMs === undefined ? null : updatedAt - createdAt + keptMs;
    return { id, createdAt, updatedAt: Math.max(updatedAt, run?.updatedAt ?? 0), ttlMs };
  }

  function endedState(record: RequestRecord): TaskState {
    const times = timesOf(record);
    const result = record.response as CallToolResult;
    const error = result._meta?.[ERROR] as TaskError | undefined;
    if (error) return { ...times, status: 'failed', error };
    return { ...times, status: record.status === 'cancelled' ? 'cancelled' : 'completed', result };
  }

  /** What a task waits for, also while other calls of it are made. */
  async function waitsOf({ runId }: RequestRecord, caller: Caller): Promise<readonly KeyedWait[]> {
    const { state } = await walkInSlices(await readEntries(store, runId, caller));
    return waiting(state).map((wait) => ({ ...wait, key: keyOf(wait) }));
  }

  async function isPaused({ runId }: RequestRecord): Promise<boolean> {
    const [run] = await store.list({ runId, limit: 1 });
    return run?.status === 'paused';
  }

  const get: CallTasks['get'] = async (id, caller, capabilities) => {
    const record = await find(id, caller);
    if (!isOpenRecord(record)) return endedState(record);
    await stored.recoverRecord(record).catch(ignoreDriven);
    const [run] = await store.list({ runId: record.runId, limit: 1 });
    const times = timesOf(record, run);
    const waits = run?.status === 'paused' ? await waitsOf(record, caller) : [];
    if (waits.length === 0) return { ...times, status: 'working' };
    const client = { responses: new Map(), isAsked: true, capabilities, caller, rejected: undefined };
    const denials = answersTo(waits, client);
    if (denials.length > 0 && denials !== 'declined') {
      // Somebody else may have answered meanwhile, as the request that made the call.
      await runs.answer(id, denials, caller).catch(ignoreUnfit);
      return { ...times, status: 'working' };
    }
    const requests = requestsFor(waits, client);
    if (!requests) return { ...times, status: 'working', message: onlyParked(waits) ? PARKED : OTHERS };
    const lacked = Object.values(requests).find((one) => capabilities[neededCapability(one)] === undefined);
    if (!lacked) return { ...times, status: 'input_required', requests };
    const required = neededCapability(lacked);
    return failTask(
      record,
      caller,
      new MissingRequiredClientCapabilityError({ requiredCapabilities: { [required]: {} } }),
    );
  };

  async function failTask(record: RequestRecord, caller: Caller, problem: ProtocolError): Promise<TaskState> {
    const { code, message, data } = problem;
    const error: TaskError = { code, message, ...(data !== undefined && { data }) };
    await runs.cancel(record.runId, caller);
    const response = { ...errorResult(message), _meta: { [ERROR]: error } };
    await records.finish(record.id, { from: 'cancelled', status: 'failed', response, at: Date.now() });
    return endedState(await find(record.id, caller));
  }

  async function changed(id: string, caller: Caller, signal = new AbortController().signal): Promise<void> {
    const record = await find(id, caller);
    const isEnded = await stored.ended(record, signal, notDone).then(
      () => true,
      (error: unknown) => {
        if (!(error instanceof ApiError)) throw error;
        return false;
      },
    );
    if (!isEnded) await delay(POLL_MS, undefined, { signal }).catch(() => {});
  }

  return {
    get,
    async update(id, responses, { caller, capabilities, signal }) {
      for (;;) {
        const record = await find(id, caller);
        if (!isOpenRecord(record)) return;
        const client = { responses: new Map(Object.entries(responses)), isAsked: true, capabilities, caller };
        const answers = answersTo(await waitsOf(record, caller), { ...client, rejected: undefined });
        if (answers === 'declined') return void (await runs.cancel(id, caller));
        if (answers.length === 0) return;
        try {
          return await runs.answer(id, answers, caller);
        } catch (error) {
          if (!isAnswerUnfit(error)) throw error;
          const left = new Set((await waitsOf(record, caller)).map(({ effect }) => effect));
          const isLeft = answers.every(({ effect }) => left.has(effect));
          if (isLeft && (await isPaused(record))) throw error;
          // Another request has answered some of it, or an agent takes answers only when its other calls have ended.
          if (isLeft) await changed(id, caller, signal);
          signal?.throwIfAborted();
        }
      }
    },
    async cancel(id, caller) {
      if (!isOpenRecord(await find(id, caller))) return false;
      await runs.cancel(id, caller);
      return true;
    },
    async list(cursor, caller) {
      const after = cursor === undefined ? {} : { after: positionOf(cursor) };
      const found = await runs.list({ ...after, limit: LOOKED }, caller);
      const tasks: TaskState[] = [];
      for (const [index, run] of found.entries()) {
        const record = run.runId.startsWith(MCP_CALL_PREFIX)
          ? await find(run.runId, caller).catch(ignoreUnknown)
          : undefined;
        if (record)
          tasks.push(isOpenRecord(record) ? { ...timesOf(record, run), status: 'working' } : endedState(record));
        const isLast = index === LOOKED - 1 || (tasks.length === PAGE && index < found.length - 1);
        if (isLast) return { tasks, nextCursor: cursorOf(run) };
      }
      return { tasks };
    },
    changed,
  };
}

const PARKED = 'It waits for something that takes long.';
const OTHERS = 'It waits for an approval or an answer of somebody else.';

/** Never used for anything else in the same task: of an approval it is bound to what is approved. */
function keyOf(wait: Waiting): string {
  return wait.type === 'approval' ? `${wait.effect} ${wait.digest}` : wait.effect;
}

function ignoreDriven(error: unknown): void {
  if (!isDrivenElsewhere(error)) throw error;
}

function ignoreUnfit(error: unknown): void {
  if (!isAnswerUnfit(error) && !isDrivenElsewhere(error)) throw error;
}

function ignoreUnknown(error: unknown): undefined {
  if (!(error instanceof ProtocolError)) throw error;
}

import { createHash } from 'node:crypto';
import { waiting, type Waiting } from '@treadle/core';
import {
  agentResult,
  checkInputs,
  inputMessage,
  iterativeResult,
  type Inputs,
  type NamedAgent,
} from '@treadle/core/named-agents';
import type { RequestRecord } from '@treadle/store';
import { matchPattern } from '@treadle/tools/patterns';
import { ApiError } from '../../api-error.ts';
import type { AgentInvocation, AgentPlan } from '../../engine/agent-plan.ts';
import { agentModelName, agentNamed, mayInvoke, type Capacity, type Engine } from '../../engine/engine.ts';
import { codeInResponse, modelApiError } from '../../engine/model-failure.ts';
import { readRecord, type Reader } from '../../engine/stored-reads.ts';
import { storedState } from '../../history/conversation.ts';
import type { Caller } from '../../http/admission.ts';
import { newResponseId } from '../../ids.ts';
import { bodyDigest, type RequestKey } from '../../requests/idempotency.ts';
import { ASLEEP, isDrivenElsewhere, notDone, TAKEN_OVER, type Interruption } from '../../requests/interruption.ts';
import { walkRun } from '../../requests/projection.ts';
import type {
  DrivenRequest,
  FailedEnding,
  FinalEnd,
  ForkedRun,
  PlannedRequest,
  RecordToStore,
  ReplayedRecord,
  Requests,
  Resumption,
  StoredEnd,
  TakenRun,
} from '../../requests/requests.ts';
import {
  planRun,
  storedCaller,
  type ResumedRun,
  type RunPlan,
  type RunRequest,
  type StoredCaller,
} from '../../requests/run.ts';
import { chatProjection, statusOf } from '../chat/projection.ts';
import { wireWaiting } from '../runs/routes.ts';
import type { AgentEvent, WireAgentResult, WireIterativeResult, WireUnfinished } from './wire.ts';

/**
 * Invocations of agents by name. Each is a stored run, so that it is resumed if its process dies, and can wait for people.
 *
 * 1. The same `task_id` with the same inputs is the same run, as long as the run is stored. With other inputs it is a conflict.
 * 2. A run that waits does not end its invocation: the client is told what it waits for, and gets the result later.
 */
export interface Invocations {
  /** Validates everything, and stores the invocation. Rejects with an `ApiError`. */
  prepare(request: InvocationRequest, caller: Caller, key?: RequestKey): Promise<PreparedInvocation>;
  /** Rejects with a 404 if there is no such run of this agent. */
  retrieve(agent: string, runId: string, caller: Caller, signal: AbortSignal): Promise<InvocationAnswer>;
  /** The inputs with their defaults. Rejects with a 422. */
  checkedInputs(agent: NamedAgent, given: unknown): Promise<Inputs>;
}

export interface InvocationRequest extends AgentInvocation {
  readonly agent: string;
  readonly inputs: unknown;
  /** The client does not wait, and the run goes on without it. */
  readonly background: boolean;
}

export interface PreparedInvocation {
  /** Resolves when the run has ended or waits. `signal` aborts when the client disconnects: a run that it cannot find again is cancelled. */
  run(emit: EmitAgentEvent | undefined, signal: AbortSignal): Promise<InvocationAnswer>;
  /** Starts the run, without waiting for it. Resolves with the result if the invocation is repeated and has ended. */
  start(): Promise<InvocationAnswer>;
}

/** `isLive`: the event tells nothing that is stored. */
export type EmitAgentEvent = (event: AgentEvent, isLive: boolean) => void | Promise<void>;

export type InvocationAnswer =
  | { readonly type: 'result'; readonly result: WireAgentResult | WireIterativeResult }
  | { readonly type: 'unfinished'; readonly unfinished: WireUnfinished }
  | { readonly type: 'failed'; readonly error: ApiError };

/** The stored request of an invocation. The store's records contain it, so its fields must not change. */
export interface StoredInvocation extends StoredCaller {
  readonly agent: string;
  readonly inputs: Inputs;
  readonly invocation: AgentInvocation;
}

/** The end of an invocation. Stored as JSON, so its fields must not change. */
type StoredInvocationEnd =
  | { readonly result: WireAgentResult | WireIterativeResult }
  | { readonly error: Pick<ApiError, 'status' | 'type' | 'message' | 'code' | 'headers'> };

/** Whether what a run of this agent has done is undone when it ends so. The run that undoes another one only stops. */
export function undoesWhen({ workflow }: Pick<NamedAgent, 'workflow'>, end: 'cancelled' | 'failed'): boolean {
  const { undo_on: undoOn = [], undoes } = (workflow ?? {}) as { readonly undo_on?: unknown; readonly undoes?: string };
  return undoes === undefined && [undoOn].flat().includes(end);
}

/** Begins the id of the record of an invocation. The rest is that of its run. */
const PREFIX = 'inv_';

interface InvocationOptions {
  readonly engine: Engine;
  readonly stored: Requests;
}

export function invocations({ engine, stored }: InvocationOptions): Invocations {
  const { store } = engine;
  stored.register('invocation', {
    waits: true,
    plan: planStored,
    fail: failInvocation,
    createFork: (record, fork) => createFork(record, fork),
  });

  async function prepare(
    request: InvocationRequest,
    caller: Caller,
    key: RequestKey | undefined,
  ): Promise<PreparedInvocation> {
    const { mode, options, background, definition } = request;
    const agent = definition ?? agentFor(request, caller);
    const inputs = await checkedInputs(agent, request.inputs);
    const { tenant, hold } = caller;
    const invocation = { mode, options, ...(definition && { definition }) };
    const task = options.task_id === undefined ? undefined : taskKey(agent.name, options.task_id, inputs, mode);
    const runCaller = withFacts(caller, invocation);
    const canRepeat = background || key !== undefined || task !== undefined || undoesWhen(agent, 'cancelled');
    const once = await stored.createOnce(
      {
        tenant,
        async plan(count) {
          const id = newResponseId();
          const plan = await planInvocation(
            { agent: agent.name, inputs, invocation },
            { id, caller: runCaller, waits: true },
          );
          count(plan.size);
          return { plan, now: Date.now() };
        },
        complete(planned) {
          const { plan, now } = planned;
          const id = PREFIX + plan.id;
          const keys = [
            ...(key ? [stored.keyToStore(key, now, id)] : []),
            ...(task ? [stored.keyToStore({ ...task, isKept: true }, now, id)] : []),
          ];
          const record: RecordToStore<StoredInvocation> = {
            id,
            kind: 'invocation',
            tenant,
            runId: plan.id,
            status: 'in_progress',
            createdAt: now,
            updatedAt: now,
            request: { agent: agent.name, inputs, invocation, ...storedCaller(plan) },
          };
          return { request: planned, stored: { record, keys } };
        },
      },
      key,
      task && (() => findTask(tenant, task, { id: options.task_id!, mode })),
    );
    if (once.type !== 'created') {
      const id = once.type === 'repeated' ? once.id : once.claimed;
      return repeatedInvocation({ id, tenant, ...(hold && { hold }) }, agent.name, caller);
    }
    const { plan, record, releaseCapacity } = once.created;
    caller.runId = plan.id;
    const begin = (emit?: EmitAgentEvent, signal?: AbortSignal): Promise<EndedInvocation> => {
      const { finished } = driveInvocation({ plan, record: record!, emit, ...(!canRepeat && { signal }) });
      finished.then(releaseCapacity, releaseCapacity);
      return finished;
    };
    return {
      async run(emit, signal) {
        void emit?.({ type: 'invocation_meta', agent: agent.name, run_id: plan.id, model: plan.model.id }, false);
        try {
          return (await begin(emit, signal)).answer;
        } catch (error) {
          if (!isDrivenElsewhere(error)) throw error;
          return { type: 'failed', error: notDone(TAKEN_OVER) };
        }
      },
      async start() {
        // A failure is stored, and logged where it happens.
        begin().catch(() => {});
        return unfinished(agent.name, plan.id, []);
      },
    };
  }

  /** Throws a 404 for an agent that does not exist, and a 403 for one that the key may not use, or not with another model. */
  function agentFor({ agent: name, options }: InvocationRequest, { key, scopes }: Caller): NamedAgent {
    const agent = agentNamed(engine, name, scopes);
    if (!mayInvoke(scopes, agent.name)) {
      const message = `The key "${key}" may not use the agent "${agent.name}": its scopes name other agents.`;
      throw new ApiError(403, 'permission_error', message, { code: 'insufficient_scope' });
    }
    if (options.model === undefined || mayInvoke(scopes)) return agent;
    const message = `The key "${key}" may not choose a model: its scopes name only agents. Omit "model".`;
    throw new ApiError(403, 'permission_error', message, { param: 'model', code: 'insufficient_scope' });
  }

  function planInvocation(
    { agent, inputs, invocation }: Pick<StoredInvocation, 'agent' | 'inputs' | 'invocation'>,
    run: Parameters<typeof planRun>[3],
    isResumed = false,
  ): Promise<RunPlan> {
    const request: RunRequest = {
      functions: [],
      otherTools: [],
      toolChoice: 'auto',
      parallel: true,
      settings: {},
      truncation: 'auto',
      model: agentModelName(agent),
      invocation,
    };
    const text = inputMessage(inputs);
    const messages = isResumed ? [] : [{ role: 'user' as const, content: [{ type: 'text' as const, text }] }];
    return planRun(engine, request, { messages, instructions: [] }, run);
  }

  interface EndedInvocation extends StoredEnd {
    readonly answer: InvocationAnswer;
  }

  interface DrivenInvocation {
    readonly plan: RunPlan;
    readonly record: RequestRecord;
    readonly emit?: EmitAgentEvent | undefined;
    readonly signal?: AbortSignal | undefined;
    readonly resume?: ResumedRun | undefined;
  }

  function driveInvocation({ plan, record, emit, signal, resume }: DrivenInvocation): DrivenRequest<EndedInvocation> {
    const { agent, invocation } = record.request as StoredInvocation;
    const out = walkRun(chatProjection(plan.id), {
      emit:
        emit &&
        ((event) => emit(event as AgentEvent, event.type === 'token_delta' || event.type === 'reasoning_delta')),
    });
    let open: readonly Waiting[] = [];
    return stored.drive<EndedInvocation>(plan, {
      id: record.id,
      output: out,
      resume,
      signal,
      endsWithServer: false,
      async flush(end) {
        open = end.waiting ?? [];
      },
      async finish(end, releaseLease) {
        const answer = answerOf(plan.agent!, end, invocation);
        out.end(end);
        await storeEnd(record.id, answer, end);
        await releaseLease();
        return { answer };
      },
      interrupt(interruption) {
        const answer: InvocationAnswer = isWaiting(interruption)
          ? unfinished(agent, plan.id, open)
          : { type: 'failed', error: notDone(interruption) };
        return { answer, interruption };
      },
    });
  }

  async function storeEnd(id: string, answer: InvocationAnswer, { ending, isUntouched }: FinalEnd): Promise<void> {
    const response: StoredInvocationEnd = answer.type === 'result' ? { result: answer.result } : storedError(answer);
    // Nothing was done, so that the same request may be sent again.
    const releaseKey = isUntouched ?? false;
    await store.requests.finish(id, { status: statusOf(ending), response, at: ending.at, releaseKey });
  }

  async function planStored(
    { record, run, resume }: TakenRun,
    hold: Capacity['hold'] | undefined,
  ): Promise<PlannedRequest & Resumption> {
    const plan = await planInvocation(
      record.request as StoredInvocation,
      { ...run, waits: true },
      resume !== undefined,
    );
    if (!resume) hold?.(plan.size);
    return { plan, drive: () => driveInvocation({ plan, record, resume }) };
  }

  async function failInvocation({ record }: ReplayedRecord, { error, at }: FailedEnding): Promise<void> {
    const failed = new ApiError(500, 'server_error', error.message, { code: error.code });
    const response = storedError({ type: 'failed', error: failed });
    await store.requests.finish(record.id, { status: 'failed', response, at });
  }

  async function createFork(original: RequestRecord, { runId }: ForkedRun): Promise<RequestRecord> {
    const createdAt = Date.now();
    const { tenant, kind, request } = original;
    const times = { createdAt, updatedAt: createdAt };
    const record = { id: PREFIX + runId, kind, tenant, runId, status: 'in_progress' as const, ...times, request };
    await store.requests.create(record);
    return record;
  }

  /* Invocations that exist */

  /** The id of the record with the task. Rejects with a 409 if it has other inputs, or is of the other mode. */
  async function findTask(
    tenant: string,
    task: RequestKey,
    given: { readonly id: string; readonly mode: AgentInvocation['mode'] },
  ): Promise<string | undefined> {
    const used = await store.requests.findKey(tenant, task.key, Date.now());
    if (used === undefined || used.digest === task.digest) return used?.response;
    const record = await readRecord(store, used.response, { tenant });
    const { mode = given.mode } = (record?.request as StoredInvocation | undefined)?.invocation ?? {};
    const [what, remedy] =
      mode === given.mode
        ? ['with other inputs', 'Send the same inputs']
        : [`at ${PATHS[mode]}, and not at ${PATHS[given.mode]}`, 'Send it there'];
    const message = `The task_id ${JSON.stringify(given.id)} is in use ${what}. ${remedy}, or another task_id.`;
    const headers = { 'x-should-retry': 'false' };
    throw new ApiError(409, 'invalid_request_error', message, { param: 'task_id', code: 'task_in_use', headers });
  }

  function repeatedInvocation(
    record: Reader & { readonly id: string },
    agent: string,
    caller: Caller,
  ): PreparedInvocation {
    const runId = record.id.slice(PREFIX.length);
    return {
      async run(emit, signal) {
        void emit?.({ type: 'invocation_meta', agent, run_id: runId, model: agentModelName(agent) }, false);
        try {
          const ended = await stored.ended(record, signal, notDone);
          if (!ended) throw noRun(agent, runId);
          return storedAnswer(ended);
        } catch (error) {
          if (!(error instanceof ApiError) || error.code !== ASLEEP.code) throw error;
          return openAnswer({ ...record, agent, signal });
        }
      },
      start: () => retrieve(agent, runId, caller, new AbortController().signal),
    };
  }

  /** What an invocation that has not ended waits for. The result of a run that has ended is stored a moment later. */
  async function openAnswer({ id, agent, signal, ...reader }: OpenInvocation): Promise<InvocationAnswer> {
    const runId = id.slice(PREFIX.length);
    const state = await storedState(store, runId, reader);
    if (state?.phase.type !== 'ended') return unfinished(agent, runId, state ? waiting(state) : []);
    const ended = await stored.ended({ id, ...reader }, signal, notDone);
    return ended ? storedAnswer(ended) : Promise.reject(noRun(agent, runId));
  }

  async function retrieve(
    given: string,
    runId: string,
    { tenant, scopes, hold }: Caller,
    signal: AbortSignal,
  ): Promise<InvocationAnswer> {
    const reader = { tenant, ...(hold && { hold }) };
    const id = PREFIX + runId;
    const name = engine.namedAgents?.registry.get(given)?.name ?? given;
    const record = await readRecord(store, id, reader);
    const { agent } = (record?.request ?? {}) as Partial<StoredInvocation>;
    if (!record || agent !== name || !mayInvoke(scopes, agent)) throw noRun(name, runId);
    return record.status === 'in_progress' ? openAnswer({ id, agent, signal, ...reader }) : storedAnswer(record);
  }

  return { prepare, retrieve, checkedInputs };
}

interface OpenInvocation extends Reader {
  /** Of the record. */
  readonly id: string;
  readonly agent: string;
  readonly signal: AbortSignal;
}

function noRun(agent: string, runId: string): ApiError {
  const message = `The agent ${JSON.stringify(agent)} has no run ${JSON.stringify(runId)}.`;
  return new ApiError(404, 'not_found_error', message, { code: 'run_not_found' });
}

async function checkedInputs(agent: NamedAgent, given: unknown): Promise<Inputs> {
  const checked = await checkInputs(agent, given, matchPattern);
  if (checked.type === 'valid') return checked.inputs;
  const [first] = checked.problems;
  const message = checked.problems.map((problem) => problem.message).join(' ');
  const param = first?.input === undefined ? 'inputs' : `inputs.${first.input}`;
  throw new ApiError(422, 'invalid_request_error', message, { param, code: 'invalid_inputs' });
}

/** The caller, with what the request says its run belongs to. */
function withFacts(
  { tenant, key, scopes, requestId, facts }: Caller,
  { options }: AgentInvocation,
): Pick<Caller, 'tenant' | 'key' | 'scopes' | 'requestId' | 'facts'> {
  const { task_id: task, session_id: session } = options;
  const own = {
    ...facts,
    ...(task !== undefined && { task }),
    ...(session !== undefined && { session }),
  };
  return { tenant, key, scopes, requestId, ...(Object.keys(own).length > 0 && { facts: own }) };
}

const PATHS = { single: '/invoke', iterative: '/invoke-iterative' } as const;

/** No client can send it as an `Idempotency-Key`, because it contains spaces. */
function taskKey(agent: string, task: string, inputs: Inputs, mode: AgentInvocation['mode']): RequestKey {
  const name = createHash('sha256').update(task).digest('hex');
  return { key: `task ${agent} ${name}`, digest: bodyDigest(`agents/${agent}/${mode}`, inputs) };
}

function answerOf(
  { agent, options: { maxTurns } }: AgentPlan,
  { ending, result, failure }: FinalEnd,
  { mode }: AgentInvocation,
): InvocationAnswer {
  if (failure) return { type: 'failed', error: modelApiError(failure) };
  const hasFailed = ending.type === 'failed' && result?.outcome?.type !== 'failed';
  // It was stopped, or could not be driven.
  if (!result || hasFailed) {
    const { code, message } = ending.type === 'failed' ? ending.error : NO_RESULT;
    return { type: 'failed', error: new ApiError(500, 'server_error', message, { code }) };
  }
  const whole = iterativeResult(agent, result, { maxTurns });
  const { waiting: _, termination_reason, error, ...rest } = whole;
  const smaller = { agent: agent.name, ...agentResult(whole), run_id: whole.run_id };
  if (mode === 'single') {
    // Its result cannot say why there is no answer.
    return error ? { type: 'failed', error: noAnswer(error) } : { type: 'result', result: smaller };
  }
  const iterative = { ...smaller, ...rest, termination_reason: termination_reason ?? 'error', error: error ?? null };
  return { type: 'result', result: iterative };
}

/** The model has answered with something else, a limit was reached, or the run was cancelled. */
function noAnswer({ code, message }: { readonly code: string; readonly message: string }): ApiError {
  if (code !== 'cancelled') return new ApiError(502, 'server_error', message, { code: codeInResponse(code) });
  return new ApiError(499, 'invalid_request_error', message, { code, headers: { 'x-should-retry': 'false' } });
}

const NO_RESULT = { code: 'server_error', message: 'The run has no result.' };

function unfinished(agent: string, runId: string, open: readonly Waiting[]): InvocationAnswer {
  const status = open.length === 0 ? 'in_progress' : 'waiting';
  return { type: 'unfinished', unfinished: { agent, run_id: runId, status, waiting: open.map(wireWaiting) } };
}

function isWaiting({ code }: Interruption): boolean {
  return code === ASLEEP.code;
}

function storedError(answer: InvocationAnswer): StoredInvocationEnd {
  if (answer.type !== 'failed') throw new Error('The invocation has not failed.');
  const { status, type, message, code, headers } = answer.error;
  return { error: { status, type, message, code, headers } };
}

function storedAnswer({ response }: RequestRecord): InvocationAnswer {
  const end = response as StoredInvocationEnd;
  if ('result' in end) return { type: 'result', result: end.result };
  const { status, type, message, code, headers } = end.error;
  return { type: 'failed', error: new ApiError(status, type, message, { ...(code !== null && { code }), headers }) };
}

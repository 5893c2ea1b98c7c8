import { setTimeout as delay } from 'node:timers/promises';
import {
  inputRequired,
  ProtocolError,
  ProtocolErrorCode,
  type CallToolResult,
  type ClientCapabilities,
  type InputRequest,
  type InputRequiredResult,
} from '@modelcontextprotocol/server';
import {
  executeAgent,
  stableJson,
  TreadleError,
  userText,
  walkInSlices,
  type ExecuteResult,
  type Item,
  type State,
  type Tool,
  type ToolResult,
  type Waiting,
} from '@treadle/core';
import type { RequestRecord } from '@treadle/store';
import { callingModel } from '@treadle/tools/calling-model';
import type { Engine } from '../../engine/engine.ts';
import { OWN_LABEL } from '../../engine/executors.ts';
import { principalOf, toolsetOf, type RunCaller, type Toolset } from '../../engine/tools.ts';
import { isDrivenElsewhere, isUnfit, type Interruption } from '../../requests/interruption.ts';
import {
  isOpenRecord,
  type DrivenRequest,
  type FailedEnding,
  type PlannedRequest,
  type ReplayedRecord,
  type RequestApi,
  type RequestKind,
  type Requests,
  type Resumption,
  type StoredEnd,
  type TakenRecord,
  type TakenRun,
} from '../../requests/requests.ts';
import { walkRun, type Walk } from '../../requests/projection.ts';
import { callLog } from '../../requests/run-report.ts';
import type { Ending } from '../../requests/ending.ts';
import {
  isRejectedAnswer,
  killProcess,
  ledgerOf,
  onlyParked,
  runJournal,
  storedCaller,
  type DrivenRun,
  type ResumedRun,
  type RunEnd,
  type RunPlan,
  type RunRequest,
  type StoredCaller,
  type StoredRunPlan,
} from '../../requests/run.ts';
import { readEntries, readRecord } from '../../engine/stored-reads.ts';
import type { Caller } from '../../http/admission.ts';
import { MCP_CALL_PREFIX, newMcpCallId } from '../../ids.ts';
import {
  agentCallable,
  agentToolCallable,
  callablesOf,
  checkedInput,
  lacksScope,
  mayCall,
  unknownTool,
  type Callable,
} from './callables.ts';
import { answersTo, keyedWaits, requestsFor } from './call-waits.ts';
import { mcpContext, neededCapability } from './client-input.ts';
import { errorResult, outputResult, toolResult } from './content.ts';
import type { McpAgent } from './options.ts';
import { callProjection, type CallEvent } from './projection.ts';

/**
 * Calls of tools and agents over MCP. Each is a stored run.
 *
 * 1. A call that needs an approval or an answer pauses its run. The client gets what it is asked for, with a state that
 *    names the run, and sends the call again with its answers. So any process with the same store can continue it, also
 *    after a restart, and a client that repeats a call that has ended gets the same result.
 * 2. The state is not a secret and grants nothing: the run must belong to the tenant of the caller, and have the same tool
 *    and arguments. A state that does not name such a run is rejected.
 * 3. An approval counts only if the client was asked for it: answers without a state answer no approval.
 */
export interface McpCalls {
  /** What this caller may call. */
  offered(caller: RunCaller): readonly Callable[];
  /** Rejects with a `ProtocolError` or an `ApiError` if the call cannot be made. `left`: the call goes on as a task. */
  call(request: McpCallRequest, caller: Caller): Promise<CallToolResult | InputRequiredResult | 'left'>;
  /** Cancels a call that waits for its client, by its state. Never rejects. */
  cancel(state: string, caller: RunCaller): Promise<void>;
  /** For the runs API, and for calls that a process has left behind. Nobody is told the result: it is stored. */
  readonly api: RequestApi;
}

export interface McpCallRequest {
  readonly name: string;
  readonly arguments: Readonly<Record<string, unknown>>;
  /** The state and the answers that a client sends back. */
  readonly state: string | undefined;
  readonly responses: Readonly<Record<string, unknown>> | undefined;
  readonly capabilities: ClientCapabilities;
  /** Cancels the run. */
  readonly signal: AbortSignal;
  readonly emit: (event: CallEvent) => void;
  /** Absent: the call cannot become a task. */
  readonly task?: CallTask | undefined;
}

/** A call that its client may follow as a task. */
export interface CallTask {
  /** The call is stored under this id. */
  readonly created: (id: string) => void;
  /** The client was told that it is a task, and answers what it waits for by its id. */
  readonly isTask: () => boolean;
}

/** The stored request of a call. The store's records contain it, so its fields must not change. */
export interface StoredCall extends StoredCaller {
  readonly name: string;
  readonly arguments: Readonly<Record<string, unknown>>;
}

/** One attempt to drive the run of a call. */
interface Round extends StoredRunPlan {
  readonly callable: Callable;
  readonly input: Readonly<Record<string, unknown>>;
  readonly capabilities: ClientCapabilities;
  readonly emit: (event: CallEvent) => void;
  readonly signal?: AbortSignal;
  /** The call is stored. */
  readonly onStored?: () => void;
  /** Absent: the run is new. */
  readonly resume?: ResumedRun;
}

/** A call whose run is about to be driven. */
interface PlannedCall extends PlannedRequest {
  readonly plan: RunPlan;
  readonly output: CallWalk;
  /** Starts the run of an agent. Absent: the call is a run of the loop itself. */
  readonly start?: (plan: RunPlan) => DrivenRun;
  readonly result: (ending: Ending) => CallToolResult;
}

type CallWalk = Walk<unknown, CallEvent, ToolResult | undefined>;

interface RoundEnd extends StoredEnd {
  /** Absent: the run waits, or was interrupted. */
  readonly result?: CallToolResult;
}

interface CalledParts {
  readonly tools: () => readonly Tool[];
  readonly agents: readonly McpAgent[];
  /** The agents that a caller may invoke by name, as tools. Default: none. */
  readonly namedAgents?: (engine: Engine, caller: RunCaller) => readonly Tool[];
}

/** `current`: the server as it is now, with the policy for MCP clients. */
export function mcpCalls(
  current: () => Engine,
  all: Requests,
  { tools, agents, namedAgents = () => [] }: CalledParts,
): McpCalls {
  const { store, runs, log } = current();
  const records = store.requests;
  const ofAgents = agents.map(agentCallable);
  let [listed, callables] = [tools(), callablesOf(tools(), ofAgents)];

  /** What clients can call now. */
  function callableTools(): ReadonlyMap<string, Callable> {
    const now = tools();
    if (now !== listed) [listed, callables] = [now, callablesOf(now, ofAgents)];
    return callables;
  }

  const offered: McpCalls['offered'] = (caller) => {
    const named = namedAgents(current(), caller).map(agentToolCallable);
    return [...callableTools().values(), ...named].filter((one) => mayCall(caller, one));
  };

  function callableNamed(name: string, caller: RunCaller): Callable {
    const found = callableTools().get(name);
    if (found) return found;
    const agent = namedAgents(current(), caller).find((one) => one.name === name);
    if (!agent) throw unknownTool(name);
    return agentToolCallable(agent);
  }

  async function planCall(round: Round): Promise<PlannedCall> {
    const engine = current();
    const { policy } = engine;
    const { callable, input, capabilities, emit, resume: _, signal: __, onStored: ___, ...run } = round;
    const { name, outputSchema } = callable;
    const request = requestFor(callable);
    const agentInput = callable.type === 'agent' ? await checkedInput(callable, input) : undefined;
    const plan: RunPlan = {
      ...run,
      request,
      model: callingModel(name, JSON.stringify(input)),
      instructions: '',
      messages: [userText(`Call ${name}.`)],
      size: 0,
      toolset:
        callable.type === 'agent'
          ? NO_TOOLS
          : await toolsetOf(request, engine, run.caller, { recorded: run.recorded, own: callable.own }),
      policy,
      waits: true,
      facts: run.caller.facts,
      context: mcpContext(capabilities),
      ...(callable.type === 'tool' && callable.own && { given: { agent: name, values: [input] } }),
    };
    const output = walkRun(callProjection, { emit });
    if (callable.type === 'agent') return { plan, output, ...agentRun(round, callable, { input: agentInput, output }) };
    const result = (ending: Ending): CallToolResult => {
      const answered = output.result();
      return answered ? toolResult(answered, outputSchema !== undefined) : endResult(ending);
    };
    return { plan, output, result };
  }

  /** The run of an agent. It is not one of the loop itself: an agent may need several attempts. */
  function agentRun(
    { id, caller, resume }: Round,
    { agent, outputSchema }: Callable & { readonly type: 'agent' },
    { input, output }: { readonly input: unknown; readonly output: CallWalk },
  ): Pick<PlannedCall, 'start' | 'result'> {
    const engine = current();
    const { limits, everyRun: { verifyAnswer, audit, resultFilters, exposes, tracing } = {} } = engine;
    const { durationMs = limits.maxDurationMs } = agent.limits ?? {};
    let executed: ExecuteResult<unknown> | undefined;
    function start({ lease, context, facts, policy }: RunPlan): DrivenRun {
      const [stop, leave] = [new AbortController(), new AbortController()];
      const ledger = ledgerOf(engine, caller, resume);
      const answered = resume?.answers?.length ? Promise.withResolvers<void>() : undefined;
      const logCall = callLog(log, { id, caller, policy });
      async function execute(): Promise<RunEnd> {
        try {
          executed = await executeAgent(agent, {
            input,
            runId: id,
            journal: runJournal(store, lease),
            signal: stop.signal,
            detach: leave.signal,
            limits: { durationMs },
            principal: principalOf(caller),
            ...(!resume && facts),
            context,
            ...(policy && { policy }),
            ...(ledger && { ledger }),
            ...(verifyAnswer && { verifyAnswer }),
            ...(audit && { audit }),
            ...(resultFilters && { resultFilters }),
            ...(exposes && { exposes }),
            ...(tracing && { tracing }),
            killProcess,
            ...(resume && { answers: resume.answers ?? [], acceptChangedTools: true }),
            onItem(item) {
              // The answers are stored together with the first event.
              if (item.type === 'fact') answered?.resolve();
              logCall(item);
              return output.add(item);
            },
          });
          return agentEnd(executed);
        } catch (error) {
          if (isRejectedAnswer(error)) return { rejectedAnswer: error };
          throw error;
        }
      }
      const run: DrivenRun = {
        cancel: () => stop.abort(),
        async detach() {
          leave.abort();
          await run.ended.catch(() => {});
        },
        send: async () => false,
        // Nothing narrows the run of a typed agent by a name.
        liftNarrowing: async () => false,
        answer: () => Promise.reject(new TreadleError('answer-unfit', 'The run takes answers when it has paused.')),
        ...(answered && { answered: answered.promise }),
        ended: execute(),
      };
      return run;
    }

    function result(ending: Ending): CallToolResult {
      if (!executed) return endResult(ending);
      if (executed.type === 'success') return outputResult(executed.output, outputSchema !== undefined);
      return errorResult(executed.error.message);
    }

    return { start, result };
  }

  /** Drives the run of a call until it ends or waits, and stores its end. */
  function driveCall({ plan, output, start, result }: PlannedCall, { resume, signal }: Round): DrivenRequest<RoundEnd> {
    return all.drive<RoundEnd>(plan, {
      output,
      start,
      signal,
      resume,
      async finish({ ending }, releaseLease) {
        const end = ending.type === 'failed' ? endResult(ending) : result(ending);
        await records.finish(plan.id, { status: statusOf(ending), response: end, at: Date.now() });
        await releaseLease();
        return { result: end };
      },
      interrupt: (interruption) => ({ interruption }),
    });
  }

  async function startCall(round: Round): Promise<RoundEnd> {
    const { id, callable, input, caller } = round;
    const { tenant } = caller;
    const now = Date.now();
    const request: StoredCall = {
      name: callable.name,
      arguments: input,
      ...storedCaller({ caller, facts: caller.facts }),
    };
    const kind: RequestKind = 'mcp-call';
    const record = { id, kind, tenant, runId: id, status: 'in_progress', createdAt: now, updatedAt: now, request };
    const created = await all.create({
      tenant,
      plan: () => planCall(round),
      complete: (planned) => ({ request: planned, stored: { record } }),
    });
    round.onStored?.();
    return driveCall(created, round).finished.finally(created.releaseCapacity);
  }

  async function continueCall(record: RequestRecord, round: Round, caller: Caller): Promise<RoundEnd> {
    const { release: releaseCapacity } = runs.reserve(caller.tenant);
    try {
      // Somebody may have answered over the runs API.
      await all.whenEnded(record.id);
      const taken = await takeOverSoon(record);
      if (taken) {
        const planned = await all.continueTaken(taken, () =>
          planCall({ ...round, journal: store, lease: taken.lease }),
        );
        return await driveCall(planned, round).finished;
      }
      const ended = await readRecord(store, record.id, caller);
      return { result: (ended?.response as CallToolResult | undefined) ?? errorResult('The call was deleted.') };
    } finally {
      releaseCapacity();
    }
  }

  /** Another server may have the run for a moment, to see whether it has to be resumed. */
  async function takeOverSoon(record: RequestRecord): Promise<TakenRecord | undefined> {
    for (let attempt = 1; ; attempt++) {
      try {
        return await all.takeOver(record, isOpenRecord);
      } catch (error) {
        if (!isDrivenElsewhere(error) || attempt === MOST_ATTEMPTS) throw error;
        await delay(attempt * ATTEMPT_MS);
      }
    }
  }

  async function planStored({ record, run, resume }: TakenRun): Promise<PlannedRequest & Resumption> {
    const { name, arguments: input } = record.request as StoredCall;
    const callable = callableNamed(name, run.caller);
    const round: Round = { ...run, callable, input, capabilities: {}, emit: () => {}, ...(resume && { resume }) };
    const planned = await planCall(round);
    return { plan: planned.plan, drive: () => driveCall(planned, round) };
  }

  async function failCall({ record }: ReplayedRecord, { error, at }: FailedEnding): Promise<void> {
    await records.finish(record.id, { status: 'failed', response: errorResult(error.message), at });
  }

  /** The record that the state of a client names, and how many entries its run had then. */
  async function findCall(
    { name, arguments: input, state = '' }: McpCallRequest,
    caller: Caller,
  ): Promise<{ readonly record: RequestRecord; readonly entries: number }> {
    const [, id, number] = STATE.exec(state) ?? [];
    const record = id === undefined ? undefined : await readRecord(store, id, caller);
    const request = record?.request as StoredCall | undefined;
    if (!record || request?.name !== name || stableJson(request.arguments) !== stableJson(input)) throw invalidState();
    return { record, entries: Number(number) };
  }

  const call: McpCalls['call'] = async (request, caller) => {
    const { name, arguments: input, capabilities, signal, emit, task } = request;
    const callable = callableNamed(name, caller);
    if (!mayCall(caller, callable)) throw lacksScope(callable, caller);
    const found = request.state === undefined ? undefined : await findCall(request, caller);
    if (found?.record.response !== undefined) return found.record.response as CallToolResult;
    const common = { id: found?.record.id ?? newMcpCallId(), callable, input, caller, capabilities, emit, signal };
    const { id } = common;
    const responses = new Map(Object.entries(request.responses ?? {}));
    let rejected: string | undefined;
    const onStored = (): void => task?.created(id);
    if (found) onStored();
    else {
      const { result, interruption } = await unlessDriven(startCall({ ...common, onStored }));
      if (result) return result;
      rejected = rejectedBy(interruption);
    }
    const record = found?.record ?? (await readRecord(store, id, caller));
    if (!record) throw invalidState();
    for (let isAsked = found !== undefined; ; isAsked = false) {
      const { state, items, entries } = await readRun(id, caller);
      // Answers to another state of the run do not count.
      if (isAsked && entries !== found?.entries) responses.clear();
      const waits = keyedWaits(state, callable);
      if (waits.length > 0 && onlyParked(waits)) return task ? 'left' : errorResult(inBackground(id));
      const client = { responses, isAsked, capabilities, caller, rejected };
      const answers = answersTo(waits, client);
      if (answers === 'declined' || (waits.length > 0 && answers.length === 0)) {
        if (task?.isTask()) return 'left';
        const requests = answers === 'declined' ? undefined : requestsFor(waits, client);
        const lacks = (one: InputRequest): boolean => capabilities[neededCapability(one)] === undefined;
        // The SDK refuses to send what the client does not support.
        const isRefused = !requests || Object.values(requests).some(lacks);
        if (isRefused) await all.resume(record, { cancel: true });
        if (requests) return inputRequired({ inputRequests: requests, requestState: `${id}.${entries}` });
        return errorResult(answers === 'declined' ? DECLINED : notForClients(waits));
      }
      const resume = { items, answers, usedTokens: 0 };
      const { result, interruption } = await unlessDriven(continueCall(record, { ...common, resume }, caller));
      if (result) return result;
      rejected = rejectedBy(interruption);
    }
  };

  async function unlessDriven<T>(work: Promise<T>): Promise<T> {
    return work.catch((error: unknown) => {
      if (isDrivenElsewhere(error)) throw internal('Another request continues this call. Wait for its result.');
      throw error;
    });
  }

  async function readRun(
    id: string,
    caller: Caller,
  ): Promise<{ state: State; items: readonly Item[]; entries: number }> {
    const entries = await readEntries(store, id, caller);
    const items: Item[] = [];
    const { state } = await walkInSlices(entries, (step) => void items.push(...step.items));
    return { state, items, entries: entries.length };
  }

  async function cancelWaiting(state: string, { tenant }: RunCaller): Promise<void> {
    const [, id = ''] = STATE.exec(state) ?? [];
    try {
      const record = await records.head(tenant, id);
      if (record && isOpenRecord(record)) await all.resume({ ...record, tenant }, { cancel: true });
    } catch (error) {
      if (!isDrivenElsewhere(error)) log.warn({ err: error, run: id }, 'a call over MCP was not cancelled');
    }
  }

  return {
    offered,
    call,
    cancel: cancelWaiting,
    api: { waits: true, plan: planStored, fail: failCall },
  };
}

/** How often a call that another server has is tried to continue, and how much longer each pause is than the one before. */
const MOST_ATTEMPTS = 8;
const ATTEMPT_MS = 20;

const STATE = new RegExp(`^(${MCP_CALL_PREFIX}[0-9a-f]{32})\\.(\\d{1,9})$`);

/** An agent has its own tools. */
const NO_TOOLS: Toolset = {
  tools: [],
  foundTools: [],
  toolChoice: 'auto',
  kinds: { kindOf: () => 'server', labelOf: () => OWN_LABEL },
  lists: [],
  labels: new Set(),
  close: async () => {},
};

/** A call of the server's own tool, as the other APIs request it. An agent is not one of them. */
function requestFor({ name, ...callable }: Callable): RunRequest {
  return {
    functions: [],
    otherTools: 'own' in callable ? [] : [{ type: 'mcp', server_label: OWN_LABEL, allowed_tools: [name] }],
    toolChoice: 'auto',
    parallel: true,
    settings: {},
    truncation: 'disabled',
  };
}

function rejectedBy(interruption: Interruption | undefined): string | undefined {
  if (interruption && isUnfit(interruption)) return interruption.reason;
  if (interruption && interruption.code !== 'response_waiting') throw internal(interruption.reason);
  return undefined;
}

function agentEnd(result: ExecuteResult<unknown>): RunEnd {
  const { tokens } = result.metadata;
  const common = { at: Date.now(), usage: { inputTokens: tokens?.input ?? 0, outputTokens: tokens?.output ?? 0 } };
  if (result.type === 'success') return { ending: { type: 'completed', ...common } };
  const { error } = result;
  switch (error.code) {
    case 'EXECUTION_PAUSED':
      return error.context.waiting.length > 0 ? { isAsleep: true, waiting: error.context.waiting } : {};
    case 'EXECUTION_CANCELLED':
      return { ending: { type: 'cancelled', ...common } };
    default:
      return { ending: { type: 'failed', error: { code: error.code, message: error.message }, ...common } };
  }
}

function statusOf({ type }: Ending): string {
  return type === 'pending' ? 'failed' : type;
}

/** The result of a call that has none of its own. */
function endResult(ending: Ending): CallToolResult {
  switch (ending.type) {
    case 'failed':
      return errorResult(ending.error.message);
    case 'incomplete':
      return errorResult(ending.message ?? `The call ended at a limit: ${ending.reason}.`);
    case 'cancelled':
      return errorResult('The call was cancelled.');
    case 'completed':
    case 'pending':
      return errorResult('The call has no result.');
    default:
      return ending satisfies never;
  }
}

const DECLINED = 'The call was cancelled: the user did not answer a question of the tool.';

function notForClients(waits: readonly Waiting[]): string {
  const names = waits.map(({ call }) => call.name).join(', ');
  return `The call was cancelled: ${names} needs an approval or an answer of somebody else, which MCP cannot provide.`;
}

function inBackground(id: string): string {
  return `The call waits for something that takes long, and continues in the background. Its run is treadle://runs/${id}.`;
}

function invalidState(): ProtocolError {
  return new ProtocolError(ProtocolErrorCode.InvalidParams, 'Invalid or expired requestState');
}

function internal(message: string): ProtocolError {
  return new ProtocolError(ProtocolErrorCode.InternalError, message);
}

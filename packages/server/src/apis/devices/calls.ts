import { userText, waiting, type ToolResult, type Waiting } from '@treadle/core';
import type { RequestRecord } from '@treadle/store';
import { callingModel } from '@treadle/tools/calling-model';
import { ApiError, badRequest } from '../../api-error.ts';
import type { Engine } from '../../engine/engine.ts';
import { readRecord } from '../../engine/stored-reads.ts';
import { toolsetOf } from '../../engine/tools.ts';
import { storedState } from '../../history/conversation.ts';
import type { Caller } from '../../http/admission.ts';
import { newResponseId } from '../../ids.ts';
import type { Ending } from '../../requests/ending.ts';
import { walkRun, type Projection } from '../../requests/projection.ts';
import type {
  DrivenRequest,
  FailedEnding,
  PlannedRequest,
  RecordToStore,
  ReplayedRecord,
  Requests,
  Resumption,
  StoredEnd,
  TakenRun,
} from '../../requests/requests.ts';
import {
  storedCaller,
  type ResumedRun,
  type RunPlan,
  type RunRequest,
  type StoredCaller,
  type StoredRunPlan,
} from '../../requests/run.ts';
import { statusOf } from '../chat/projection.ts';
import { wireWaiting } from '../runs/routes.ts';
import type { WireDeviceCallResult } from './wire.ts';

/**
 * Single calls of the tools of devices, such as those that a page tries. Each is a stored run with one call: the policy judges it,
 * it may wait for an approval or for the device, and it is resumed if its process dies.
 */
export interface DeviceCalls {
  /** Starts a call, and does not wait for it. Rejects with an `ApiError` if it cannot be made. */
  start(call: DeviceCallRequest, caller: Caller): Promise<WireDeviceCallResult>;
  /** Rejects with a 404 if the device has no such call of this tenant. */
  retrieve(device: string, id: string, caller: Caller): Promise<WireDeviceCallResult>;
}

export interface DeviceCallRequest {
  readonly device: string;
  readonly tool: string;
  readonly arguments: Readonly<Record<string, unknown>>;
}

/** The stored request of a call. The store's records contain it, so its fields must not change. */
interface StoredDeviceCall extends StoredCaller, DeviceCallRequest {}

/** The end of a call. Stored as JSON, so its fields must not change. */
type StoredCallEnd = Pick<WireDeviceCallResult, 'content' | 'is_error' | 'error_type'>;

/** Begins the id of the record of a call. The rest is that of its run. */
const PREFIX = 'device_';

export function deviceCalls(engine: Engine, stored: Requests): DeviceCalls {
  const { store } = engine;
  stored.register('device-call', { waits: true, plan: planStored, fail: failCall });

  async function planCall(call: DeviceCallRequest, run: StoredRunPlan): Promise<RunPlan> {
    const { device, tool, arguments: input } = call;
    const request = requestFor(call);
    // Without keys the caller is a person, who can be asked.
    const policy = (run.caller.key === '' && engine.askingPolicy) || engine.policy;
    const toolset = await toolsetOf(request, { ...engine, policy }, run.caller, { recorded: run.recorded, own: [] });
    return {
      ...run,
      request,
      model: callingModel(tool, JSON.stringify(input)),
      instructions: '',
      messages: [userText(`Call ${tool} of the device ${device}.`)],
      size: 0,
      toolset,
      policy,
      waits: true,
      facts: { ...run.caller.facts, labels: { ...run.caller.facts?.labels, device } },
    };
  }

  async function start(call: DeviceCallRequest, caller: Caller): Promise<WireDeviceCallResult> {
    const { tenant, key, scopes, requestId, facts } = caller;
    const runCaller = { tenant, key, scopes, requestId, ...(facts && { facts }) };
    const created = await stored.create({
      tenant,
      async plan() {
        const plan = await planCall(call, { id: newResponseId(), caller: runCaller });
        const problem = await missingTool(plan, call);
        if (problem) throw problem;
        return { plan };
      },
      complete(planned) {
        const { plan } = planned;
        const now = Date.now();
        const record: RecordToStore<StoredDeviceCall> = {
          id: PREFIX + plan.id,
          kind: 'device-call',
          tenant,
          runId: plan.id,
          status: 'in_progress',
          createdAt: now,
          updatedAt: now,
          request: { ...call, ...storedCaller(plan) },
        };
        return { request: planned, stored: { record } };
      },
    });
    const { plan, record, releaseCapacity } = created;
    caller.runId = plan.id;
    const { finished } = drive(plan, record!);
    // A failure is stored, and logged where it happens.
    finished.then(releaseCapacity, releaseCapacity);
    return unfinished(record!, []);
  }

  function drive(plan: RunPlan, { id }: RequestRecord, resume?: ResumedRun): DrivenRequest<StoredEnd> {
    const output = walkRun(lastResult, { emit: () => {} });
    return stored.drive<StoredEnd>(plan, {
      id,
      output,
      resume,
      endsWithServer: false,
      async finish({ ending }, releaseLease) {
        await storeEnd(id, ending, output.result());
        await releaseLease();
        return {};
      },
      interrupt: (interruption) => ({ interruption }),
    });
  }

  async function storeEnd(id: string, ending: Ending, result: ToolResult | undefined): Promise<void> {
    const response: StoredCallEnd = result ? wireResult(result) : failedResult(endText(ending));
    await store.requests.finish(id, { status: statusOf(ending), response, at: ending.at });
  }

  async function planStored({ record, run, resume }: TakenRun): Promise<PlannedRequest & Resumption> {
    const plan = await planCall(record.request as StoredDeviceCall, run);
    return { plan, drive: () => drive(plan, record, resume) };
  }

  async function failCall({ record }: ReplayedRecord, { error, at }: FailedEnding): Promise<void> {
    await store.requests.finish(record.id, { status: 'failed', response: failedResult(error.message), at });
  }

  async function retrieve(device: string, runId: string, { tenant, hold }: Caller): Promise<WireDeviceCallResult> {
    const reader = { tenant, ...(hold && { hold }) };
    const record = await readRecord(store, PREFIX + runId, reader);
    const request = record?.request as StoredDeviceCall | undefined;
    if (!record || request?.device !== device) throw noCall(device, runId);
    if (record.response !== undefined)
      return { ...unfinished(record, []), ...(record.response as StoredCallEnd), status: 'ended' };
    const state = await storedState(store, runId, reader);
    return unfinished(record, state ? waiting(state) : []);
  }

  return { start, retrieve };
}

function requestFor({ device, tool }: DeviceCallRequest): RunRequest {
  return {
    functions: [],
    otherTools: [{ type: 'mcp', server_label: `device:${device}`, allowed_tools: [tool], require_approval: 'never' }],
    toolChoice: 'auto',
    parallel: true,
    settings: {},
    truncation: 'disabled',
  };
}

/** The device is away, so that its tools are not known, or it has no such tool. */
async function missingTool({ toolset }: RunPlan, { device, tool }: DeviceCallRequest): Promise<ApiError | undefined> {
  if (toolset.tools.some(({ name }) => name === tool)) return undefined;
  await toolset.close();
  const unlisted = unlistedDevice(toolset, device);
  if (unlisted) return unlisted;
  const message = `The device ${JSON.stringify(device)} has no tool ${JSON.stringify(tool)}.`;
  return badRequest(message, 'tool', 'unknown_tool');
}

/** Why the tools of the device are not known: it has never been there since this server was started. */
export function unlistedDevice({ lists }: RunPlan['toolset'], device: string): ApiError | undefined {
  const { error } = lists.find(({ label }) => label === `device:${device}`) ?? {};
  return error === undefined ? undefined : new ApiError(503, 'server_error', error, { code: 'device_offline' });
}

const lastResult: Projection<{ answered: ToolResult | undefined }, never, ToolResult | undefined> = {
  start: () => ({ answered: undefined }),
  project(state, item) {
    if (item.type === 'call-answered') state.answered = item.result;
    return [];
  },
  result: ({ answered }) => answered,
};

function wireResult({ content, isError, errorType }: ToolResult): StoredCallEnd {
  return { content, is_error: isError ?? false, error_type: errorType ?? null };
}

function failedResult(text: string): StoredCallEnd {
  return { content: [{ type: 'error', text }], is_error: true, error_type: null };
}

function endText(ending: Ending): string {
  if (ending.type === 'failed') return ending.error.message;
  return ending.type === 'cancelled' ? 'The call was cancelled.' : 'The call has no result.';
}

function unfinished({ runId, request }: RequestRecord, open: readonly Waiting[]): WireDeviceCallResult {
  const { device, tool } = request as StoredDeviceCall;
  return {
    object: 'device.call',
    device,
    tool,
    run_id: runId,
    status: open.length === 0 ? 'in_progress' : 'waiting',
    waiting: open.map(wireWaiting),
    content: [],
    is_error: false,
    error_type: null,
  };
}

function noCall(device: string, runId: string): ApiError {
  const message = `The device ${JSON.stringify(device)} has no call ${JSON.stringify(runId)}.`;
  return new ApiError(404, 'not_found_error', message, { code: 'run_not_found' });
}

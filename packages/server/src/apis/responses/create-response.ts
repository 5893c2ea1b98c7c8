import { memoryJournal, type Model, type ToolResult } from '@treadle/core';
import { PRIVATE_LABEL } from '@treadle/core/memory';
import { encodeInput, type RequestRecord } from '@treadle/store';
import { badRequest, type ApiError } from '../../api-error.ts';
import type { ContinuedConversation } from '../../history/conversation-history.ts';
import { textAndTitle } from '../../history/record-items.ts';
import { decidedBefore, decisionKeys, findDecision } from '../../requests/approvals.ts';
import type { ApprovedCall, ConversationBefore, ConversationParts, OpenTurn } from '../../history/conversation.ts';
import { modelNamed, type Capacity, type Engine } from '../../engine/engine.ts';
import type { RequestKey } from '../../requests/idempotency.ts';
import { acceptsMedia, checkSettings, notTaken } from '../../engine/request-model.ts';
import type { NewRecord, NewRequest, PlannedRequest, RecordToStore, Requests } from '../../requests/requests.ts';
import { planRun, storedCaller, type RunPlan } from '../../requests/run.ts';
import { readRecord } from '../../engine/stored-reads.ts';
import type { ServerList } from '../../engine/executors.ts';
import type { Caller } from '../../http/admission.ts';
import { LARGE, nextTurn } from '../../http/large-work.ts';
import { itemOrigin, KEYED_PREFIX, newResponseId } from '../../ids.ts';
import { fileBlock } from '../../parse/media.ts';
import { shortenedConversation } from './compaction.ts';
import type { BegunCall } from './turn-items.ts';
import { newResponse, storable, type ResponseRequest } from './parse-request.ts';
import type { TenantSeal } from './reasoning-seal.ts';
import { withTools, type LocalConversations } from '../../history/request-conversation.ts';
import type { FunctionTool } from '../../engine/tools.ts';
import type { ResponseDriver, ResponseRun } from './response.ts';
import type { StoredRequest } from './stored-request.ts';
import { denialText, refusedResult } from '../../history/restore-messages.ts';
import type { CustomCallOutputItem, FunctionCallOutputItem, InputItem, InputPart, ResponseResource } from './wire.ts';

/*
 * Creates a response: checks its request, plans its run, and stores it before the run starts.
 */

interface NewResponse {
  readonly parsed: ResponseRequest;
  readonly caller: Caller;
  readonly key: RequestKey | undefined;
  readonly local: LocalConversations | undefined;
}

/** A response whose tools are open. */
interface PlannedResponse extends PlannedRequest {
  readonly plan: RunPlan;
  readonly request: ResponseRequest;
  readonly system: readonly string[];
  readonly before: ConversationBefore | undefined;
  readonly counted: number;
  readonly reported: ReadonlySet<string>;
  readonly declared: readonly FunctionTool[];
  readonly continues: ContinuedConversation | undefined;
  readonly compaction: string | undefined;
}

/** A response that is about to be driven, and what another response needs to continue it. */
export interface CompleteResponse extends PlannedRequest {
  readonly plan: RunPlan;
  readonly run: Omit<ResponseRun, 'listener'>;
  readonly parts: ConversationParts;
}

interface CreatorOptions extends Pick<ResponseDriver, 'requestConversation' | 'sealsFor'> {
  readonly engine: Engine;
  readonly requests: Pick<Requests, 'keyToStore' | 'drive'>;
  readonly compactionSealFor: (tenant: string) => Promise<TenantSeal>;
}

/** Returns what `Requests.create` needs for a response. Rejects with an `ApiError` for a request that cannot be served. */
export function responseCreator(
  options: CreatorOptions,
): (response: NewResponse) => NewRequest<PlannedResponse, CompleteResponse> {
  const { engine, requests, compactionSealFor, requestConversation, sealsFor } = options;
  const { store } = engine;
  const records = store.requests;

  async function planResponse(
    { parsed, caller, local, key }: NewResponse,
    hold: Capacity['hold'],
  ): Promise<PlannedResponse> {
    const continued = await requestConversation(parsed, caller, { local, hold });
    const { input, system, conversation, before, counted, reported, declared, continues } = continued;
    const request = { ...parsed, input, functions: withTools(parsed.functions, declared) };
    checkSupport(modelNamed(engine, request.model, caller.scopes), parsed, request.model ?? engine.models.default);
    const id = newResponseId();
    const shortened =
      request.compactFrom !== undefined &&
      (await shortenedConversation(conversation, system, { engine, requests, caller, request, hold }, () =>
        compactionSealFor(caller.tenant),
      ));
    const { compaction, messages } = shortened || { ...conversation, compaction: undefined };
    const sent = { ...conversation, messages };
    const keeps = request.store || local !== undefined;
    const plan = await planRun(engine, request, sent, {
      id,
      caller,
      waits: engine.waits ?? false,
      approvals: true,
      keeps,
      session: continues?.conversation?.id ?? request.session,
      // It is stored for the operator or its key only.
      ...(!request.store && (engine.recordsUnstored || key) && { labels: PRIVATE_LABEL }),
    });
    return { plan, request, system, before, counted, reported, declared, continues, compaction };
  }

  /** Rejects with a 409 if another request has decided about the same calls. If it was the same request, creating this one fails. */
  async function checkUndecided(
    requestIds: readonly string[],
    { digest }: ResponseRequest,
    { tenant }: Caller,
  ): Promise<void> {
    for (const id of requestIds) {
      const used = await findDecision(records, tenant, id);
      if (used && used.digest !== digest) throw decidedBefore(id, used);
    }
  }

  /**
   * What the client decided, as far as it applies to the tools of this request.
   *
   * 1. It applies to the server that the client was asked about. Another one may have a tool of the same name now: the call is
   *    not executed there.
   * 2. A call that was denied is not executed, even if the request does not require approvals any more.
   * 3. If the server describes the tool differently now, the client is asked again.
   * 4. A call cannot be approved without its server. Throws a 400 then.
   */
  async function withDecisions(plan: RunPlan, open: OpenTurn, hold: Capacity['hold']): Promise<RunPlan> {
    const { toolset, messages, caller } = plan;
    const calls = messages.at(-1)!.content.filter((part) => part.type === 'tool-call');
    const approvals: ApprovedCall[] = [];
    const refused: ToolResult[] = [];
    const current = fingerprintsIn(toolset.lists);
    // Read once for all of its requests: it can be large.
    const responses = new Map<string, AskingResponse | undefined>();
    for (const approval of open.approvals) {
      const { requestId, index, approved } = approval;
      const call = calls[index]!;
      const { name } = call;
      const id = itemOrigin(requestId)?.response ?? '';
      if (id !== '' && !responses.has(id)) {
        const record = await readRecord(store, id, { tenant: caller.tenant, hold });
        responses.set(id, record && askingResponse(record));
      }
      const asked = responses.get(id);
      const label = approval.label ?? asked?.labels.get(requestId);
      if (approved && label !== undefined && !toolset.labels.has(label)) throw lacksServer(label, name);
      const kind = toolset.kinds.kindOf(name, index);
      const isServers = kind === 'server' || kind === 'approved-later';
      // A tool that the server added later was shown, but is not in the list.
      const isAdded = label !== undefined && asked?.listed.get(label)?.has(name) === false;
      const shown = isAdded ? '' : asked?.fingerprints.get(name);
      // The loop refuses it: there is no such tool.
      if (kind === 'refused') approvals.push(approval);
      else if (!isServers || (label !== undefined && label !== toolset.kinds.labelOf(name))) {
        refused.push(refusedResult(call, otherServerText(name, label)));
      } else if (!approved && kind !== 'approved-later') refused.push(refusedResult(call, denialText(name, approval)));
      else if (shown === undefined || shown === current.get(name)) approvals.push(approval);
    }
    return { ...plan, open: { ...open, answered: [...open.answered, ...refused], approvals } };
  }

  async function completeResponse(
    { caller, key, local }: NewResponse,
    planned: PlannedResponse,
    hold: Capacity['hold'],
  ): Promise<{ readonly request: CompleteResponse; readonly stored?: NewRecord }> {
    const { request, system, before, counted, reported, declared, continues, compaction } = planned;
    const { open: begun } = planned.plan;
    const decided = begun?.approvals.map(({ requestId }) => requestId) ?? [];
    const decides = begun !== undefined && decided.length > 0;
    if (decides) await checkUndecided(decided, request, caller);
    const plan = decides ? await withDecisions(planned.plan, begun, hold) : planned.plan;
    const { id, open } = plan;
    const { tenant } = caller;
    const seals = await sealsFor(request, system, { tenant, toolset: plan.toolset });
    hold(Math.max(0, plan.size - counted) + (compaction?.length ?? 0));
    const now = Date.now();
    const created = newResponse(id, request, engine.models.default, now);
    // What the conversation has is not reported again, but that a server is down is.
    const lists = plan.toolset.lists.map((list) =>
      list.error === undefined && reported.has(list.label) ? { ...list, isKnown: true as const } : list,
    );
    const listed = plan.toolset.lists.flatMap(({ label, error }) => (error === undefined ? label : []));
    const parts: ConversationParts = {
      system,
      ...(listed.length + reported.size > 0 && { reported: [...new Set([...reported, ...listed])] }),
      ...(declared.length > 0 && { declared }),
    };
    const begunWith = open && callsToBegin(plan, open);
    const run = { created, ...seals, ...(before && { before }), compaction, lists, begunWith, decided };
    // Decisions that were added to the conversation before have no digest: such a request is never a repeated one.
    const decisions = decides ? decisionKeys(decided, request.digest ?? 'conversation', now) : [];
    const isUnstored = !request.store && !key;
    if (isUnstored && !engine.recordsUnstored) {
      if (decides) await records.addKeys({ id, tenant: caller.tenant }, decisions, now);
      return { request: { plan: local ? { ...plan, journal: memoryJournal() } : plan, run, parts } };
    }
    const previous = continues ? continues.previous : request.previous;
    const keyToStore = key && requests.keyToStore(key, now);
    const record: RecordToStore<StoredRequest> = {
      id: request.store ? id : KEYED_PREFIX + id,
      kind: request.store ? 'response' : isUnstored ? 'unstored-response' : 'keyed-response',
      tenant,
      runId: id,
      status: 'in_progress',
      createdAt: now,
      updatedAt: now,
      ...(keyToStore && !request.store && { expiresAt: keyToStore.expiresAt }),
      ...(previous !== undefined && !isUnstored && { previous }),
      request: {
        request: isUnstored ? withoutCopies(storable(request)) : storable(request),
        ...parts,
        ...storedCaller(plan),
        ...(compaction !== undefined && { compaction }),
        ...(lists.length > 0 && { lists }),
        ...(open && { open, begunWith: [...begunWith!] }),
      },
      ...(!isUnstored && { response: created }),
    };
    if (isUnstored) {
      return {
        request: { plan, run: { ...run, record: record.id, isUnstored }, parts },
        stored: { record, keys: decisions },
      };
    }
    if (plan.size > LARGE) await encodeInput(request.input, nextTurn);
    const { input } = request;
    const stored = { record, keys: keyToStore ? [keyToStore, ...decisions] : decisions, input };
    const { conversation: found } = continues ?? {};
    return {
      request: { plan, run: { ...run, record: record.id, ...(key && { key }) }, parts },
      stored: found ? { ...stored, conversation: found.id, before: found, ...textAndTitle(input) } : stored,
    };
  }

  return (response) => ({
    tenant: response.caller.tenant,
    plan: (hold) => planResponse(response, hold),
    complete: (planned, hold) => completeResponse(response, planned, hold),
  });
}

/** The request without what the journal of its run has too. */
function withoutCopies(request: ResponseRequest): ResponseRequest {
  return { ...request, input: [], echo: { ...request.echo, tools: [] } };
}

/** Throws a 400 for what the model of a request does not take. */
export function checkSupport(model: Model, { settings, input }: ResponseRequest, name: string): void {
  const topLogprobs = settings.topLogprobs === 0 ? 'include' : 'top_logprobs';
  checkSettings(model, name, settings, { reasoning: 'reasoning.effort', topLogprobs });
  for (const [at, item] of input.entries()) {
    const [field, parts] = isOutput(item) ? ['output', item.output] : ['content', contentOf(item)];
    if (typeof parts === 'string') continue;
    for (const [index, part] of parts.entries()) {
      const param = `input[${at}].${field}[${index}]`;
      if (part.type === 'input_image' && part.detail !== 'auto') {
        if (!acceptsMedia(model, { type: 'image', detail: part.detail })) throw notTaken(name, `${param}.detail`);
      } else if (part.type === 'input_file' && part.file_url !== undefined) {
        const { filename, file_url: url } = part;
        if (acceptsMedia(model, fileBlock({ name: filename, url }))) continue;
        throw notTaken(name, `${param}.file_url`, "Send the file itself in 'file_data'");
      }
    }
  }
}

function isOutput(item: InputItem): item is FunctionCallOutputItem | CustomCallOutputItem {
  return item.type === 'function_call_output' || item.type === 'custom_tool_call_output';
}

function contentOf(item: InputItem): readonly InputPart[] {
  return item.type === 'message' && item.role === 'user' ? item.content : [];
}

/** What a response has told its client about the calls that it asked about. */
interface AskingResponse {
  /** The servers, by the ids of the requests for approvals. */
  readonly labels: ReadonlyMap<string, string>;
  /** The names of the tools that it listed, by their servers. */
  readonly listed: ReadonlyMap<string, ReadonlySet<string>>;
  readonly fingerprints: ReadonlyMap<string, string | undefined>;
}

function askingResponse({ request, response }: RequestRecord): AskingResponse {
  const { output = [] } = (response ?? {}) as Partial<ResponseResource>;
  const labels = output.flatMap((item) =>
    item.type === 'mcp_approval_request' ? [[item.id, item.server_label] as const] : [],
  );
  const { lists = [] } = (request ?? {}) as Partial<StoredRequest>;
  return {
    labels: new Map(labels),
    listed: new Map(lists.map(({ label, tools }) => [label, new Set(tools.map(({ name }) => name))])),
    fingerprints: fingerprintsIn(lists),
  };
}

/** By the name of the tool. Of two with the same name, the first one counts. */
function fingerprintsIn(lists: readonly ServerList[]): ReadonlyMap<string, string | undefined> {
  const tools = lists.flatMap((list) => list.tools);
  return new Map(tools.reverse().map(({ name, fingerprint }) => [name, fingerprint]));
}

function otherServerText(name: string, label: string | undefined): string {
  const server = label === undefined ? 'another server' : `the server ${JSON.stringify(label)}`;
  return `The call of "${name}" was for ${server}, which does not have a tool of this name now. It was not executed.`;
}

function lacksServer(label: string, tool: string): ApiError {
  const message = `The request approves the call of ${JSON.stringify(tool)} of the MCP server ${JSON.stringify(label)}, but has no such server. Send the server in 'tools', or deny the call.`;
  return badRequest(message, 'tools', 'unknown_tool');
}

/** The calls at the end of the conversation that have no result yet, by their index. */
function callsToBegin({ messages }: RunPlan, { answered, approvals }: OpenTurn): ReadonlyMap<number, BegunCall> {
  const calls = messages.at(-1)!.content.filter((part) => part.type === 'tool-call');
  const known = new Set(answered.map(({ callId }) => callId));
  const byIndex = new Map(approvals.map((approval) => [approval.index, approval]));
  return new Map(
    calls.flatMap((call, index) => {
      const approval = byIndex.get(index);
      return known.has(call.id) ? [] : [[index, { call, ...(approval && { approval }) }] as const];
    }),
  );
}

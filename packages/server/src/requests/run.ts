import {
  memoryJournal,
  narrowingSource,
  runLoop,
  startLoop,
  TreadleError,
  type Answer,
  type Carried,
  type Event,
  type Exposure,
  type Item,
  type Journal,
  type JournalEntry,
  type KillProcess,
  type Lease,
  type Ledger,
  type LoopOptions,
  type LoopResult,
  type Message,
  type Model,
  type ModelError,
  type NewRun,
  type Policy,
  type RunFacts,
  type RunStore,
  type Settings,
  type StartedRun,
  type StartingCall,
  type Tool,
  type ToolFacts,
  type Verdict,
  type Waiting,
} from '@treadle/core';
import { memoryLabel, PRIVATE_LABEL, type Recalled } from '@treadle/core/memory';
import { skillsSection } from '@treadle/core/skills';
import { encodeInput } from '@treadle/store';
import { matchPattern } from '@treadle/tools/patterns';
import { ApiError } from '../api-error.ts';
import { LARGE, nextTurn } from '../http/large-work.ts';
import { conversationSize, mergeSameRole, type Conversation, type OpenTurn } from '../history/conversation.ts';
import { agentModelName, agentNameIn, mayInvoke, servedName, type Engine, type RunControls } from '../engine/engine.ts';
import type { AgentInvocation, AgentPlan } from '../engine/agent-plan.ts';
import type { ServerList } from '../engine/executors.ts';
import { budgetFailure, publicFailure, type RunFailure } from '../engine/model-failure.ts';
import { requestModels, type AnswerFormat } from '../engine/request-model.ts';
import type { GivenToAgent } from './injection.ts';
import { endingOf, failureOfRun, type Ending } from './ending.ts';
import { callLog, runReport } from './run-report.ts';
import { principalOf, rulesIn, toolsetOf, type RunCaller, type Toolset, type ToolsRequest } from '../engine/tools.ts';

/** The fields of a validated request that determine its run. Both APIs produce them. */
export interface RunRequest extends ToolsRequest {
  /** Absent: the server's default. */
  readonly model?: string;
  /** False: one call at a time. */
  readonly parallel: boolean;
  /** For the whole run, over all turns. */
  readonly maxOutputTokens?: number;
  /** Without `maxOutputTokens`. */
  readonly settings: Settings;
  readonly format?: AnswerFormat;
  /** The client receives the answer while it is generated, so that it cannot be replaced. */
  readonly stream?: boolean;
  /** The run goes on without its client, and the events of its answer are stored: it cannot be replaced either. */
  readonly background?: boolean;
  /** A tool of another run has started it. Its own tools start no runs, so that no chain of them is without an end. */
  readonly isStarted?: true;
  /** What that run had seen. */
  readonly exposure?: Exposure;
  /** How the agent is invoked that `model` names. Absent: as a model. */
  readonly invocation?: AgentInvocation;
  /** `auto`: a conversation that is too long for the model is shortened. */
  readonly truncation: 'auto' | 'disabled';
  /** From this number of estimated tokens on, older turns are replaced by a summary. */
  readonly compactFrom?: number;
}

/** Everything that a run for a client needs. */
export interface RunPlan {
  readonly id: string;
  readonly request: RunRequest;
  readonly model: Model;
  /** The name of the model, without aliases. Absent: that of the request. */
  readonly modelName?: string;
  readonly instructions: string;
  readonly messages: readonly Message[];
  /** The characters of the messages and the instructions. */
  readonly size: number;
  readonly toolset: Toolset;
  readonly caller: RunCaller;
  /** Set if an agent answers. */
  readonly agent?: AgentPlan | undefined;
  /** What the client gives to an agent. Absent: no agent answers. */
  readonly given?: GivenToAgent;
  /** Judges the calls. */
  readonly policy?: Policy | undefined;
  /** Absent: the run is held in memory while it is driven. */
  readonly journal?: Journal;
  /** The lease of the run in `journal`. Its owner releases it. Absent: the run is acquired while it is driven. */
  readonly lease?: Lease;
  /**
   * The run may wait for approvals, answers to questions and results from outside, which come later, if it has a lease.
   * Absent: nobody can answer. Questions are refused, and the run fails if it needs something else.
   */
  readonly waits?: Waits;
  /** At a limit, the model is asked for a final answer. */
  readonly closingTurn?: boolean;
  /** What the tools of the run get as `context`. */
  readonly context?: unknown;
  /** The run begins with the calls at the end of `messages`. */
  readonly open?: OpenTurn;
  /** What a new run takes over of the last run of its conversation. */
  readonly carried?: Carried;
  /** Sources of narrowings in `carried` that do not apply to a new run. */
  readonly lift?: readonly string[];
  /** The id of the run that a new one continues. */
  readonly after?: string;
  /** A later run may continue it, so that what its tools hold is kept. */
  readonly keeps?: boolean;
  /** What a new run belongs to. */
  readonly facts?: RunFacts | undefined;
  /** The client approves calls in its next request, and the response waits for that. */
  readonly approvals?: boolean;
  /** The run is resumed only to be cancelled. It does nothing. */
  readonly isCancelled?: boolean;
  /** The tools that a run which is resumed has recorded. */
  readonly recorded?: readonly ToolFacts[];
}

/** What of the plan of a stored run follows from its record. */
export interface StoredRunPlan extends Pick<
  RunPlan,
  'id' | 'caller' | 'journal' | 'lease' | 'isCancelled' | 'recorded'
> {
  /** The definition of the agent that the run was started with. */
  readonly definition?: unknown;
}

interface PlannedRun extends StoredRunPlan, Pick<RunPlan, 'waits' | 'closingTurn' | 'approvals' | 'keeps'> {
  /** The session of a run whose request names none: its conversation. */
  readonly session?: string | undefined;
  /** Further labels of the run. */
  readonly labels?: RunFacts['labels'];
  /** The lists of tools that the run was started with, if it is resumed. */
  readonly lists?: readonly ServerList[] | undefined;
}

/**
 * Plans the run of a request. Rejects with an `ApiError` if it cannot be served. Whoever calls it closes the tools of the plan if
 * it is not driven: `Requests` does so for requests.
 */
export async function planRun(
  engine: PlanningEngine,
  request: RunRequest,
  conversation: Conversation,
  { lists, session, labels, definition, ...run }: PlannedRun,
): Promise<RunPlan> {
  const agent = await agentOf(engine, request, { caller: run.caller, definition });
  const { messages, open, after } = conversation;
  const { facts: named } = run.caller;
  const facts = withMemoryLabel(
    {
      ...(session !== undefined && { session }),
      ...named,
      ...(labels && { labels: { ...named?.labels, ...labels } }),
    },
    await memoryLabelOf(engine, after),
  );
  // A run that has started has it in its journal.
  const recalled =
    agent && definition === undefined ? await recalledFor(engine, agent, conversation, { ...run, facts }) : undefined;
  const exposure = recalled?.exposure ? { ...recalled.exposure, ...request.exposure } : request.exposure;
  const carried = exposure
    ? { ...conversation.carried, exposure: { ...exposure, ...conversation.carried?.exposure } }
    : conversation.carried;
  const name = agent ? agentModelName(agent.agent.name) : servedName(engine, request.model);
  const own = agent && servedName({ models: engine.models }, request.invocation?.options.model ?? agent.agent.model);
  const told = engine.instructionsFor?.(own === undefined ? [name] : [name, own]) ?? '';
  const instructions = [
    told,
    agent?.options.instructions ?? '',
    ...conversation.instructions,
    recalled?.instructions ?? '',
  ];
  const size = conversationSize({ messages, instructions });
  const { approvals = false } = run;
  if (size > LARGE) await nextTurn();
  // Before the model is told that they are gone.
  if (after?.hasProcesses) await engine.kept?.killAbandoned(after.id);
  const planned = {
    ...run,
    request,
    model: agent?.options.model ?? engine.models.models.get(name)!,
    modelName: name,
    agent,
    ...(agent && { given: givenTo(agent, request, conversation) }),
    messages: mergeSameRole(messages),
    ...(open && { open: { ...open, followUp: mergeSameRole(open.followUp) } }),
    ...(carried && { carried }),
    ...(after && { after: after.id }),
    ...(Object.keys(facts).length > 0 && { facts }),
    policy: engine.policy,
  };
  // The last step that can fail, because it opens tools.
  const toolset = await toolsetOf(request, engine, run.caller, {
    approvals,
    lists,
    recorded: run.recorded,
    own: agent?.own,
  });
  const skills = skillsFor(engine, toolset);
  return {
    ...planned,
    size: size + skills.length,
    instructions: [...instructions, skills].filter((text) => text !== '').join('\n\n'),
    toolset,
  };
}

/** What an agent with `memory` is told from before. */
async function recalledFor(
  { memory }: Pick<Engine, 'memory'>,
  { agent }: AgentPlan,
  { messages, open }: Conversation,
  { caller, facts }: { readonly caller: RunCaller; readonly facts: RunFacts },
): Promise<Recalled | undefined> {
  if (!memory || !agent.memory) return undefined;
  const { recalledBy, runOwner } = await import('@treadle/core/named-agents');
  const owner = runOwner({ principal: principalOf(caller), ...facts });
  return recalledBy(agent, { memory }, [...messages, ...(open?.followUp ?? [])], owner);
}

/** Whether the last run of the conversation used memory. */
async function memoryLabelOf(
  { memory, store }: Pick<Engine, 'memory' | 'store'>,
  after: Conversation['after'],
): Promise<string | undefined> {
  return memory && after && memoryLabel((await startedAgent(store, after.id)).started?.labels);
}

/** A conversation keeps what was said about its memory, and one that is private stays it. */
function withMemoryLabel(facts: RunFacts, before: string | undefined): RunFacts {
  const own = before === PRIVATE_LABEL.memory ? before : (memoryLabel(facts.labels) ?? before);
  return own === undefined ? facts : { ...facts, labels: { ...facts.labels, memory: own } };
}

/** What the model is told of skills. A tool of that name of somebody else has no mark. */
function skillsFor({ skills = [] }: Pick<Engine, 'skills'>, { tools }: Toolset): string {
  return tools.some(({ name, unnarrowed }) => name === 'skill' && unnarrowed) ? skillsSection(skills) : '';
}

/** Everything that people say in a conversation: clients of some APIs send all of it with each request. */
function givenTo(
  { agent }: AgentPlan,
  { invocation }: RunRequest,
  { messages, instructions, open }: Conversation,
): GivenToAgent {
  const said = [...messages, ...(open?.followUp ?? [])].filter(({ role }) => role === 'user');
  const values = [...instructions, ...said.map(({ content }) => content)];
  return { agent: agent.name, values, ...(invocation && { param: 'inputs' }) };
}

/** What of this server runs are planned with. */
type PlanningEngine = Pick<
  Engine,
  | 'models'
  | 'namedAgents'
  | 'skills'
  | 'serverTools'
  | 'instructionsFor'
  | 'policy'
  | 'waits'
  | 'kept'
  | 'store'
  | 'stopRun'
  | 'memory'
>;

/** The agent that answers a request; undefined if a model does. Throws a 403 if the key may use neither. */
async function agentOf(
  engine: PlanningEngine,
  { model, invocation, otherTools }: RunRequest,
  { caller, definition }: Pick<PlannedRun, 'caller' | 'definition'>,
): Promise<AgentPlan | undefined> {
  const named = agentNameIn(model);
  // What `__default__` stands for may have changed since the run was started.
  const { name: recorded } = (definition ?? {}) as { readonly name?: string };
  const name = named === undefined ? undefined : (recorded ?? engine.namedAgents?.registry.get(named)?.name ?? named);
  if (!mayInvoke(caller.scopes, name)) {
    const what = name === undefined ? 'models' : `the agent ${JSON.stringify(name)}`;
    const message = `The key "${caller.key}" may not use ${what}: its scopes name other agents.`;
    throw new ApiError(403, 'permission_error', message, { param: 'model', code: 'insufficient_scope' });
  }
  if (name === undefined) return undefined;
  const { policy, skills } = engine;
  const { planAgent } = await import('../engine/agent-plan.ts');
  return planAgent(engine, { name, invocation, definition, otherTools, caller, policy, skills });
}

/** How a run was started, and the name of its agent, if it has one. */
export async function startedAgent(
  store: Pick<Engine['store'], 'readPage'>,
  runId: string,
): Promise<{ readonly started?: Extract<Event, { type: 'run-started' }>; readonly name?: string }> {
  const [first] = await store.readPage(runId, 0);
  const started = first?.event.type === 'run-started' ? first.event : undefined;
  const { name } = (started?.definition ?? {}) as { readonly name?: string };
  return { ...(started && { started }), ...(name !== undefined && { name }) };
}

/**
 * Throws a 403 if a key that is limited to some agents acts on a run of another one, or of a model. `model`: what answers, of a run
 * that may not have started.
 */
export async function checkMayActOn(
  store: Pick<Engine['store'], 'readPage'>,
  runId: string,
  { key, scopes }: Pick<RunCaller, 'key' | 'scopes'>,
  model?: string,
): Promise<void> {
  if (mayInvoke(scopes)) return;
  const { started, name } = await startedAgent(store, runId);
  if (mayInvoke(scopes, started ? name : agentNameIn(model))) return;
  const message = `The key "${key}" may not act on the run ${JSON.stringify(runId)}: its scopes name other agents.`;
  throw new ApiError(403, 'permission_error', message, { code: 'insufficient_scope' });
}

/**
 * What of the definition of an agent has changed since a run of it was started, for people; undefined: nothing, or it is the run of a
 * model. `first`: the first event of the run.
 */
export async function definitionChange(
  { namedAgents }: Pick<Engine, 'namedAgents'>,
  first: Event,
): Promise<string | undefined> {
  if (first.type !== 'run-started' || first.definition === undefined || !namedAgents) return undefined;
  const { agentChange, recordedAgent } = await import('@treadle/core/named-agents');
  const pinned = recordedAgent(first.definition);
  return pinned && agentChange(pinned, namedAgents.registry);
}

export interface DrivenRun extends RunControls {
  /** Rejects if the run cannot start, or if the journal fails. */
  readonly ended: Promise<RunEnd>;
}

export interface RunEnd {
  /** Absent: the run was detached and can be resumed, or is asleep. */
  readonly ending?: Ending;
  /** The run is paused. It is resumed at the `wakeAt` that the store has, or when it is answered. */
  readonly isAsleep?: true;
  /** What a run that is asleep waits for. */
  readonly waiting?: readonly Waiting[];
  /** Why the answers that the run was resumed with cannot be used. Nothing was recorded. */
  readonly rejectedAnswer?: TreadleError;
  /** The failure that ended the run: of its model, or because a budget has not enough left for its first step. */
  readonly failure?: RunFailure;
  /** The run failed before the model had replied and a call had begun. So the client may send the same request again. */
  readonly isUntouched?: boolean;
  /** The sources of what narrows the run, and the next one of its conversation. */
  readonly narrowedBy?: readonly string[];
  /** What the loop has returned. Absent for a run that was never driven to its end. */
  readonly result?: LoopResult;
}

/** A run that is resumed. */
export interface ResumedRun {
  /** Its items so far. */
  readonly items: readonly Item[];
  /** The tokens that the model has generated. */
  readonly usedTokens: number;
  /** For what it waits for. */
  readonly answers?: readonly Answer[];
  /** A message that is added. */
  readonly input?: string;
  readonly lift?: LiftedNarrowing;
  /** It has ended, or is cancelled at once: the model is not called again. */
  readonly isOver?: boolean | undefined;
}

export interface LiftedNarrowing {
  readonly source: string;
  /** Who lifts it. */
  readonly by: string | undefined;
}

/** What of this server runs are driven with. */
export type DrivingEngine = Pick<
  Engine,
  | 'limits'
  | 'log'
  | 'driven'
  | 'keys'
  | 'models'
  | 'metrics'
  | 'kept'
  | 'ledgerFor'
  | 'agents'
  | 'everyRun'
  | 'newRun'
  | 'startRun'
>;

/** Starts or resumes a run. */
export function driveRun(
  plan: RunPlan,
  engine: DrivingEngine,
  listen: (item: Item) => void | Promise<void>,
  resume?: ResumedRun,
): DrivenRun {
  const { limits, log, startRun } = engine;
  const { id: runId, request, toolset, caller, open, policy } = plan;
  const waits = plan.lease !== undefined && (plan.waits ?? false);
  const report = runReport(plan, engine, { isResumed: resume !== undefined });
  const logCall = callLog(log, plan);
  caller.runId = runId;
  let failure: RunFailure | undefined;
  let budgetReason: string | undefined;
  let isSpent = false;
  let isCutOff = false;
  let hasActed = false;
  let last: Event | undefined;
  const answers = resume?.answers ?? [];
  /** The fact that records what the run was resumed for. Undefined: the first one. */
  const recordedBy = resume?.lift ? 'narrowing-lifted' : resume?.input === undefined ? undefined : 'input-added';
  const answered = answers.length > 0 || recordedBy ? Promise.withResolvers<void>() : undefined;

  function noteEvent(event: Event): void {
    last = event;
    failure = event.type === 'model-failed' ? publicFailure(event.error) : undefined;
    if (event.type === 'budget-refused') {
      budgetReason = event.reason;
      if (!hasActed) failure = budgetFailure(event.reason);
    }
    hasActed ||= ACTS.has(event.type);
    if (event.type !== 'model-replied') return;
    isCutOff = event.finish === 'length';
  }
  for (const item of resume?.items ?? []) if (item.type === 'fact') noteEvent(item.event);
  const wasCancelled = last?.type === 'cancel-requested';

  function logFailure({ code, status, message }: ModelError): void {
    log.warn({ run: runId, code, status, why: message }, 'the model failed');
  }

  const isLarge = plan.size > LARGE;
  const journal = runJournal(plan.journal ?? memoryJournal(), plan.lease);
  const modelOf = requestModels(request, {
    usedTokens: resume?.usedTokens ?? 0,
    isCutOff,
    isLarge,
    onSpent() {
      isSpent = true;
      run.cancel();
    },
  });
  const ledger = ledgerOf(engine, caller, resume);
  const agents = plan.agent ? plan.agent.options.agents : engine.agents;
  const common = {
    ...engine.everyRun,
    runId,
    // A program generates nothing, and reads the history that the loop has.
    model: plan.model.program ? plan.model : modelOf(plan.model),
    ...(agents && {
      agents: agents.map((agent) => ({ ...agent, ...(agent.model && { model: modelOf(agent.model) }) })),
    }),
    ...(ledger && { ledger }),
    tools: toolset.tools,
    ...(policy && { policy: plan.approvals ? namedAsks(policy) : policy }),
    ...(plan.context !== undefined && { context: plan.context }),
    ...(open && open.approvals.length > 0 && { beforePause: giveApprovals }),
    journal: isLarge ? appendedInTurn(journal, plan) : journal,
    // They are sent to the client.
    durableItems: true,
    ...(!waits && { canAnswer: false }),
    ...(startRun &&
      !request.isStarted && {
        startRun: (started: Omit<NewRun, 'id'>, { principal: _, ...call }: StartingCall) =>
          startRun(started, { ...call, caller, memory: memoryLabel(plan.facts?.labels) }),
      }),
    ...(plan.keeps && engine.kept && { kept: engine.kept.after(plan.after) }),
    killProcess,
    matchPattern,
    onItem(item: Item): void | Promise<void> {
      if (item.type === 'resource-problem') {
        log.warn({ run: runId, resource: item.name, why: item.problem }, 'a resource was not closed');
      } else if (item.type === 'budget-warning') {
        const { type: _, effect: _e, ...level } = item;
        log.warn({ run: runId, tenant: caller.tenant, ...level }, 'a budget has little left');
      }
      if (item.type === 'fact') {
        const { event } = item;
        if (event.type === 'model-failed') logFailure(event.error);
        noteEvent(event);
        report.noteEvent(event);
        // The answers are stored together with the first event.
        if (!recordedBy || event.type === recordedBy) answered?.resolve();
      } else if (item.type === 'call-answered') {
        report.noteCall(item);
      }
      logCall(item);
      return listen(item);
    },
  };
  const run = startedRun(
    resume
      ? { ...common, tools: [...toolset.tools, ...toolset.foundTools], acceptChangedTools: true, answers }
      : {
          ...engine.newRun,
          ...common,
          ...(toolset.foundTools.length > 0 && {
            tools: [...toolset.tools, ...calledTools(toolset.foundTools, plan.messages)],
          }),
          input: plan.messages,
          ...(open && { answered: open.answered }),
          ...(plan.carried && { carried: plan.carried }),
          ...(plan.instructions !== '' && { instructions: plan.instructions }),
          toolChoice: toolset.toolChoice,
          ...(toolset.allowedTools && { allowedTools: toolset.allowedTools }),
          settings: request.settings,
          ...(request.format?.strict && {
            output: request.format.schema,
            outputCheck: request.stream || request.background ? 'once' : 'repair',
          }),
          compaction:
            request.compactFrom === undefined ? request.truncation === 'auto' : { tokens: request.compactFrom },
          maxTurns: limits.maxTurns,
          toolTimeoutMs: limits.toolTimeoutMs,
          errorLimit: limits.errorLimit,
          ...(plan.closingTurn && { closingTurn: true }),
          // Calls for the client wait in parallel in any case.
          ...(!request.parallel && { maxParallel: 1 }),
          limits: {
            durationMs: limits.maxDurationMs,
            ...(request.maxToolCalls !== undefined && { calls: request.maxToolCalls }),
          },
          principal: principalOf(caller),
          ...plan.facts,
          ...(plan.agent && agentRules(plan, plan.agent, engine)),
        },
  );

  toolset.changes?.give(run);
  // They are recorded together with the start of the run.
  if (!resume) for (const source of plan.lift ?? []) void run.liftNarrowing(caller.key || undefined, source);
  if (resume?.input !== undefined) void run.send(resume.input);
  if (resume?.lift) void run.liftNarrowing(resume.lift.by, resume.lift.source);
  if (!resume) for (const message of open?.followUp ?? []) void run.send(message);

  /** What the client has decided about the calls that the run began with. */
  async function giveApprovals(waiting: readonly Waiting[]): Promise<void> {
    const byIndex = new Map(open!.approvals.map((approval) => [approval.index, approval]));
    for (const one of waiting) {
      const given = one.call.turn === 0 ? byIndex.get(one.call.index) : undefined;
      if (!given || one.type !== 'approval' || !isGivenByClient(one)) continue;
      const { approved, reason } = given;
      const { effect, digest } = one;
      await run.answer({ type: 'approval', effect, digest, approved, ...(reason && { reason }) });
    }
  }

  function isGivenByClient(one: Waiting): boolean {
    const { name, index } = one.call;
    return isClientAsked(one) && toolset.kinds.kindOf(name, index) === 'approved-later';
  }

  /** If a reply was cut off after a complete call for the client, the run is cancelled: the call is not to be answered. */
  async function cancelIfCutOff(result: LoopResult): Promise<LoopResult> {
    if (result.waiting.length === 0 || !isCutOff) return result;
    isSpent = true;
    return cancelPaused();
  }

  function cancelPaused(): Promise<LoopResult> {
    return runLoop({ ...common, acceptChangedTools: true, signal: AbortSignal.abort() });
  }

  /** Whether a run that was cancelled before it was resumed had ended because its tokens were used up. */
  function isUsedUp({ outcome }: LoopResult, { usedTokens }: ResumedRun): boolean {
    const { maxOutputTokens = Infinity } = request;
    return outcome?.type === 'cancelled' && outcome.phase === 'model' && usedTokens >= maxOutputTokens;
  }

  async function awaitEnd(): Promise<RunEnd> {
    let result: LoopResult;
    try {
      result = await cancelIfCutOff(await run.result);
    } catch (error) {
      if (!isRejectedAnswer(error) || answers.length === 0) throw error;
      return { rejectedAnswer: error };
    }
    if (result.detached) return {};
    const { outcome, waiting, wakeAt } = result;
    const rest = waiting.filter((one) => !isGivenByClient(one));
    const isForClient = rest.length === 0 && waiting.length > 0;
    if (plan.lease && !outcome && !isForClient && isAsleep(rest, wakeAt, waits)) {
      return { isAsleep: true, waiting };
    }
    if (wasCancelled && resume) isSpent ||= isCutOff || isUsedUp(result, resume);
    failure ??= failureOfRun(outcome);
    const ending = endingOf(result, { isSpent, failure, budgetReason, at: Date.now(), isGivenByClient });
    // It waits for somebody who cannot answer here. Nothing must happen after the client was told that it failed.
    if (ending.type === 'failed' && !result.outcome) await cancelPaused();
    const narrowedBy = sourcesOf(result.carried?.narrow);
    return {
      ending,
      result,
      ...(failure && { failure }),
      isUntouched: ending.type === 'failed' && !hasActed,
      ...(narrowedBy.length > 0 && { narrowedBy }),
    };
  }

  const started = addDriven(engine, plan, {
    ...run,
    ...(answered && { answered: answered.promise }),
    ended: awaitEnd(),
  });
  started.ended.then(
    (end) => {
      void toolset.close();
      report.end(end);
    },
    () => {
      void toolset.close();
      report.fail();
    },
  );
  return started;
}

/** What the definition of an agent says about a new run, with what the request adds. */
function agentRules(
  { request, facts }: RunPlan,
  { options }: AgentPlan,
  { newRun }: Pick<Engine, 'newRun'>,
): Partial<LoopOptions> {
  const { input: _, tools: _t, model: _m, agents: _a, instructions: _i, policy: _p, ...rules } = options;
  const { output: _o, outputText: _x, ...unchecked } = rules;
  const narrow = [newRun?.narrow ?? [], rules.narrow ?? []].flat();
  const { maxToolCalls: calls, format, stream, background } = request;
  return {
    // The client describes the answer that it needs.
    ...(format ? unchecked : rules),
    settings: { ...rules.settings, ...request.settings },
    ...(!request.parallel && { maxParallel: 1 }),
    limits: { ...rules.limits, ...(calls !== undefined && { calls }) },
    ...(!format && rules.output && (stream || background) && { outputCheck: 'once' }),
    ...(narrow.length > 0 && { narrow }),
    labels: { ...facts?.labels, ...rules.labels },
  };
}

/*
 * A run acts for the key that started it: it goes on only as long as the key exists, has not expired, and has the scopes that
 * it had. This is checked when a run is started or resumed, and whenever the keys are replaced.
 */

/** The part of a stored request that says who sent it. The requests of all APIs have it. */
export type StoredCaller = Pick<RunCaller, 'key' | 'scopes' | 'facts'>;

export function storedCaller({ caller: { key, scopes }, facts }: Pick<RunPlan, 'caller' | 'facts'>): StoredCaller {
  return { key, scopes, ...(facts && { facts }) };
}

/** Throws if the key that started a run is not valid any more. */
export function checkRunKey({ keys }: Pick<Engine, 'keys'>, caller: RunCaller): void {
  const why = keys?.whyRevoked(caller);
  if (why !== undefined) throw new ApiError(403, 'permission_error', mayNotContinue(why));
}

function mayNotContinue(why: string): string {
  return `The run may not continue. ${why}`;
}

/** Adds a run that this process drives, until it has ended. If its key is not valid any more, it is stopped, and fails. */
export function addDriven(
  { driven, keys }: Pick<Engine, 'driven' | 'keys'>,
  { id, caller }: Pick<RunPlan, 'id' | 'caller'>,
  run: DrivenRun,
): DrivenRun {
  let why: string | undefined;
  const stopIfRevoked = (): void => {
    why ??= keys?.whyRevoked(caller);
    if (why !== undefined) run.cancel();
  };
  const added = { ...run, ended: run.ended.then((end) => (why === undefined ? end : failedEnd(end, why))) };
  driven.set(id, added);
  const ignoreKeys = keys?.onReplaced(stopIfRevoked);
  const remove = (): void => {
    if (driven.get(id) === added) driven.delete(id);
    ignoreKeys?.();
  };
  added.ended.then(remove, remove);
  // The key may have been removed since the request was admitted. A run that is resumed to be cancelled stays one.
  if (keys?.whyRevoked(caller) !== undefined) run.cancel();
  return added;
}

/** The end of a run that was stopped. One that has ended by itself before that, or has paused, is left as it is. */
function failedEnd(end: RunEnd, why: string): RunEnd {
  const { ending } = end;
  if (ending?.type !== 'cancelled') return end;
  const { at, usage } = ending;
  return {
    ...end,
    ending: { at, usage, type: 'failed', error: { code: 'server_error', message: mayNotContinue(why) } },
  };
}

/** After one of these, something was done that must not be repeated. A run may begin with calls, before any reply. */
const ACTS: ReadonlySet<Event['type']> = new Set([
  'model-replied',
  'tool-settled',
  'tool-parked',
  'child-started',
  'questions-asked',
]);

/** The ledger of a run. One that was started with budgets cannot be resumed without, also if none apply to it any more. */
export function ledgerOf(
  { ledgerFor }: Pick<Engine, 'ledgerFor'>,
  caller: RunCaller,
  resume: ResumedRun | undefined,
): Ledger | undefined {
  return ledgerFor?.(principalOf(caller)) ?? (resume && wasBudgeted(resume) ? NO_BUDGETS : undefined);
}

function wasBudgeted({ items: [first] }: ResumedRun): boolean {
  return first?.type === 'fact' && first.event.type === 'run-started' && first.event.rules.budgeted === true;
}

export const NO_BUDGETS: Ledger = { reserve: () => ({ type: 'reserved' }), settle() {}, release() {} };

/** The tools that a conversation has found and called. */
function calledTools(found: readonly Tool[], messages: readonly Message[]): readonly Tool[] {
  const parts = messages.flatMap((message) => (message.role === 'assistant' ? message.content : []));
  const names = new Set(parts.map((part) => part.type === 'tool-call' && part.name));
  return found.filter(({ name }) => names.has(name));
}

/** Whether an answer was not recorded: the run does not wait for it, or `verifyAnswer` has refused it. */
export function isRejectedAnswer(error: unknown): error is TreadleError {
  return error instanceof TreadleError && (error.code === 'answer-unfit' || error.code === 'answer-refused');
}

/** Whether a call waits for an approval that only its tool requires, or the request. */
export function isClientAsked({ type, rule }: { readonly type: string; readonly rule?: string | undefined }): boolean {
  return type === 'approval' && rule === 'needsApproval';
}

/**
 * A policy whose asks always name a rule. So they differ from those of tools, which clients may answer: what a policy asks
 * about is not for the client to approve.
 */
function namedAsks(policy: Policy): Policy {
  if (rulesIn(policy)) return policy;
  const { rules, withRules, limits, exposes } = policy;
  const named = (verdicts: readonly Verdict[]): readonly Verdict[] =>
    verdicts.map((one) => (one?.type === 'ask' && one.rule === undefined ? { ...one, rule: 'policy' } : one));
  return {
    judge(...judged) {
      const verdicts = policy.judge(...judged);
      return Array.isArray(verdicts) ? named(verdicts) : Promise.resolve(verdicts).then(named);
    },
    ...(rules !== undefined && { rules }),
    ...(withRules && { withRules: (recorded: unknown) => namedAsks(withRules.call(policy, recorded)) }),
    ...(exposes && { exposes }),
    ...(limits && { limits: (autonomy) => limits.call(policy, autonomy) }),
  };
}

/** Whether a run waits for answers. `for-client`: also for the results of calls that the client executes. */
export type Waits = boolean | 'for-client';

/**
 * Whether a paused run is resumed later: it only waits for parked calls until a time, or, if it `waits`, for somebody other
 * than the client of its request.
 */
export function isAsleep(waiting: readonly Waiting[], wakeAt: number | undefined, waits: Waits = false): boolean {
  if (onlyParked(waiting) && wakeAt !== undefined) return true;
  return waits !== false && waiting.some(({ type }) => waits === 'for-client' || type !== 'client');
}

export function onlyParked(waiting: readonly Waiting[]): boolean {
  return waiting.every(({ type }) => type === 'parked');
}

/** Ends processes that tools of an interrupted run have left behind. */
export const killProcess: KillProcess = async (left) => {
  const store = await import('@treadle/store');
  return store.killProcess(left);
};

/** A run that cannot start ends like one that fails later: its result rejects. */
function startedRun(options: Parameters<typeof startLoop>[0]): StartedParts {
  try {
    return startLoop(options);
  } catch (error) {
    const result = Promise.reject(error);
    const no = async (): Promise<boolean> => false;
    return {
      cancel() {},
      detach: async () => {},
      send: no,
      changeTools: no,
      liftNarrowing: no,
      answer: () => result,
      result,
    };
  }
}

type StartedParts = Pick<
  StartedRun,
  'cancel' | 'detach' | 'send' | 'changeTools' | 'liftNarrowing' | 'answer' | 'result'
>;

/**
 * The journal as the loop sees it: without storage for long results, and with the lease that the caller has.
 *
 * With that storage, the model would be offered a tool that reads long results, and the next response of the
 * conversation, which is another run, has neither the tool nor the results. Long results are cut instead.
 */
export function runJournal(journal: Journal | RunStore, lease?: Lease): Journal {
  const { snapshotFrom } = journal;
  async function acquire(runId: string): Promise<Lease> {
    return runId === lease?.runId ? { ...lease, release: async () => {} } : journal.acquire!(runId);
  }
  return {
    append: (...entries) => journal.append(...entries),
    read: (...from) => journal.read(...from),
    ...(journal.acquire && { acquire }),
    ...(journal.writeSnapshot && { writeSnapshot: (...one) => journal.writeSnapshot!(...one) }),
    ...(journal.readSnapshot && { readSnapshot: (runId: string) => journal.readSnapshot!(runId) }),
    ...(snapshotFrom !== undefined && { snapshotFrom }),
    ...('list' in journal && { list: (...filter: Parameters<RunStore['list']>) => journal.list(...filter) }),
  } satisfies Journal & Partial<RunStore>;
}

/** The journal of a run with a large conversation, which the first entries contain. */
function appendedInTurn(journal: Journal, { lease }: Pick<RunPlan, 'lease'>): Journal {
  let last: Promise<unknown> = Promise.resolve();
  return {
    ...journal,
    append(runId, entries, ...others) {
      const appended = last
        .then(nextTurn)
        // Without a lease they are in memory.
        .then(() => lease && encodeStart(entries))
        .then(() => journal.append(runId, entries, ...others));
      // The run ends with the error of this entry. Those after it are refused by the store.
      last = appended.catch(() => {});
      return appended;
    },
  };
}

/** The names of what narrows a run. What has none cannot be lifted by a name. */
export function sourcesOf(narrowings: Carried['narrow']): readonly string[] {
  return [...new Set(narrowings?.map(narrowingSource))];
}

/** Encodes a large conversation in turns, before the store appends the entry that contains it. */
export async function encodeStart([first]: readonly JournalEntry[]): Promise<void> {
  if (first?.event.type === 'run-started') await encodeInput(first.event.input, nextTurn);
}

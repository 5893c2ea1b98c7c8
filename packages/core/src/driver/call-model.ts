import { messageOf } from '../errors.ts';
import type { Blobs, Journal, RunStore } from '../journal/port.ts';
import { requestOf } from '../machine/effects.ts';
import { added, estimateTokens, mapped } from '../machine/history.ts';
import type { CallCheck, Event } from '../machine/events.ts';
import type { Call, State } from '../machine/state.ts';
import { contentProblem, described, type Message, type ToolCall } from '../messages.ts';
import {
  NO_USAGE,
  type Emit,
  type Model,
  type ModelDelta,
  type ModelReply,
  type ModelRequest,
  type ToolSpec,
} from '../model.ts';
import { checkCall, checkWithin, type Checked } from '../tools/execute.ts';
import type { RunOptions } from './options.ts';
import type { Tool } from '../tools/tool.ts';
import { agentNamed } from './handoff.ts';
import type { EffectOf, RunContext, Settle } from './perform.ts';

type Reply = Extract<ModelReply, { type: 'reply' }>;
type Failure = Extract<ModelReply, { type: 'failure' }>;
type Replied = Extract<Event, { type: 'model-replied' }>;

/** Calls the model, checks the calls of its reply, and records both as one event. */
export function callModel(context: RunContext, effect: EffectOf<'call-model'>, settle: Settle): void {
  const { emit, controller } = context;
  const model = modelFor(context, effect.model);
  let replied = false;
  const emitDelta = emit && ((delta: ModelDelta): unknown => (replied ? undefined : emit(delta)));
  const settleReply = (reply: ModelReply): void => {
    replied = true;
    if (reply.type === 'reply') return settleModelReply(context, effect, model!, reply, settle);
    const at = context.clock.now();
    const { error, attempts } = reply;
    settle({ type: 'model-failed', at, effect: effect.id, error, ...(attempts && { attempts }) });
  };
  if (!model) return settleReply(unavailableModel(effect.model!));
  requestReply(model, modelRequest(context, effect, model), emitDelta ?? ignore, controller.signal, settleReply);
}

/** The model with this id, if this process has it; without an id, the model of the agent that the run is with. */
export function modelFor({ options, state }: RunContext, id: string | undefined): Model | undefined {
  if (id !== undefined) return options.models?.find((model) => model.id === id);
  const { handedTo } = state();
  return handedTo === undefined ? options.model : (agentNamed(options, handedTo)?.model ?? options.model);
}

function modelRequest(context: RunContext, effect: EffectOf<'call-model'>, model: Model): ModelRequest {
  const { runId, opening, activeMs, clock, blobs, traced } = context;
  const { rules, settings } = opening;
  const { durationMs } = rules.limits;
  const request = requestOf(effect, rules, settings, runId);
  if (durationMs !== undefined) request.deadline = clock.now() + durationMs - activeMs();
  if (model.references && rules.references && blobs) request.readBlob = blobReader(blobs, runId);
  const traceparent = traced?.traceparent(effect.id);
  if (traceparent !== undefined) request.traceparent = traceparent;
  return request;
}

function blobReader(blobs: Blobs, runId: string): NonNullable<ModelRequest['readBlob']> {
  return async (id) => (await blobs.read(runId, id, 0, Infinity))?.text;
}

/** Requests a reply. Whatever the model does, `settle` gets exactly one valid reply or failure. */
export function requestReply(
  model: Model,
  request: ModelRequest,
  emit: Emit,
  signal: AbortSignal,
  settle: (reply: ModelReply) => void,
): void {
  const onThrow = (thrown: unknown): void => settle(brokenModel(model, `it threw: ${messageOf(thrown)}`));
  const onReply = (reply: ModelReply): void => {
    try {
      const problem = replyProblem(reply);
      settle(problem === undefined ? reply : brokenModel(model, `in its reply, ${problem}. It is ${messageOf(reply)}`));
    } catch (thrown) {
      onThrow(thrown);
    }
  };
  try {
    model.reply(request, emit, signal).then(onReply, onThrow);
  } catch (thrown) {
    onThrow(thrown);
  }
}

/** The tool as it was offered in a turn; undefined if this process has no code for it. */
export function executorOf(context: RunContext, name: string, turn: number): Tool | undefined {
  const { changedTools } = context;
  if (changedTools && turn > changedTools.turn) {
    context.tools = changedTools.tools;
    context.changedTools = undefined;
  }
  return context.tools.get(name);
}

/** The executors of a run: the tools of the program, and the loop's own. */
export function withExecutor(tools: ReadonlyMap<string, Tool>, own: Tool | undefined): ReadonlyMap<string, Tool> {
  return own ? new Map([...tools, [own.name, own]]) : tools;
}

/** Changes the executors for the turns after the current one. */
export function changeExecutors(context: RunContext, tools: ReadonlyMap<string, Tool>, turn: number): void {
  if (context.changedTools && turn > context.changedTools.turn) context.tools = context.changedTools.tools;
  context.changedTools = { tools, turn };
}

/** The blobs of a journal that was passed. In one that ends with the run they would only use memory. */
export function blobsOf(journal: Journal | undefined): Blobs | undefined {
  return journal && 'blobs' in journal ? (journal as RunStore).blobs : undefined;
}

/** A rough estimate of what a model receives: four characters per token. */
export function requestTokens(
  messages: readonly Message[],
  length: number,
  instructions: string | undefined,
  tools: readonly ToolSpec[],
): number {
  let tokens = Math.ceil((instructions?.length ?? 0) / 4);
  for (let i = 0; i < length; i++) tokens += estimateTokens(messages[i]!);
  for (const { name, description, parameters } of tools) {
    tokens += Math.ceil((name.length + description.length + JSON.stringify(parameters).length) / 4);
  }
  return tokens;
}

/** What the check of a call needs of its run. */
export interface CheckingRun extends Pick<RunContext, 'runId' | 'blobs'> {
  readonly options: Pick<RunOptions, 'matchPattern'>;
}

/** Checks a call whose arguments refer to results of the run. */
async function checkReferringCall(
  { runId, blobs, options }: CheckingRun,
  tool: Tool,
  call: Pick<ToolCall, 'arguments' | 'references'>,
  cut: boolean,
): Promise<Checked> {
  const { resolvedArguments } = await import('../tools/references.ts');
  const resolved = await resolvedArguments(tool, call, blobs, runId);
  return 'problem' in resolved ? { check: resolved } : checkCall(tool, resolved.text, cut, options.matchPattern);
}

function hasDefaults(narrowed: NonNullable<State['narrowed']>, name: string): boolean {
  return narrowed.some(({ defaults }) => defaults?.[name]);
}

/** Checks a call with the arguments that a narrowing of the run adds. They are recorded with the check, as a repair is. */
async function checkWithDefaults(context: RunContext, tool: Tool, call: ToolCall, cut: boolean): Promise<Checked> {
  const { withDefaults } = await import('../tools/default-arguments.ts');
  const text = withDefaults(context.state().narrowed, call.name, call.arguments, cut);
  if (text === undefined) return checkReplyCall(context, tool, call, cut);
  const { check, ...checked } = await checkReplyCall(context, tool, { ...call, arguments: text }, cut);
  return { ...checked, check: { arguments: text, ...check } };
}

function checkReplyCall(context: RunContext, tool: Tool, call: ToolCall, cut: boolean): Checked | Promise<Checked> {
  const refers = call.references !== undefined && context.opening.rules.references;
  if (refers) return checkReferringCall(context, tool, call, cut);
  return checkCall(tool, call.arguments, cut, context.options.matchPattern);
}

/** The check of a call whose tool has no code in this process. */
const UNAVAILABLE: Checked = {
  check: { problem: 'It is not available in this process.', errorType: 'not_found' },
};

/** Checks a call of an earlier process. */
export function recheckedCall(tool: Tool | undefined, call: Call, run: CheckingRun): Checked | Promise<Checked> {
  if (!tool) return UNAVAILABLE;
  if (call.references) return checkReferringCall(run, tool, call, false);
  return checkCall(tool, call.arguments, false, run.options.matchPattern);
}

/** Checks the calls of a reply, and records the reply with the checks. */
function settleModelReply(
  context: RunContext,
  effect: EffectOf<'call-model'>,
  model: Model,
  reply: Reply,
  settle: Settle,
): void {
  const cut = reply.finish === 'length';
  const { narrowed } = context.state();
  let checked: (Checked | Promise<Checked>)[] | undefined;
  let later = false;
  for (let i = 0; i < reply.content.length; i++) {
    const part = reply.content[i]!;
    if (part.type !== 'tool-call') continue;
    const tool = executorOf(context, part.name, effect.turn);
    const check = !tool
      ? UNAVAILABLE
      : narrowed && hasDefaults(narrowed, part.name)
        ? checkWithDefaults(context, tool, part, cut)
        : checkReplyCall(context, tool, part, cut);
    if (check instanceof Promise) {
      later = true;
      const { clock, opening } = context;
      checked = added(checked, checkWithin(check, tool!, { clock, toolTimeoutMs: opening.rules.toolTimeoutMs }));
    } else checked = added(checked, check);
  }
  if (!later) return recordReply(context, effect, model, reply, settle, (checked ?? NO_CHECKS) as readonly Checked[]);
  // Bound, because V8 would allocate the variables of a closure for each reply. Only a reference that cannot be read makes a
  // check fail.
  void Promise.all(checked!).then(recordReply.bind(undefined, context, effect, model, reply, settle), context.fail);
}

const NO_CHECKS: readonly Checked[] = [];

/** Records a reply. The inputs of its calls are kept for their tools. */
function recordReply(
  context: RunContext,
  { id, turn }: EffectOf<'call-model'>,
  { usesTokens }: Model,
  { content, finish, rawFinish, usage, model, attempts }: Reply,
  settle: Settle,
  checked: readonly Checked[],
): void {
  context.lastReply = { turn, checked };
  const checks = mapped(checked, checkIn);
  const at = context.clock.now();
  const event: Replied = { type: 'model-replied', at, effect: id, content, finish, usage, model, checks };
  if (rawFinish === undefined && !attempts && usesTokens !== false) return settle(event);
  settle({
    ...event,
    ...(rawFinish !== undefined && { rawFinish }),
    ...(attempts && { attempts }),
    ...(usesTokens === false && { usage: NO_USAGE, usesTokens }),
  });
}

function checkIn({ check }: Checked): CallCheck {
  return check;
}

/** A model must reply and never reject. One that breaks this contract is handled like any other failure. */
function brokenModel(model: Model, what: string): Failure {
  const message = `The model "${model.id}" broke its contract: ${what.slice(0, 500)}`;
  return { type: 'failure', error: { code: 'protocol', message, retryable: false } };
}

function unavailableModel(id: string): Failure {
  const message = `prepareTurn chose the model "${id}", which is not available in this process. Add it to "models".`;
  return { type: 'failure', error: { code: 'invalid-request', message, retryable: false } };
}

/** What is wrong with a reply; undefined: every field that the loop reads is right. */
function replyProblem(reply: Partial<Reply> | Partial<Failure> | undefined | null): string | undefined {
  if (reply?.type === 'failure') {
    const { message, endsWith = '' } = reply.error ?? {};
    if (typeof message !== 'string') return `error.message is ${described(message)}, not a string`;
    return typeof endsWith === 'string' ? undefined : `error.endsWith is ${described(endsWith)}, not a string`;
  }
  if (typeof reply !== 'object' || reply === null) return `it is ${described(reply)}, not an object`;
  if (reply.type !== 'reply') return `type is ${described(reply.type)}. Use "reply" or "failure"`;
  const { inputTokens, outputTokens, cost = 0 } = reply.usage ?? {};
  if (!Number.isFinite(inputTokens)) return `usage.inputTokens is ${described(inputTokens)}, not a number`;
  if (!Number.isFinite(outputTokens)) return `usage.outputTokens is ${described(outputTokens)}, not a number`;
  if (!Number.isFinite(cost)) return `usage.cost is ${described(cost)}, not a number`;
  return contentProblem('assistant', reply.content)?.slice(1);
}

export function ignore(): void {}

import { messageOf } from '../../errors.ts';
import { mapped } from '../../mapped.ts';
import type { Emit, Model, ModelDelta, ModelReply, ModelRequest } from '../../model.ts';
import { arePartsOf } from '../../parts.ts';
import { checkCall, type Checked } from '../../tools/execute.ts';
import type { Event } from '../events.ts';
import { activeMsAt } from '../fits.ts';
import { wordingOf } from '../wording.ts';
import { ABSENT, type Inputs } from './inputs.ts';
import type { Done, EffectOf, Stage } from './stage.ts';

export function callModel(stage: Stage, inputs: Inputs, effect: EffectOf<'call-model'>, done: Done): void {
  const { emit } = stage;
  const model = effect.model === undefined ? stage.model : stage.models.get(effect.model);
  let over = false;
  const tell = emit && ((delta: ModelDelta): unknown => (over ? undefined : emit(delta)));
  const settle = (reply: ModelReply): void => {
    over = true;
    if (reply.type === 'reply') replied(stage, inputs, effect, reply, done);
    else failed(stage, effect, reply, done);
  };
  if (model) ask(model, requestOf(stage, effect), tell ?? ignore, stage.signal, settle);
  else settle(unavailable(effect.model!));
}

function requestOf({ runId, rules, settings, state, clock }: Stage, effect: EffectOf<'call-model'>): ModelRequest {
  const { history, tools, toolChoice, id } = effect;
  const { parallel, allowedTools, output } = rules;
  const { durationMs } = rules.limits;
  const now = durationMs === undefined ? 0 : clock.now();
  const demand = output && wordingOf(rules).outputDemand(JSON.stringify(output));
  const instructions = demand === undefined ? effect.instructions : joined(effect.instructions, demand);
  const key = `${runId}/${id}`;
  const request: Draft = { messages: history.items, tools, toolChoice, parallel, settings, key };
  if (allowedTools) request.allowedTools = allowedTools;
  if (output) request.output = output;
  if (instructions !== undefined) request.instructions = instructions;
  if (durationMs !== undefined) request.deadline = now + durationMs - activeMsAt(state(), now);
  return request;
}

type Draft = { -readonly [Field in keyof ModelRequest]: ModelRequest[Field] };

function joined(instructions: string | undefined, demand: string): string {
  return instructions === undefined ? demand : `${instructions}\n\n${demand}`;
}

/** Asks a model for a reply that can be relied on: whatever it does, `settle` gets a reply or a failure, once. */
export function ask(
  model: Model,
  request: ModelRequest,
  emit: Emit,
  signal: AbortSignal,
  settle: (reply: ModelReply) => void,
): void {
  const threw = (thrown: unknown): void => settle(broken(model, `it threw: ${messageOf(thrown)}`));
  const replies = (reply: ModelReply): void => {
    try {
      settle(isReply(reply) ? reply : broken(model, `it replied with ${messageOf(reply)}`));
    } catch (thrown) {
      threw(thrown);
    }
  };
  try {
    model.reply(request, emit, signal).then(replies, threw);
  } catch (thrown) {
    threw(thrown);
  }
}

type Reply = Extract<ModelReply, { type: 'reply' }>;
type Failure = Extract<ModelReply, { type: 'failure' }>;

function failed({ clock }: Stage, { id }: EffectOf<'call-model'>, { error, attempts }: Failure, done: Done): void {
  done({ type: 'model-failed', at: clock.now(), effect: id, error, ...(attempts && { attempts }) });
}

function replied(stage: Stage, inputs: Inputs, effect: EffectOf<'call-model'>, reply: Reply, done: Done): void {
  const cut = reply.finish === 'length';
  const checked: (Checked | Promise<Checked>)[] = [];
  let later = false;
  for (let i = 0; i < reply.content.length; i++) {
    const part = reply.content[i]!;
    if (part.type !== 'tool-call') continue;
    const tool = stage.tools.get(part.name);
    const check = tool ? checkCall(tool, part.arguments, cut) : ABSENT;
    later ||= check instanceof Promise;
    checked.push(check);
  }
  const record = (all: readonly Checked[]): void => {
    inputs.keep(effect.turn, all);
    done(repliedEvent(stage.clock.now(), effect.id, reply, all));
  };
  if (later) void Promise.all(checked).then(record);
  else record(checked as readonly Checked[]);
}

function repliedEvent(at: number, effect: string, reply: Reply, all: readonly Checked[]): Event {
  const checks = mapped(all, ({ check }) => check);
  const { content, finish, rawFinish, usage, model, attempts } = reply;
  const event: Event = { type: 'model-replied', at, effect, content, finish, usage, model, checks };
  if (rawFinish === undefined && !attempts) return event;
  return { ...event, ...(rawFinish !== undefined && { rawFinish }), ...(attempts && { attempts }) };
}

export function ignore(): void {}

/** Models promise to reply and never to reject; one that does otherwise is a failure like any other. */
function broken(model: Model, what: string): Failure {
  const message = `The model "${model.id}" broke its contract: ${what.slice(0, 500)}`;
  return { type: 'failure', error: { code: 'protocol', message, retryable: false } };
}

function unavailable(id: string): Failure {
  const message = `The turn was given to the model "${id}", which is not available in this process. Give it in "models".`;
  return { type: 'failure', error: { code: 'invalid-request', message, retryable: false } };
}

function isReply(reply: Partial<Reply> | Partial<Failure> | undefined | null): boolean {
  if (reply?.type === 'failure') return typeof reply.error?.message === 'string';
  if (reply?.type !== 'reply' || !reply.usage) return false;
  const { inputTokens, outputTokens, cost = 0 } = reply.usage;
  const counted = Number.isFinite(inputTokens) && Number.isFinite(outputTokens) && Number.isFinite(cost);
  return counted && arePartsOf('assistant', reply.content);
}

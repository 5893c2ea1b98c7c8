import { TreadleError } from '../errors.ts';
import { textOf, type AssistantPart, type Message } from '../messages.ts';
import type { Model, ModelDelta, ModelReply, ModelRequest, Usage } from '../model.ts';
import { checkOptions, type KnownOptions, type OptionNames } from '../known-options.ts';

/** The reply to one request: a text, calls, both, a complete reply, or a function that returns one of these. */
export type ScriptStep =
  | string
  | ScriptedReply
  | ModelReply
  | ((request: ModelRequest, signal: AbortSignal) => ScriptStep | Promise<ScriptStep>);

export interface ScriptedReply {
  readonly text?: string;
  readonly calls?: readonly ScriptedCall[];
  readonly finish?: Extract<ModelReply, { type: 'reply' }>['finish'];
  readonly usage?: Usage;
}

/** `arguments` may be raw text, including invalid JSON. If `id` is absent, one is generated. */
export interface ScriptedCall {
  readonly name: string;
  readonly arguments?: unknown;
  readonly id?: string;
}

/** A model that replies according to a script. A `using` declaration calls `assertDone` at the end of the block. */
export interface ScriptedModel extends Model, Disposable {
  /** Deeply frozen copies of all requests so far. */
  readonly requests: readonly ModelRequest[];
  /** Throws if a step was not used or a request had no step. */
  readonly assertDone: () => void;
}

const USAGE: Usage = { inputTokens: 10, outputTokens: 5, cost: 0 };

const REPLY: KnownOptions = {
  names: { text: 'string', calls: 'array', finish: 'string', usage: 'object' } satisfies OptionNames<ScriptedReply>,
  noun: 'part',
};

export function scriptedModel(script: readonly ScriptStep[]): ScriptedModel {
  if (!Array.isArray(script)) {
    throw new TreadleError('invalid-options', "scriptedModel takes an array of replies, such as ['Hello.'].");
  }
  for (const step of script as readonly ScriptStep[]) {
    if (typeof step === 'object' && !('type' in step)) checkOptions('A reply of scriptedModel', step, REPLY);
  }
  const requests: ModelRequest[] = [];

  function assertDone(): void {
    if (requests.length < script.length) {
      throw new Error(`scriptedModel: only ${requests.length} of ${script.length} steps were used`);
    }
    if (requests.length > script.length) throw new Error(unexpectedRequest(requests.length - 1, requests.at(-1)!));
  }

  function unexpectedRequest(index: number, { messages }: ModelRequest): string {
    const last = messages.at(-1);
    return (
      `scriptedModel: request ${index} was not expected, the script has ${script.length} steps. ` +
      `Its last message: ${last ? messageText(last) : 'none'}`
    );
  }

  return {
    id: 'scripted',
    // The default usage has a cost of 0.
    priced: true,
    maxCost: () => 0,
    requests,
    assertDone,
    [Symbol.dispose]: assertDone,
    async reply(request, emit, signal) {
      const index = requests.push(frozenCopy(request)) - 1;
      let step = script[index];
      if (step === undefined) throw new Error(unexpectedRequest(index, request));
      while (typeof step === 'function') step = await step(request, signal);
      const reply = replyOf(step, index);
      if (reply.type === 'reply') for (const delta of deltasOf(reply.content)) emit(delta);
      return reply;
    },
  };
}

function replyOf(step: Exclude<ScriptStep, (...args: never) => unknown>, index: number): ModelReply {
  if (typeof step === 'string') return replyOf({ text: step }, index);
  if ('type' in step) return step;
  const { text, calls = [], usage = USAGE } = step;
  const content: AssistantPart[] = text === undefined ? [] : [{ type: 'text', text }];
  for (const [position, { name, arguments: args = {}, id = `call_${index}_${position}` }] of calls.entries()) {
    content.push({ type: 'tool-call', id, name, arguments: typeof args === 'string' ? args : JSON.stringify(args) });
  }
  const finish = step.finish ?? (calls.length > 0 ? 'tool-calls' : 'stop');
  return { type: 'reply', content, finish, usage, model: 'scripted' };
}

function* deltasOf(content: readonly AssistantPart[]): Generator<ModelDelta> {
  let call = 0;
  for (const part of content) {
    if (part.type === 'tool-call') {
      yield { type: 'call-delta', call: call++, name: part.name, arguments: part.arguments };
      continue;
    }
    const type = part.type === 'text' ? 'text-delta' : 'reasoning-delta';
    for (const text of part.text.match(/\S*\s*/g)!) if (text !== '') yield { type, text };
  }
}

function frozenCopy<T>(value: T): T {
  return deepFreeze(structuredClone(value));
}

function deepFreeze<T>(value: T): T {
  if (typeof value === 'object' && value !== null && !Object.isFrozen(value)) {
    Object.freeze(value);
    for (const part of Object.values(value)) deepFreeze(part);
  }
  return value;
}

function messageText(message: Message): string {
  const text =
    message.role === 'tool'
      ? message.content.map(({ content }) => textOf(content)).join(' | ')
      : textOf(message.content);
  return `${message.role}: ${text.slice(0, 200)}`;
}

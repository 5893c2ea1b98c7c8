import type { AssistantPart, Model, ModelReply, ModelRequest, Usage } from '@treadle/core';

/** A reply of the model: a text, calls as `[name, input]`, both, or a whole `ModelReply`. */
export type Said =
  | string
  | { readonly text?: string; readonly calls?: readonly (readonly [string, unknown])[]; readonly usage?: Usage }
  | ModelReply;

/** Replies by the effect that calls the model, such as `t1.model.0`. */
export type Script = Readonly<Record<string, Said | ((request: ModelRequest) => Said)>>;

const USAGE: Usage = { inputTokens: 10, outputTokens: 5, cost: 0 };

/** A model whose replies depend only on the effect, so that every process gets the same ones. */
export function keyedModel(
  script: Script,
  options: { id?: string; onAsk?: (request: ModelRequest) => void } = {},
): Model {
  const { id = 'keyed', onAsk } = options;
  return {
    id,
    priced: true,
    async reply(request) {
      onAsk?.(request);
      const effect = request.key.slice(request.key.lastIndexOf('/') + 1);
      const step = script[effect];
      if (step === undefined) throw new Error(`the script has no reply for ${effect}`);
      return replyOf(typeof step === 'function' ? step(request) : step, effect, id);
    },
  };
}

export function unable(code: 'overloaded' | 'context-length'): Extract<ModelReply, { type: 'failure' }> {
  return { type: 'failure', error: { code, message: `It is ${code}.`, retryable: false } };
}

function replyOf(said: Said, effect: string, model: string): ModelReply {
  if (typeof said === 'string') return replyOf({ text: said }, effect, model);
  if ('type' in said) return said;
  const { text, calls = [], usage = USAGE } = said;
  const content: AssistantPart[] = text === undefined ? [] : [{ type: 'text', text }];
  for (const [index, [name, input]] of calls.entries()) {
    content.push({ type: 'tool-call', id: `${effect}.${index}`, name, arguments: JSON.stringify(input) });
  }
  return { type: 'reply', content, finish: calls.length > 0 ? 'tool-calls' : 'stop', usage, model };
}

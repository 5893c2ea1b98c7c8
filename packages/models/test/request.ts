import {
  userText,
  type Model,
  type ModelDelta,
  type ModelReply,
  type ModelRequest,
  type ToolSpec,
} from '@treadle/core';

/** A request with the user message "hi"; `overrides` replaces fields of it. */
export function request(overrides: Partial<ModelRequest> = {}): ModelRequest {
  return {
    messages: [userText('hi')],
    tools: [],
    toolChoice: 'auto',
    parallel: true,
    settings: {},
    key: 'r/t1',
    ...overrides,
  };
}

export const shell: ToolSpec = {
  name: 'shell',
  description: 'Run a shell command and return its output',
  parameters: { type: 'object', properties: { command: { type: 'string' } }, required: ['command'] },
};
export const read: ToolSpec = {
  name: 'read',
  description: 'Read a file',
  parameters: { type: 'object', properties: {} },
};

export interface Asked {
  readonly reply: ModelReply;
  readonly deltas: readonly ModelDelta[];
}

/** Sends that request and collects the deltas. */
export async function asked(
  model: Model,
  overrides: Partial<ModelRequest> = {},
  signal: AbortSignal = new AbortController().signal,
): Promise<Asked> {
  const deltas: ModelDelta[] = [];
  const reply = await model.reply(request(overrides), (delta) => deltas.push(delta), signal);
  return { reply, deltas };
}

/** A body that is not written in slices. */
export function bytesOf(body: Uint8Array | Promise<Uint8Array>): Uint8Array {
  if (body instanceof Promise) throw new Error('The request is written in slices.');
  return body;
}

/** The body as the provider reads it. */
export function readBody(body: Uint8Array | Promise<Uint8Array>): Record<string, unknown> {
  return JSON.parse(Buffer.from(bytesOf(body)).toString('utf8')) as Record<string, unknown>;
}

import type { Message, Model, ModelDelta, ToolResult } from '@treadle/core';

type Handlers = Readonly<Record<string, (input: never) => unknown>>;

/** A minimal hand-written loop: no journal, policy, limits or validation, and sequential calls. */
export async function minimalLoop(
  model: Model,
  handlers: Handlers,
  input: string,
  onDelta: (delta: ModelDelta) => void,
): Promise<Message[]> {
  const messages: Message[] = [{ role: 'user', content: [{ type: 'text', text: input }] }];
  const { signal } = new AbortController();
  const fixed = { tools: [], toolChoice: 'auto', parallel: true, settings: {}, key: '' } as const;
  for (;;) {
    const reply = await model.reply({ ...fixed, messages }, onDelta, signal);
    if (reply.type === 'failure') throw new Error(reply.error.message);
    messages.push({ role: 'assistant', content: reply.content });
    const results: ToolResult[] = [];
    for (const part of reply.content) {
      if (part.type !== 'tool-call') continue;
      const value = await handlers[part.name]!(JSON.parse(part.arguments) as never);
      const content = [{ type: 'text', text: String(value) }] as const;
      results.push({ type: 'tool-result', callId: part.id, name: part.name, content, isError: false });
    }
    if (results.length === 0) return messages;
    messages.push({ role: 'tool', content: results });
  }
}

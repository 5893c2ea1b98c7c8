import { runLoop, textOf, type JudgedCall, type Model, type Tool } from '@treadle/core';

/**
 * A call as a policy gets it: parsed, validated, and with what it would touch. The loop itself prepares it, so it is exactly
 * what a run would judge. Nothing is executed. `problem`: why the call would be rejected before it is judged.
 */
export async function judgedCall(
  tool: Tool,
  text: string,
): Promise<{ readonly call: JudgedCall } | { readonly problem: string }> {
  let judged: JudgedCall | undefined;
  const model: Model = {
    id: 'one call',
    reply: async () => ({
      type: 'reply',
      content: [{ type: 'tool-call', id: 'call', name: tool.name, arguments: text }],
      finish: 'tool-calls',
      model: 'one call',
      usage: { inputTokens: 0, outputTokens: 0 },
    }),
  };
  const { messages } = await runLoop({
    model,
    tools: [tool],
    policy: {
      judge: (calls) => {
        [judged] = calls;
        return [{ type: 'deny', reason: 'it is only explained' }];
      },
    },
    input: 'explain',
    maxTurns: 1,
  });
  if (judged) return { call: judged };
  const results = messages.flatMap((message) => (message.role === 'tool' ? message.content : []));
  return { problem: results.map(({ content }) => textOf(content)).join(' ') };
}

import { runLoop, textOf, type JudgedCall, type Tool } from '@treadle/core';
import { callingModel } from '@treadle/tools/calling-model';
import { matchPattern } from '@treadle/tools/patterns';

/**
 * A call as a policy gets it: parsed, validated, and with what it would touch. The loop itself prepares it, so it is exactly
 * what a run would judge. Nothing is executed. `problem`: why the call would be rejected before it is judged.
 */
export async function judgedCall(
  tool: Tool,
  text: string,
): Promise<{ readonly call: JudgedCall } | { readonly problem: string }> {
  let judged: JudgedCall | undefined;
  const { messages } = await runLoop({
    model: callingModel(tool.name, text),
    tools: [tool],
    policy: {
      judge: (calls) => {
        [judged] = calls;
        return [{ type: 'deny', reason: 'it is only explained' }];
      },
    },
    input: 'explain',
    matchPattern,
    maxTurns: 1,
  });
  if (judged) return { call: judged };
  const results = messages.flatMap((message) => (message.role === 'tool' ? message.content : []));
  return { problem: results.map(({ content }) => textOf(content)).join(' ') };
}

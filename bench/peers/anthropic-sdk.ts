import Anthropic from '@anthropic-ai/sdk';
import { betaTool } from '@anthropic-ai/sdk/helpers/beta/json-schema';
import { PARAMETERS, PROMPT, TOOL_DESCRIPTION, TOOL_NAME, type Contender } from '../contenders/contender.ts';

/** The tool runner of the Anthropic SDK, over the Messages API. */
export const contender: Contender = {
  prepare({ baseURL, model, stream, onDelta, step, maxTurns }) {
    const client = new Anthropic({ baseURL: baseURL.replace(/\/v1$/, ''), apiKey: 'key' });
    const tool = betaTool({
      name: TOOL_NAME,
      description: TOOL_DESCRIPTION,
      inputSchema: PARAMETERS as never,
      run: step as never,
    });
    const request = {
      model,
      max_tokens: 1_024,
      messages: [{ role: 'user' as const, content: PROMPT }],
      tools: [tool],
      max_iterations: maxTurns,
      // The server does not support threads: each turn sends the whole history.
      thread: false as const,
    };
    if (!stream) {
      return async () => textOf(await client.beta.messages.toolRunner({ ...request, stream: false }).runUntilDone());
    }
    return async () => {
      const runner = client.beta.messages.toolRunner({ ...request, stream: true });
      for await (const message of runner) message.on('text', onDelta);
      return textOf(await runner.done());
    };
  },
};

function textOf({ content }: { content: readonly { type: string }[] }): string {
  return content.map((block) => ('text' in block ? String(block.text) : '')).join('');
}

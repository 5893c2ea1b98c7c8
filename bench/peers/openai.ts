import OpenAI from 'openai';
import {
  PARAMETERS,
  PROMPT,
  TOOL_DESCRIPTION,
  TOOL_NAME,
  type Contender,
  type StepInput,
} from '../contenders/contender.ts';

/** `chat.completions.runTools` of the OpenAI SDK. */
export const contender: Contender = {
  prepare({ baseURL, model, stream, onDelta, step, maxTurns }) {
    const client = new OpenAI({ baseURL, apiKey: 'key' });
    const request = {
      model,
      messages: [{ role: 'user' as const, content: PROMPT }],
      tools: [
        {
          type: 'function' as const,
          function: {
            name: TOOL_NAME,
            description: TOOL_DESCRIPTION,
            parameters: PARAMETERS as never,
            parse: (text: string) => JSON.parse(text) as StepInput,
            function: step,
          },
        },
      ],
    };
    const options = { maxChatCompletions: maxTurns };
    if (!stream) return async () => (await client.chat.completions.runTools(request, options).finalContent()) ?? '';
    return async () => {
      const runner = client.chat.completions.runTools(
        { ...request, stream: true, stream_options: { include_usage: true } },
        options,
      );
      runner.on('content', onDelta);
      return (await runner.finalContent()) ?? '';
    };
  },
};

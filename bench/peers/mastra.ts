import { createOpenAI } from '@ai-sdk/openai';
import { Agent } from '@mastra/core/agent';
import { createTool } from '@mastra/core/tools';
import { z } from 'zod';
import {
  PROMPT,
  TOOL_DESCRIPTION,
  TOOL_NAME,
  type Contender,
  type Run,
  type StepInput,
  type Task,
} from '../contenders/contender.ts';
import { chainModel } from './ai-model.ts';

process.env['MASTRA_TELEMETRY_DISABLED'] = '1';

/** An agent without memory, storage or observability, with the provider of the AI SDK. */
export const contender: Contender = {
  prepare: (task) => runOf(task, createOpenAI({ baseURL: task.baseURL, apiKey: 'key' }).chat(task.model)),
  prepareInProcess: (task) => runOf(task, chainModel(task)),
};

function runOf(
  { stream, onDelta, step, maxTurns }: Pick<Task, 'stream' | 'onDelta' | 'step' | 'maxTurns'>,
  model: unknown,
): Run {
  const agent = new Agent({
    id: 'bench',
    name: 'bench',
    instructions: 'Take steps.',
    model: model as never,
    tools: {
      [TOOL_NAME]: createTool({
        id: TOOL_NAME,
        description: TOOL_DESCRIPTION,
        inputSchema: z.object({ index: z.number(), note: z.string() }),
        execute: async (input) => step(input as StepInput),
      }),
    },
  });
  const options = { maxSteps: maxTurns };
  if (!stream) return async () => (await agent.generate(PROMPT, options)).text;
  return async () => {
    const output = await agent.stream(PROMPT, options);
    for await (const text of output.textStream) onDelta(text);
    return output.text;
  };
}

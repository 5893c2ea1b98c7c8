import { createOpenAI } from '@ai-sdk/openai';
import { generateText, isStepCount, jsonSchema, streamText, tool, type LanguageModel } from 'ai';
import {
  PARAMETERS,
  PROMPT,
  TOOL_DESCRIPTION,
  TOOL_NAME,
  type Contender,
  type Run,
  type StepInput,
  type Task,
} from '../contenders/contender.ts';
import { chainModel } from './ai-model.ts';

/** `generateText` and `streamText` of the AI SDK, with a schema that is not validated, which is faster than zod. */
export const contender: Contender = {
  prepare: (task) => runOf(task, createOpenAI({ baseURL: task.baseURL, apiKey: 'key' }).chat(task.model)),
  prepareInProcess: (task) => runOf(task, chainModel(task)),
};

function runOf(
  { stream, onDelta, step, maxTurns }: Pick<Task, 'stream' | 'onDelta' | 'step' | 'maxTurns'>,
  model: LanguageModel,
): Run {
  const options = {
    model,
    prompt: PROMPT,
    stopWhen: isStepCount(maxTurns),
    tools: {
      [TOOL_NAME]: tool({
        description: TOOL_DESCRIPTION,
        inputSchema: jsonSchema<StepInput>(PARAMETERS as never),
        execute: step,
      }),
    },
    telemetry: { isEnabled: false },
  };
  if (!stream) return async () => (await generateText(options)).text;
  return async () => {
    let failure: unknown;
    const result = streamText({ ...options, onError: ({ error }) => void (failure = error) });
    for await (const text of result.textStream) onDelta(text);
    if (failure) throw failure;
    return result.text;
  };
}

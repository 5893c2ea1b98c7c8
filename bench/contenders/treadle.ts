import { runLoop, tool, type LoopOptions, type Model, type Tool, type ToolEffect } from '@treadle/core';
import { openaiChat } from '@treadle/models/openai-chat';
import { chainModel } from '../loop/workload.ts';
import { CALL_ARGUMENTS } from './in-process.ts';
import { PARAMETERS, PROMPT, TOOL_DESCRIPTION, TOOL_NAME, type Contender, type Task } from './contender.ts';

/** With all defaults: journal in memory, argument validation, limits, retries, timeouts. */
export const contender: Contender = treadle((task) => ({ model: openaiChat({ ...endpoint(task) }) }));

export function endpoint({ model, baseURL, stream }: Task): {
  model: string;
  baseURL: string;
  apiKey: string;
  stream: boolean;
} {
  return { model, baseURL, apiKey: 'key', stream };
}

/** `effect`: that of the tool. It returns a text, so it is pure. */
export function treadle(
  surroundings: (task: Task) => Pick<LoopOptions, 'model' | 'journal' | 'policy' | 'tracing'>,
  effect: ToolEffect = 'pure',
): Contender {
  return {
    prepare: (task) => runOf(task, surroundings(task), effect),
    prepareInProcess(task) {
      const model: Model = chainModel(task.turns, task.stream ? task.deltas : 0, {
        name: TOOL_NAME,
        arguments: (turn) => CALL_ARGUMENTS[turn]!,
      });
      return runOf(task, { model }, effect);
    },
  };
}

function runOf(
  { stream, onDelta, step, maxTurns }: Pick<Task, 'stream' | 'onDelta' | 'step' | 'maxTurns'>,
  surroundings: Pick<LoopOptions, 'model' | 'journal' | 'policy' | 'tracing'>,
  effect: ToolEffect,
): () => Promise<string> {
  const options: LoopOptions = {
    ...surroundings,
    tools: [stepTool(step, effect)],
    input: PROMPT,
    maxTurns,
    maxParallel: 8,
    ...(stream && {
      onItem: (item) => {
        if (item.type === 'text-delta') onDelta(item.text);
      },
    }),
  };
  return async () => {
    const { outcome, text } = await runLoop(options);
    if (outcome?.type !== 'completed') throw new Error(JSON.stringify(outcome));
    return text;
  };
}

function stepTool(step: Task['step'], effect: ToolEffect): Tool {
  return tool({
    name: TOOL_NAME,
    effect,
    description: TOOL_DESCRIPTION,
    input: PARAMETERS,
    execute: (input) => step(input as never),
  });
}

import {
  Agent,
  OpenAIChatCompletionsModel,
  Runner,
  tool,
  Usage,
  type Model,
  type ModelRequest,
  type ModelResponse,
  type StreamEvent,
} from '@openai/agents';
import OpenAI from 'openai';
import {
  PARAMETERS,
  PROMPT,
  TOOL_DESCRIPTION,
  TOOL_NAME,
  type Contender,
  type InProcessTask,
  type Run,
  type Task,
} from '../contenders/contender.ts';
import { ANSWER, CALL_ARGUMENTS, callId, DELTA } from '../contenders/in-process.ts';

/** OpenAI's Agents SDK over Chat Completions, tracing off. */
export const contender: Contender = {
  prepare(task) {
    const client = new OpenAI({ baseURL: task.baseURL, apiKey: 'key' });
    return runOf(task, new OpenAIChatCompletionsModel(client as never, task.model));
  },
  prepareInProcess: (task) => runOf(task, new ChainModel(task)),
};

function runOf(
  { stream, onDelta, step, maxTurns }: Pick<Task, 'stream' | 'onDelta' | 'step' | 'maxTurns'>,
  model: Model,
): Run {
  const agent = new Agent({
    name: 'bench',
    model,
    tools: [
      tool({
        name: TOOL_NAME,
        description: TOOL_DESCRIPTION,
        parameters: PARAMETERS as never,
        strict: true,
        execute: step as never,
      }),
    ],
  });
  const runner = new Runner({ tracingDisabled: true });
  if (!stream) return async () => String((await runner.run(agent, PROMPT, { maxTurns })).finalOutput);
  return async () => {
    const result = await runner.run(agent, PROMPT, { maxTurns, stream: true });
    for await (const event of result) {
      if (event.type === 'raw_model_stream_event' && event.data.type === 'output_text_delta') onDelta(event.data.delta);
    }
    await result.completed;
    return String(result.finalOutput);
  };
}

class ChainModel implements Model {
  readonly #task: InProcessTask;

  constructor(task: InProcessTask) {
    this.#task = task;
  }

  async getResponse({ input }: ModelRequest): Promise<ModelResponse> {
    const turn = (input.length - 1) / 2;
    return {
      usage: new Usage({ requests: 1, inputTokens: 100, outputTokens: 20, totalTokens: 120 }),
      output: this.#output(turn),
    };
  }

  async *getStreamedResponse(request: ModelRequest): AsyncIterable<StreamEvent> {
    yield { type: 'response_started' };
    for (let n = 0; n < this.#task.deltas; n++) yield { type: 'output_text_delta', delta: DELTA };
    const { output } = await this.getResponse(request);
    if (output[0]!.type === 'message') yield { type: 'output_text_delta', delta: ANSWER };
    const usage = { requests: 1, inputTokens: 100, outputTokens: 20, totalTokens: 120 };
    yield { type: 'response_done', response: { id: 'response', usage, output: output as never } };
  }

  #output(turn: number): ModelResponse['output'] {
    if (turn >= this.#task.turns) {
      return [
        { type: 'message', role: 'assistant', status: 'completed', content: [{ type: 'output_text', text: ANSWER }] },
      ];
    }
    const args = CALL_ARGUMENTS[turn]!;
    return [{ type: 'function_call', callId: callId(turn), name: TOOL_NAME, status: 'completed', arguments: args }];
  }
}

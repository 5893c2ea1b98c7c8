import type { CallbackManagerForLLMRun } from '@langchain/core/callbacks/manager';
import { BaseChatModel } from '@langchain/core/language_models/chat_models';
import { AIMessage, AIMessageChunk, type BaseMessage } from '@langchain/core/messages';
import { ChatGenerationChunk, type ChatResult } from '@langchain/core/outputs';
import { ChatOpenAI } from '@langchain/openai';
import { createAgent, tool } from 'langchain';
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

process.env['LANGSMITH_TRACING'] = 'false';
process.env['LANGCHAIN_TRACING_V2'] = 'false';
process.env['LANGCHAIN_CALLBACKS_BACKGROUND'] = 'false';

/** `createAgent`, LangSmith off. */
export const contender: Contender = {
  prepare(task) {
    const model = new ChatOpenAI({
      model: task.model,
      apiKey: 'key',
      configuration: { baseURL: task.baseURL },
      streaming: task.stream,
      useResponsesApi: false,
    });
    return runOf(task, model);
  },
  prepareInProcess: (task) => runOf(task, new ChainModel(task)),
};

function runOf(
  { stream, onDelta, step, maxTurns }: Pick<Task, 'stream' | 'onDelta' | 'step' | 'maxTurns'>,
  model: BaseChatModel,
): Run {
  const schema = PARAMETERS as never;
  const agent = createAgent({
    model,
    tools: [tool(step as never, { name: TOOL_NAME, description: TOOL_DESCRIPTION, schema })],
  });
  const input = { messages: [{ role: 'user', content: PROMPT }] };
  const config = { recursionLimit: 2 * maxTurns + 2 };
  if (!stream) {
    return async () => {
      const { messages } = await agent.invoke(input, config);
      return messages.at(-1)!.text;
    };
  }
  return async () => {
    let last = '';
    for await (const [chunk] of await agent.stream(input, { ...config, streamMode: 'messages' })) {
      if (chunk.type !== 'ai') {
        last = '';
        continue;
      }
      const { text } = chunk;
      if (text === '') continue;
      last += text;
      onDelta(text);
    }
    return last;
  };
}

class ChainModel extends BaseChatModel {
  readonly #task: InProcessTask;

  constructor(task: InProcessTask) {
    super({});
    this.#task = task;
  }

  _llmType(): string {
    return 'chain';
  }

  override bindTools(): this {
    return this;
  }

  async _generate(messages: BaseMessage[]): Promise<ChatResult> {
    const message = new AIMessage(this.#reply(messages));
    return { generations: [{ text: message.text, message }] };
  }

  override async *_streamResponseChunks(
    messages: BaseMessage[],
    _options: this['ParsedCallOptions'],
    runManager?: CallbackManagerForLLMRun,
  ): AsyncGenerator<ChatGenerationChunk> {
    for (let n = 0; n < this.#task.deltas; n++) yield await reported(new AIMessageChunk(DELTA), DELTA, runManager);
    const { content, tool_calls } = this.#reply(messages);
    yield await reported(new AIMessageChunk({ content, ...(tool_calls && { tool_calls }) }), content, runManager);
  }

  #reply(messages: readonly BaseMessage[]): { content: string; tool_calls?: AIMessage['tool_calls'] & object } {
    const turn = (messages.length - 1) / 2;
    if (turn >= this.#task.turns) return { content: ANSWER };
    const args = JSON.parse(CALL_ARGUMENTS[turn]!) as Record<string, unknown>;
    return { content: '', tool_calls: [{ id: callId(turn), name: TOOL_NAME, args, type: 'tool_call' }] };
  }
}

async function reported(
  message: AIMessageChunk,
  text: string,
  runManager: CallbackManagerForLLMRun | undefined,
): Promise<ChatGenerationChunk> {
  const chunk = new ChatGenerationChunk({ text, message });
  await runManager?.handleLLMNewToken(text, undefined, undefined, undefined, undefined, { chunk });
  return chunk;
}

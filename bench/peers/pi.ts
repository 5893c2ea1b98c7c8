import {
  runAgentLoop,
  type AgentEvent,
  type AgentLoopConfig,
  type AgentTool,
  type StreamFn,
} from '@mariozechner/pi-agent-core';
import {
  createAssistantMessageEventStream,
  streamSimple,
  type AssistantMessage,
  type Message,
  type Model,
} from '@mariozechner/pi-ai';
import {
  PARAMETERS,
  PROMPT,
  TOOL_DESCRIPTION,
  TOOL_NAME,
  type Contender,
  type InProcessTask,
  type Run,
  type StepInput,
  type Task,
} from '../contenders/contender.ts';
import { ANSWER, CALL_ARGUMENTS, callId, DELTA } from '../contenders/in-process.ts';

const NOTHING = { input: 0, output: 0, cacheRead: 0, cacheWrite: 0 };

/** The bare loop of pi with a listener, which is faster than its `Agent`. It supports only streaming. */
export const contender: Contender = {
  prepare: (task) => runOf(task, modelOf(task), streamSimple),
  prepareInProcess: (task) => runOf(task, modelOf({ model: 'chain', baseURL: '' }), chainStream(task)),
};

function modelOf({ model, baseURL }: Pick<Task, 'model' | 'baseURL'>): Model<'openai-completions'> {
  return {
    id: model,
    name: model,
    api: 'openai-completions',
    provider: 'bench',
    baseUrl: baseURL,
    reasoning: false,
    input: ['text'],
    cost: NOTHING,
    contextWindow: 1_000_000,
    maxTokens: 1_024,
  };
}

function runOf(
  { onDelta, step }: Pick<Task, 'onDelta' | 'step'>,
  model: Model<'openai-completions'>,
  streamFn: StreamFn,
): Run {
  const tool: AgentTool = {
    name: TOOL_NAME,
    label: TOOL_NAME,
    description: TOOL_DESCRIPTION,
    parameters: PARAMETERS as never,
    execute: async (_id, input) => ({ content: [{ type: 'text', text: await step(input as StepInput) }], details: {} }),
  };
  const config: AgentLoopConfig = { model, apiKey: 'key', convertToLlm: (messages) => messages as Message[] };
  const listen = (event: AgentEvent): void => {
    if (event.type !== 'message_update' || event.assistantMessageEvent.type !== 'text_delta') return;
    onDelta(event.assistantMessageEvent.delta);
  };
  return async () => {
    const prompt: Message = { role: 'user', content: PROMPT, timestamp: Date.now() };
    const context = { systemPrompt: '', messages: [], tools: [tool] };
    const last = (await runAgentLoop([prompt], context, config, listen, undefined, streamFn)).at(
      -1,
    ) as AssistantMessage;
    if (last.errorMessage) throw new Error(last.errorMessage);
    return last.content.map((part) => (part.type === 'text' ? part.text : '')).join('');
  };
}

function chainStream({ turns, deltas }: InProcessTask): StreamFn {
  return (model, context) => {
    const events = createAssistantMessageEventStream();
    const turn = (context.messages.length - 1) / 2;
    const partial: AssistantMessage = {
      role: 'assistant',
      content: [],
      api: model.api,
      provider: model.provider,
      model: model.id,
      usage: { ...NOTHING, totalTokens: 0, cost: { ...NOTHING, total: 0 } },
      stopReason: 'stop',
      timestamp: Date.now(),
    };
    events.push({ type: 'start', partial });
    for (let n = 0; n < deltas; n++) events.push({ type: 'text_delta', contentIndex: 0, delta: DELTA, partial });
    if (turn >= turns) {
      events.push({ type: 'text_delta', contentIndex: 0, delta: ANSWER, partial });
      partial.content.push({ type: 'text', text: ANSWER });
      events.push({ type: 'done', reason: 'stop', message: partial });
    } else {
      const args = JSON.parse(CALL_ARGUMENTS[turn]!) as Record<string, unknown>;
      partial.content.push({ type: 'toolCall', id: callId(turn), name: TOOL_NAME, arguments: args });
      partial.stopReason = 'toolUse';
      events.push({ type: 'done', reason: 'toolUse', message: partial });
    }
    return events;
  };
}

/*
 * Names of the GenAI semantic conventions of OpenTelemetry. All of them are still in development, without a release of their own,
 * so they are kept here: https://github.com/open-telemetry/semantic-conventions-genai at 024a4f94. Names that begin with `treadle`
 * are our own.
 */

export const OPERATION = {
  chat: 'chat',
  tool: 'execute_tool',
  agent: 'invoke_agent',
  workflow: 'invoke_workflow',
} as const;

export const ATTRIBUTE = {
  operation: 'gen_ai.operation.name',
  provider: 'gen_ai.provider.name',
  conversation: 'gen_ai.conversation.id',
  agent: 'gen_ai.agent.name',
  workflow: 'gen_ai.workflow.name',
  requestModel: 'gen_ai.request.model',
  responseModel: 'gen_ai.response.model',
  finishReasons: 'gen_ai.response.finish_reasons',
  maxTokens: 'gen_ai.request.max_tokens',
  temperature: 'gen_ai.request.temperature',
  topP: 'gen_ai.request.top_p',
  stop: 'gen_ai.request.stop_sequences',
  seed: 'gen_ai.request.seed',
  presencePenalty: 'gen_ai.request.presence_penalty',
  frequencyPenalty: 'gen_ai.request.frequency_penalty',
  reasoningLevel: 'gen_ai.request.reasoning.level',
  inputTokens: 'gen_ai.usage.input_tokens',
  outputTokens: 'gen_ai.usage.output_tokens',
  cacheRead: 'gen_ai.usage.cache_read.input_tokens',
  cacheWrite: 'gen_ai.usage.cache_write.input_tokens',
  reasoningTokens: 'gen_ai.usage.reasoning.output_tokens',
  modality: 'gen_ai.token.modality',
  tool: 'gen_ai.tool.name',
  callId: 'gen_ai.tool.call.id',
  toolType: 'gen_ai.tool.type',
  toolDescription: 'gen_ai.tool.description',
  error: 'error.type',
  // Only if content is asked for.
  callArguments: 'gen_ai.tool.call.arguments',
  callResult: 'gen_ai.tool.call.result',
  instructions: 'gen_ai.system_instructions',
  inputMessages: 'gen_ai.input.messages',
  outputMessages: 'gen_ai.output.messages',
  toolDefinitions: 'gen_ai.tool.definitions',
  // Our own.
  run: 'treadle.run.id',
  parentRun: 'treadle.run.parent_id',
  status: 'treadle.run.status',
  resumed: 'treadle.run.resumed',
  task: 'treadle.task.id',
  tenant: 'treadle.tenant',
  turn: 'treadle.turn',
  turns: 'treadle.turns',
  calls: 'treadle.calls',
  cost: 'treadle.usage.cost',
  effect: 'treadle.effect',
  callStatus: 'treadle.call.status',
  failureCategory: 'treadle.failure.category',
  failureCode: 'treadle.failure.code',
  attemptModel: 'treadle.attempt.model',
  attemptMs: 'treadle.attempt.duration_ms',
} as const;

/** Names of spans that the conventions do not have, before what they are about. */
export const OWN_SPAN = { check: 'treadle.check', wait: 'treadle.wait' } as const;
/** An attempt of a model call that failed. */
export const ATTEMPT_EVENT = 'treadle.attempt';

const SECONDS = [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92] as const;
const TOKENS = [1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864] as const;

export interface MetricName {
  readonly name: string;
  readonly type: 'histogram' | 'counter';
  readonly unit: string;
  readonly description: string;
  readonly boundaries?: readonly number[];
}

const duration = (name: string, description: string): MetricName => ({
  name,
  type: 'histogram',
  unit: 's',
  description,
  boundaries: SECONDS,
});
const tokens = (name: string, type: MetricName['type'], description: string): MetricName => ({
  name,
  type,
  unit: '{token}',
  description,
  ...(type === 'histogram' && { boundaries: TOKENS }),
});

type MetricKey =
  | 'inference'
  | 'tool'
  | 'agent'
  | 'workflow'
  | 'inputTokens'
  | 'outputTokens'
  | 'usedInput'
  | 'usedOutput'
  | 'usedCacheRead'
  | 'usedCacheWrite'
  | 'usedReasoning';

export const METRIC: Readonly<Record<MetricKey, MetricName>> = {
  inference: duration('gen_ai.client.inference.duration', 'Duration of model calls.'),
  tool: duration('gen_ai.execute_tool.duration', 'Duration of tool calls.'),
  agent: duration('gen_ai.invoke_agent.duration', 'Duration of runs.'),
  workflow: duration('gen_ai.workflow.duration', 'Duration of runs whose model is a program.'),
  inputTokens: tokens('gen_ai.client.inference.operation.input_tokens', 'histogram', 'Input tokens of a model call.'),
  outputTokens: tokens(
    'gen_ai.client.inference.operation.output_tokens',
    'histogram',
    'Output tokens of a model call.',
  ),
  usedInput: tokens('gen_ai.client.inference.usage.input_tokens', 'counter', 'Input tokens, cached ones too.'),
  usedOutput: tokens(
    'gen_ai.client.inference.usage.output_tokens',
    'counter',
    'Output tokens, those for reasoning too.',
  ),
  usedCacheRead: tokens(
    'gen_ai.client.inference.usage.cache_read.input_tokens',
    'counter',
    'Input tokens from the cache.',
  ),
  usedCacheWrite: tokens(
    'gen_ai.client.inference.usage.cache_write.input_tokens',
    'counter',
    'Input tokens written to the cache.',
  ),
  usedReasoning: tokens(
    'gen_ai.client.inference.usage.reasoning.output_tokens',
    'counter',
    'Output tokens for reasoning.',
  ),
};

/** Of models that do not say whose they are. */
export const UNKNOWN_PROVIDER = '_OTHER';

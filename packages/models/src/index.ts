export { anthropic, type AnthropicOptions } from './anthropic/anthropic.ts';
export { demo } from './demo/demo.ts';
export { googleEmbedder, ollamaEmbedder, openaiEmbedder } from './embeddings/embedders.ts';
export type { EmbedderOptions } from './embeddings/http-embedder.ts';
export { google, type GoogleOptions } from './google/google.ts';
export { ollama, type OllamaOptions } from './ollama/ollama.ts';
export { openaiChat, type OpenAiChatOptions } from './openai-chat/openai-chat.ts';
export type { Quirks } from './openai-chat/quirks.ts';
export { azure, type AzureOptions } from './openai-compatible/azure.ts';
export { openaiCompatible, type OpenAiCompatibleOptions } from './openai-compatible/openai-compatible.ts';
export {
  deepSeek,
  groq,
  llamaCpp,
  lmStudio,
  mistral,
  openRouter,
  together,
  vllm,
  type Preset,
  type PresetOptions,
} from './openai-compatible/presets.ts';
export { openaiResponses, type OpenAiResponsesOptions } from './openai-responses/openai-responses.ts';
export { fromAiSdk, type FromAiSdkOptions } from './ai-sdk/from-ai-sdk.ts';
export {
  aiSdkApprovals,
  fromAiSdkTools,
  type AiSdkTool,
  type AiSdkTools,
  type FromAiSdkToolsOptions,
} from './ai-sdk/from-ai-sdk-tools.ts';
export type { AiSdkModel } from './ai-sdk/language-model.ts';
export type { Price, Rates } from './prices/price.ts';
export { priceOf } from './prices/table.ts';
export type { BreakerOptions } from './router/breaker.ts';
export type { RouterOptions } from './router/options.ts';
export { router, type Router } from './router/router.ts';
export type { TurnstileOptions } from './router/turnstile.ts';
export type { ToolSupport } from './tool-support/modes.ts';
export { withToolSupport } from './tool-support/tool-support.ts';

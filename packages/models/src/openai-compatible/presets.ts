import type { Model } from '@treadle/core';
import type { EndpointOptions } from '../http/endpoint.ts';
import type { Quirks } from '../openai-chat/quirks.ts';
import * as hosts from '../providers.ts';
import { compatibleModel } from './openai-compatible.ts';

export interface PresetOptions extends EndpointOptions {
  /** Override those of the host. */
  readonly quirks?: Quirks;
}

/** Throws if the options are invalid. */
export type Preset = (options: PresetOptions) => Model;

function preset(factory: string, provider: hosts.ProviderFacts, quirks: Quirks): Preset {
  const host = { factory, provider, quirks: { hints: false, ...quirks } };
  return (options) => compatibleModel(host, options);
}

/** A model at openrouter.ai. Replies contain their cost. Reasoning is sent back with the signatures of its provider. */
export function openRouter(options: PresetOptions): Model {
  const quirks: Quirks = { toolChoice: 'named', reasoning: 'openrouter', hints: false };
  return compatibleModel({ factory: 'openRouter', provider: hosts.OPENROUTER, quirks, reportsCost: true }, options);
}

/** A model at Groq, which supports a schema for the output only without streaming and without tools. */
export const groq: Preset = preset('groq', hosts.GROQ, {
  maxTokensField: 'max_completion_tokens',
  toolChoice: 'named',
  output: 'none',
});

/** A model at Together AI. */
export const together: Preset = preset('together', hosts.TOGETHER, {
  toolChoice: 'named',
});

/** A model at DeepSeek, whose thinking mode requires its reasoning back and does not support a required call. */
export const deepSeek: Preset = preset('deepSeek', hosts.DEEPSEEK, {
  toolChoice: 'auto',
  output: 'object',
  reasoning: 'reasoning_content',
  media: false,
});

/** A model at Mistral, which requires call ids of nine characters and its own order of roles. */
export const mistral: Preset = preset('mistral', hosts.MISTRAL, {
  streamUsage: false,
  toolChoice: 'named',
  callIds: 'nine',
  userAfterResults: false,
});

/** A model served by vLLM, on this machine unless `baseURL` is set. */
export const vllm: Preset = preset('vllm', hosts.VLLM, {
  toolChoice: 'named',
  output: 'schema-without-tools',
  reasoning: 'reasoning_content',
});

/** A model served by llama.cpp's `llama-server`, started with `--jinja` for tools. */
export const llamaCpp: Preset = preset('llamaCpp', hosts.LLAMA_CPP, {
  toolChoice: 'required',
  output: 'schema-without-tools',
  reasoning: 'reasoning_content',
});

/** A model served by LM Studio, on this machine unless `baseURL` is set. */
export const lmStudio: Preset = preset('lmStudio', hosts.LM_STUDIO, {
  toolChoice: 'required',
  output: 'schema-without-tools',
  jsonObject: false,
});

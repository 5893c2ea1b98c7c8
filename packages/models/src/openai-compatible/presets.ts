import type { Model } from '@treadle/core';
import type { EndpointOptions } from '../http/endpoint.ts';
import type { Quirks } from '../openai-chat/quirks.ts';
import { compatibleModel } from './openai-compatible.ts';

export interface PresetOptions extends EndpointOptions {
  /** Override those of the host. */
  readonly quirks?: Quirks;
}

/** Throws if the options are invalid. */
export type Preset = (options: PresetOptions) => Model;

/** `keyVariable`: the environment variable of the key. Undefined: no key is needed. */
function preset(factory: string, baseURL: string, keyVariable: string | undefined, quirks: Quirks): Preset {
  const host = {
    factory,
    baseURL,
    quirks: { hints: false, ...quirks },
    ...(keyVariable !== undefined && { keyVariable }),
  };
  return (options) => compatibleModel(host, options);
}

/** A model at openrouter.ai. Replies contain their cost. Reasoning is sent back with the signatures of its provider. */
export function openRouter(options: PresetOptions): Model {
  const quirks: Quirks = { toolChoice: 'named', reasoning: 'openrouter', hints: false };
  return compatibleModel(
    {
      factory: 'openRouter',
      baseURL: 'https://openrouter.ai/api/v1',
      keyVariable: 'OPENROUTER_API_KEY',
      quirks,
      reportsCost: true,
    },
    options,
  );
}

/** A model at Groq, which supports a schema for the output only without streaming and without tools. */
export const groq: Preset = preset('groq', 'https://api.groq.com/openai/v1', 'GROQ_API_KEY', {
  maxTokensField: 'max_completion_tokens',
  toolChoice: 'named',
  output: 'none',
});

/** A model at Together AI. */
export const together: Preset = preset('together', 'https://api.together.xyz/v1', 'TOGETHER_API_KEY', {
  toolChoice: 'named',
});

/** A model at DeepSeek, whose thinking mode requires its reasoning back and does not support a required call. */
export const deepSeek: Preset = preset('deepSeek', 'https://api.deepseek.com', 'DEEPSEEK_API_KEY', {
  toolChoice: 'auto',
  output: 'object',
  reasoning: 'reasoning_content',
  media: false,
});

/** A model at Mistral, which requires call ids of nine characters and its own order of roles. */
export const mistral: Preset = preset('mistral', 'https://api.mistral.ai/v1', 'MISTRAL_API_KEY', {
  streamUsage: false,
  toolChoice: 'named',
  callIds: 'nine',
  userAfterResults: false,
});

/** A model served by vLLM, on this machine unless `baseURL` is set. */
export const vllm: Preset = preset('vllm', 'http://127.0.0.1:8000/v1', undefined, {
  toolChoice: 'named',
  output: 'schema-without-tools',
  reasoning: 'reasoning_content',
});

/** A model served by llama.cpp's `llama-server`, started with `--jinja` for tools. */
export const llamaCpp: Preset = preset('llamaCpp', 'http://127.0.0.1:8080/v1', undefined, {
  toolChoice: 'required',
  output: 'schema-without-tools',
  reasoning: 'reasoning_content',
});

/** A model served by LM Studio, on this machine unless `baseURL` is set. */
export const lmStudio: Preset = preset('lmStudio', 'http://127.0.0.1:1234/v1', undefined, {
  toolChoice: 'required',
  output: 'schema-without-tools',
  jsonObject: false,
});

import type { Model } from '@treadle/core';
import type * as models from '@treadle/models';
import type { ModelChoice } from '../config/choose-model.ts';
import { factsOf } from '../config/providers.ts';

type Models = typeof models;

export interface OpenOptions {
  /** Attempts after the first. */
  readonly maxRetries?: number;
}

/** Opens the chosen model. Loads @treadle/models only here, because loading takes time. */
export async function openModel(choice: ModelChoice, options: OpenOptions = {}): Promise<Model> {
  const models = await import('@treadle/models');
  const first = openOne(models, choice, options);
  if (choice.type === 'demo' || !choice.fallback) return first;
  const names = [choice, ...choice.fallback].map((each, index) => `${index + 1}. ${nameOf(each)}`);
  const chain = Object.fromEntries(
    choice.fallback.map((each, index) => [names[index + 1]!, openOne(models, each, options)]),
  );
  const routed = models.router({
    models: { [names[0]!]: first, ...chain },
    default: names[0]!,
    fallback: { [names[0]!]: Object.keys(chain) },
  });
  // A run stores this id, and is resumed with the entry of that model.
  return { ...routed, id: first.id };
}

/** The name in errors that list several failed models. */
function nameOf(choice: ModelChoice): string {
  return choice.type === 'demo' ? 'demo' : `${choice.type}/${choice.model}`;
}

function openOne(models: Models, choice: ModelChoice, openOptions: OpenOptions): Model {
  if (choice.type === 'demo') return models.demo();
  const { type, model, apiKey } = choice;
  const baseURL = choice.baseURL ?? factsOf(type).baseURL;
  const options = {
    ...openOptions,
    model,
    ...(baseURL !== undefined && { baseURL }),
    ...(apiKey !== undefined && { apiKey }),
    ...(choice.accepts && { accepts: choice.accepts }),
    ...(choice.headers && { headers: choice.headers }),
    ...(choice.settings && { settings: choice.settings }),
    ...(choice.price && { price: choice.price }),
    ...(choice.toolSupport && { toolSupport: choice.toolSupport }),
    ...(choice.timeoutMs !== undefined && { timeouts: { headers: choice.timeoutMs, idle: choice.timeoutMs } }),
  };
  switch (type) {
    case 'openai':
      return models.openaiChat(options);
    case 'openai-responses':
      return models.openaiResponses(options);
    case 'anthropic':
      return models.anthropic(options);
    case 'google':
      return models.google(options);
    case 'ollama':
      return models.ollama({
        ...options,
        ...(choice.contextTokens !== undefined && { contextTokens: choice.contextTokens }),
      });
    case 'openai-compatible':
      return models.openaiCompatible({ ...options, baseURL: baseURL! });
    case 'openrouter':
      return models.openRouter(options);
    case 'groq':
      return models.groq(options);
    case 'together':
      return models.together(options);
    case 'deepseek':
      return models.deepSeek(options);
    case 'mistral':
      return models.mistral(options);
    case 'azure':
      return models.azure(options);
    case 'vllm':
      return models.vllm(options);
    case 'llama-cpp':
      return models.llamaCpp(options);
    case 'lm-studio':
      return models.lmStudio(options);
    default:
      return type satisfies never;
  }
}

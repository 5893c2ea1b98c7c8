import type { Model } from '@treadle/core';
import type * as models from '@treadle/models';
import type { ModelChoice } from '../config/choose-model.ts';
import { factsOf } from '../config/providers.ts';

type Models = typeof models;

export interface OpenOptions {
  /** Attempts after the first. */
  readonly maxRetries?: number;
}

/** Loads what the choice needs, which is slow to load, and only that. */
export async function openModel(choice: ModelChoice, options: OpenOptions = {}): Promise<Model> {
  const models = await import('@treadle/models');
  const first = opened(models, choice, options);
  if (choice.type === 'demo' || !choice.fallback) return first;
  const names = [choice, ...choice.fallback].map((each, index) => `${index + 1}. ${nameOf(each)}`);
  const chain = Object.fromEntries(
    choice.fallback.map((each, index) => [names[index + 1]!, opened(models, each, options)]),
  );
  const routed = models.router({
    models: { [names[0]!]: first, ...chain },
    default: names[0]!,
    fallback: { [names[0]!]: Object.keys(chain) },
  });
  // A run names its model by this, and goes on with the entry of that model.
  return { ...routed, id: first.id };
}

/** In messages about several that failed. */
function nameOf(choice: ModelChoice): string {
  return choice.type === 'demo' ? 'demo' : `${choice.type}/${choice.model}`;
}

function opened(models: Models, choice: ModelChoice, options: OpenOptions): Model {
  if (choice.type === 'demo') return models.demo();
  const { type, model, apiKey } = choice;
  const baseURL = choice.baseURL ?? factsOf(type).baseURL;
  const given = {
    ...options,
    model,
    ...(baseURL !== undefined && { baseURL }),
    ...(apiKey !== undefined && { apiKey }),
  };
  switch (type) {
    case 'openai':
      return models.openaiChat(given);
    case 'openai-responses':
      return models.openaiResponses(given);
    case 'anthropic':
      return models.anthropic(given);
    case 'ollama':
      return models.ollama({
        ...given,
        ...(choice.contextTokens !== undefined && { contextTokens: choice.contextTokens }),
      });
    case 'openai-compatible':
      return models.openaiCompatible({ ...given, baseURL: baseURL! });
    case 'openrouter':
      return models.openRouter(given);
    case 'groq':
      return models.groq(given);
    case 'together':
      return models.together(given);
    case 'deepseek':
      return models.deepSeek(given);
    case 'mistral':
      return models.mistral(given);
    case 'azure':
      return models.azure(given);
    case 'vllm':
      return models.vllm(given);
    case 'llama-cpp':
      return models.llamaCpp(given);
    case 'lm-studio':
      return models.lmStudio(given);
    default:
      return type satisfies never;
  }
}

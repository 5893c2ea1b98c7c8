import type { Model } from '@treadle/core';
import { ApiError } from '../api-error.ts';

/** The models that clients can name. */
export interface ServedModels {
  /** The name of the one that serves requests which name none. */
  readonly default: string;
  readonly models: ReadonlyMap<string, Model>;
}

export function modelNamed({ default: standard, models }: ServedModels, name: string = standard): Model {
  const model = models.get(name);
  if (model) return model;
  const message = `There is no model ${JSON.stringify(name)} here. There are: ${[...models.keys()].join(', ')}.`;
  throw new ApiError(404, 'invalid_request_error', message, { param: 'model', code: 'model_not_found' });
}

import { TreadleError, type Model } from '@treadle/core';
import { compatibleModel } from './openai-compatible.ts';
import type { PresetOptions } from './presets.ts';

/** `model` is the name of the deployment. Either `resource` or `baseURL` says where it is. */
export interface AzureOptions extends PresetOptions {
  /** As in `https://{resource}.openai.azure.com`. */
  readonly resource?: string;
  /** Such as `2024-10-21`: uses the older addresses by deployment instead of `/openai/v1`. */
  readonly apiVersion?: string;
}

/**
 * A deployment at Azure OpenAI. `apiKey` goes into the header `api-key`; a token of Entra goes into `headers` as
 * `authorization`. Throws if the options cannot work.
 */
export function azure(options: AzureOptions): Model {
  const quirks = { maxTokensField: 'max_completion_tokens' } as const;
  const auth = (apiKey: string): Record<string, string> => ({ 'api-key': apiKey });
  return compatibleModel({ factory: 'azure', baseURL: addressOf(options ?? {}), quirks, auth }, options);
}

function addressOf({ baseURL, resource, apiVersion, model }: AzureOptions): string {
  if (baseURL !== undefined) {
    if (resource !== undefined || apiVersion !== undefined) {
      throw wrong('"baseURL" goes without "resource" and "apiVersion": write "?api-version=…" at its end instead.');
    }
    return baseURL;
  }
  if (typeof resource !== 'string' || !/^[a-z0-9-]+$/i.test(resource)) {
    throw wrong('"resource" must be a name as in https://{resource}.openai.azure.com, or give "baseURL".');
  }
  const root = `https://${resource}.openai.azure.com/openai`;
  if (apiVersion === undefined) return `${root}/v1`;
  const version = encodeURIComponent(apiVersion);
  return `${root}/deployments/${encodeURIComponent(model)}?api-version=${version}`;
}

function wrong(what: string): TreadleError {
  return new TreadleError('invalid-options', `azure: ${what}`);
}

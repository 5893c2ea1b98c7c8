import { TreadleError, type Model } from '@treadle/core';
import { checkEndpoint, type OwnNames } from '../http/endpoint.ts';
import { AZURE } from '../providers.ts';
import { compatibleModel } from './openai-compatible.ts';
import type { PresetOptions } from './presets.ts';

/** `model` is the name of the deployment. Its address is either `resource` or `baseURL`. */
export interface AzureOptions extends PresetOptions {
  /** The name in `https://{resource}.openai.azure.com`. */
  readonly resource?: string;
  /** Such as `2024-10-21`. With it, the address is that of the deployment instead of `/openai/v1`. */
  readonly apiVersion?: string;
}

const OWN_NAMES: OwnNames<AzureOptions> = { quirks: '', resource: 'string', apiVersion: 'string' };

/**
 * A deployment at Azure OpenAI. `apiKey` is sent in the header `api-key`. For a token of Entra, set `authorization` in
 * `headers`. Throws if the options are invalid.
 */
export function azure(options: AzureOptions): Model {
  const quirks = { maxTokensField: 'max_completion_tokens', customTools: true } as const;
  const auth = (apiKey: string): Record<string, string> => ({ 'api-key': apiKey });
  checkEndpoint('azure', options, OWN_NAMES);
  const provider = { ...AZURE, baseURL: addressOf(options) };
  return compatibleModel({ factory: 'azure', own: OWN_NAMES, provider, quirks, auth }, options);
}

function addressOf({ baseURL, resource, apiVersion, model }: AzureOptions): string {
  if (baseURL !== undefined) {
    if (resource !== undefined || apiVersion !== undefined) {
      throw invalidOptions(
        '"baseURL" cannot be combined with "resource" or "apiVersion". Append "?api-version=…" to it instead.',
      );
    }
    return baseURL;
  }
  if (typeof resource !== 'string' || !/^[a-z0-9-]+$/i.test(resource)) {
    throw invalidOptions('"resource" must be a name as in https://{resource}.openai.azure.com. Or pass "baseURL".');
  }
  const root = `https://${resource}.openai.azure.com/openai`;
  if (apiVersion === undefined) return `${root}/v1`;
  const version = encodeURIComponent(apiVersion);
  return `${root}/deployments/${encodeURIComponent(model)}?api-version=${version}`;
}

function invalidOptions(what: string): TreadleError {
  return new TreadleError('invalid-options', `azure: ${what}`);
}

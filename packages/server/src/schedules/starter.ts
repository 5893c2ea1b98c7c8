import { ApiError } from '../api-error.ts';
import type { Engine } from '../engine/engine.ts';
import type { Caller } from '../http/admission.ts';
import { DEFAULT_TENANT, SCOPES, type Keys } from '../http/keys.ts';

export type StarterKeys = Pick<Keys, 'named' | 'isExpired' | 'areRequired'>;

export interface Starter extends Pick<Engine, 'log'> {
  readonly kind: 'schedule' | 'trigger';
  readonly name: string;
  /** The name of a key. Empty: the server has none. */
  readonly key: string;
}

/** The caller of runs that nobody has sent a request for. Throws if its key is not valid. */
export function starterCaller(keys: StarterKeys, { log, kind, name, key }: Starter): Caller {
  const caller = { requestId: `${kind} ${name}`, log, facts: { labels: { [kind]: name } } };
  if (!keys.areRequired && key === '') return { ...caller, tenant: DEFAULT_TENANT, key, scopes: SCOPES };
  const found = keys.named(key);
  if (found && !keys.isExpired(found)) return { ...caller, tenant: found.tenant, key, scopes: found.scopes };
  const why = key === '' ? 'It has no key, and keys are required' : `The key "${key}" is not valid any more`;
  throw mayNotStart(kind, name, why);
}

export function mayNotStart(kind: Starter['kind'], name: string, why: string): ApiError {
  return new ApiError(403, 'permission_error', `The ${kind} "${name}" may not start runs. ${why}.`);
}

import type { Principal } from '@treadle/core';
import type { Caller } from '../http/env.ts';

/** A caller as runs and tools know it. */
export function principalOf({ key, tenant, scopes }: Pick<Caller, 'key' | 'tenant' | 'scopes'>): Principal {
  return { subject: key, tenant, scopes };
}

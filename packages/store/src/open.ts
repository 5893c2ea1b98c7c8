import { TreadleError } from '@treadle/core';
import type { Store } from './ports/store.ts';

/**
 * Opens the store that a URL names, and creates it if it does not exist: `sqlite:PATH`, `postgres://…`, or `memory:` for one that
 * ends with the process. Rejects with a `TreadleError` if that is not possible. Its message does not contain a password.
 */
export async function openStore(url: string): Promise<Store> {
  const [scheme = '', rest = ''] = /^([a-z]+):(.*)$/s.exec(String(url))?.slice(1) ?? [];
  if (scheme === 'postgres' || scheme === 'postgresql') {
    const { postgresStore } = await import('./postgres/store.ts');
    return postgresStore(url);
  }
  const file = scheme === 'memory' && rest === '' ? ':memory:' : scheme === 'sqlite' ? rest : '';
  if (file === '') {
    throw new TreadleError(
      'invalid-options',
      'openStore: the URL must be sqlite:PATH, postgres://HOST/DATABASE or memory:, such as sqlite:runs.db.',
    );
  }
  const { sqliteStore } = await import('./sqlite/store.ts');
  return sqliteStore(file);
}

import type { ResponseRecord } from '../src/index.ts';

/** One of the tenant "acme" whose run has its id, in progress. */
export function response(id: string, more: Partial<ResponseRecord> = {}): ResponseRecord {
  return {
    id,
    tenant: 'acme',
    runId: id,
    status: 'in_progress',
    createdAt: 1_000,
    updatedAt: 1_000,
    request: { model: 'm', input: `asked in ${id}` },
    ...more,
  };
}

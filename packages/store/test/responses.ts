import type { RequestRecord } from '../src/index.ts';

/** A response in progress of the tenant "acme"; its run has the same id. */
export function response(id: string, more: Partial<RequestRecord> = {}): RequestRecord {
  return {
    id,
    kind: 'response',
    tenant: 'acme',
    runId: id,
    status: 'in_progress',
    createdAt: 1_000,
    updatedAt: 1_000,
    request: { model: 'm', input: `asked in ${id}` },
    ...more,
  };
}

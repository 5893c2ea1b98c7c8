import type { RunSummary } from '@treadle/core';
import type { OwnedRequest } from '@treadle/store';
import { ApiError, type ApiErrorCode } from '../../api-error.ts';
import type { Engine } from '../../engine/engine.ts';
import type { Actor } from './inbox.ts';

/** Rejects with a 404 for a run of another tenant. */
export async function findRun(
  store: Engine['store'],
  runId: string,
  { tenant }: Pick<Actor, 'tenant'>,
): Promise<RunSummary> {
  const [summary] = await store.list({ runId, tenant, limit: 1 });
  if (summary) return summary;
  throw runNotFound(runId);
}

/** The request that a run belongs to. Only such runs can be resumed: the request names their model and tools. */
export async function requestOf(store: Engine['store'], { runId, parent }: RunSummary): Promise<OwnedRequest> {
  const record = await store.requests.headOfRun(runId);
  if (record) return record;
  const advice = parent === undefined ? '' : ` If it is a child run, use its parent, ${JSON.stringify(parent)}.`;
  throw conflict(`No request started the run ${JSON.stringify(runId)}.${advice}`, 'run_not_resumable');
}

export function runNotFound(runId: string): ApiError {
  const message = `There is no run ${JSON.stringify(runId)}. It was deleted, was not stored, or never existed.`;
  return new ApiError(404, 'not_found_error', message, { param: 'run_id', code: 'run_not_found' });
}

export function conflict(message: string, code: ApiErrorCode): ApiError {
  return new ApiError(409, 'invalid_request_error', message, { param: 'run_id', code });
}

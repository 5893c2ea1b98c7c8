import { NEW, runLoop, TreadleError, type Model } from '@treadle/core';
import type { ResponseRecord } from '@treadle/store';
import { ApiError } from '../api-error.ts';
import type { CallKinds } from '../engine/call-kinds.ts';
import type { Engine } from '../engine/engine.ts';
import { OWN_LABEL } from '../executors/registered.ts';
import type { ResponseResource } from '../wire/response.ts';
import { heardOf } from './heard.ts';
import { ENCRYPTED, newResponse, type Kept } from './kept.ts';
import { output } from './output.ts';
import type { ResponseRequest } from './request.ts';

/**
 * Ends a response that cannot go on: its run never began, or a model or a tool that it needs is no longer here. It keeps
 * what there was of it.
 */
export async function abandon(
  { store, models }: Pick<Engine, 'store' | 'models'>,
  record: ResponseRecord,
  why: unknown,
): Promise<ResponseResource> {
  const { request } = record.request as Kept;
  const { items, state } = await heardOf(store, record.runId);
  const out = output({
    response: newResponse(record.id, request, models.default, record.createdAt),
    calls: kindsByName(request),
    encrypted: request.include.includes(ENCRYPTED),
    requiresAction: false,
  });
  for (const item of items) void out.hear(item);
  const isTold = why instanceof ApiError || why instanceof TreadleError;
  const message = isTold ? why.message : 'The server stopped in the middle of it.';
  const at = Date.now();
  const response = out.close({ type: 'failed', error: { code: 'server_error', message }, at, usage: state.usage });
  if (state !== NEW) await endRun(store, record.runId);
  await store.responses.finish(record.id, { status: response.status, response, at });
  return response;
}

/** Who executes what, as far as the request alone tells. */
function kindsByName({ functions }: ResponseRequest): CallKinds {
  const own = new Set(functions.map(({ name }) => name));
  return { kindOf: (name) => (own.has(name) ? 'client' : 'server'), labelOf: () => OWN_LABEL };
}

const NOBODY: Model = { id: 'none', reply: () => new Promise(() => {}) };

async function endRun(journal: Engine['store'], runId: string): Promise<void> {
  await runLoop({ journal, runId, model: NOBODY, acceptChangedTools: true, signal: AbortSignal.abort() });
}

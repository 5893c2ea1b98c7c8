import { ApiError } from '../../api-error.ts';
import type { Engine, StartRunFor } from '../../engine/engine.ts';
import { requireScope } from '../../http/admission.ts';
import { bodyDigest } from '../../requests/idempotency.ts';
import { checkRunKey } from '../../requests/run.ts';
import { parseRequest } from './parse-request.ts';
import type { Responses } from './responses.ts';

/*
 * Runs that tools start and that outlive their calls: background responses of the caller. No client can use their idempotency
 * keys, because those contain a space. A key is kept as long as the calling run, so that a call which is repeated later still
 * finds its run.
 */
export function runStarter(engine: Pick<Engine, 'keys' | 'log'>, responses: Pick<Responses, 'prepare'>): StartRunFor {
  return async (
    { input, model, instructions, maxCalls, maxOutputTokens },
    { caller, key, runId, exposure, trace, memory },
  ) => {
    // Its key may have been removed or changed since the calling run was started.
    checkRunKey(engine, caller);
    requireScope(caller, 'agents:invoke');
    const body = {
      input,
      background: true,
      ...(model !== undefined && { model }),
      ...(instructions !== undefined && { instructions }),
      ...(maxCalls !== undefined && { max_tool_calls: maxCalls }),
      ...(maxOutputTokens !== undefined && { max_output_tokens: maxOutputTokens }),
    };
    const { tenant, key: name, scopes, requestId = '' } = caller;
    const own = {
      tenant,
      key: name,
      scopes,
      requestId,
      log: engine.log,
      facts: { ...(trace !== undefined && { trace }), ...(memory !== undefined && { labels: { memory } }) },
    };
    const once = { key: `run of ${key}`, digest: bodyDigest('started-run', body), keptWith: runId };
    const request = { ...parseRequest(body), isStarted: true, ...(exposure && { exposure }) } as const;
    const prepared = await responses.prepare(request, own, once);
    const { interruption } = await prepared.run({ requiresAction: false }, new AbortController().signal);
    if (interruption) throw new ApiError(503, 'server_error', 'The run could not be started. Retry in a moment.');
    return { runId: prepared.id };
  };
}

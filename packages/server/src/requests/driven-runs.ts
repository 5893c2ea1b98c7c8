import { ApiError } from '../api-error.ts';
import type { Engine } from '../engine/engine.ts';
import type { DrivenRun, RunEnd } from './run.ts';
import type { RunCaller } from '../engine/tools.ts';

/*
 * A run acts for the key that started it: it goes on only as long as the key exists, has not expired, and has the scopes that
 * it had. This is checked when a run is started or resumed, and whenever the keys are replaced.
 */

/** The part of a stored request that says who sent it. The requests of all APIs have it. */
export type StoredCaller = Pick<RunCaller, 'key' | 'scopes'>;

/** Throws if the key that started a run is not valid any more. */
export function checkRunKey({ keys }: Pick<Engine, 'keys'>, caller: RunCaller): void {
  const why = keys?.whyRevoked(caller);
  if (why !== undefined) throw new ApiError(403, 'permission_error', mayNotContinue(why));
}

function mayNotContinue(why: string): string {
  return `The run may not continue. ${why}`;
}

/** Adds a run that this process drives, until it has ended. If its key is not valid any more, it is stopped, and fails. */
export function addDriven(
  { driven, keys }: Pick<Engine, 'driven' | 'keys'>,
  { id, caller }: { readonly id: string; readonly caller: RunCaller },
  run: DrivenRun,
): DrivenRun {
  let why: string | undefined;
  const stopIfRevoked = (): void => {
    why ??= keys?.whyRevoked(caller);
    if (why !== undefined) run.cancel();
  };
  const added = { ...run, ended: run.ended.then((end) => (why === undefined ? end : failedEnd(end, why))) };
  driven.set(id, added);
  const ignoreKeys = keys?.onReplaced(stopIfRevoked);
  const remove = (): void => {
    if (driven.get(id) === added) driven.delete(id);
    ignoreKeys?.();
  };
  added.ended.then(remove, remove);
  // The key may have been removed since the request was admitted. A run that is resumed to be cancelled stays one.
  if (keys?.whyRevoked(caller) !== undefined) run.cancel();
  return added;
}

/** The end of a run that was stopped. One that has ended by itself before that, or has paused, is left as it is. */
function failedEnd(end: RunEnd, why: string): RunEnd {
  const { ending } = end;
  if (ending?.type !== 'cancelled') return end;
  const { at, usage } = ending;
  return {
    ...end,
    ending: { at, usage, type: 'failed', error: { code: 'server_error', message: mayNotContinue(why) } },
  };
}

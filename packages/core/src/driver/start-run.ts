import type { Exposure } from '../machine/exposure.ts';
import type { RunningCall } from '../tools/execute.ts';
import type { NewRun, StartedByCall } from '../tools/tool.ts';
import type { RunContext } from './perform.ts';

/*
 * Runs that a call starts. This is loaded when a tool starts one. It imports only types: a bundler would
 * move what it shares with the core into files of their own.
 */

/** Whether a value can be the value of an option. */
const OPTIONS: { readonly [Name in keyof Required<NewRun>]: (value: unknown) => boolean } = {
  input: isText,
  id: isText,
  model: isText,
  instructions: (value) => typeof value === 'string',
  maxCalls: isCount,
  maxOutputTokens: isCount,
};

function isText(value: unknown): boolean {
  return typeof value === 'string' && value !== '';
}

function isCount(value: unknown): boolean {
  return Number.isSafeInteger(value) && (value as number) > 0;
}

/**
 * Has the host start a run, once for the key of the call. What narrows the calling run does not bind another run, so a run
 * that is narrowed starts none.
 */
export async function startRunOfCall(
  { options, runId, opening, state, lease, traced }: RunContext,
  { execution, signal }: RunningCall,
  given: NewRun,
  exposure: Exposure | undefined,
): Promise<StartedByCall> {
  for (const [name, value] of Object.entries({ ...given, input: given?.input ?? '' })) {
    const isValid = Object.hasOwn(OPTIONS, name) && (value === undefined || OPTIONS[name as keyof NewRun](value));
    if (isValid) continue;
    const known = Object.keys(OPTIONS).join(', ');
    throw new Error(`The run that "${execution.tool.name}" starts has a wrong "${name}". It may have ${known}.`);
  }
  const { id, ...run } = given;
  const { narrowed, narrowing } = state();
  if (narrowed ?? narrowing) {
    const refusal = new Error('The run is narrowed, and another run would not be. It cannot start one.');
    throw Object.assign(refusal, { errorType: 'permission_denied' });
  }
  // A driver that was taken over starts nothing.
  await lease?.confirm?.();
  signal.throwIfAborted();
  const key = id === undefined ? execution.key : `${execution.key}#${id}`;
  const trace = traced?.traceparentOfKey(execution.key);
  const by = {
    key,
    runId,
    principal: opening.principal,
    ...(exposure && { exposure }),
    ...(trace !== undefined && { trace }),
  };
  const { runId: started } = await options.startRun!(run, by);
  return { runId: started };
}

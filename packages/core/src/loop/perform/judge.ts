import { messageOf } from '../../errors.ts';
import type { JudgedCall, Verdict } from '../../policy/port.ts';
import type { Checked } from '../../tools/execute.ts';
import type { Call } from '../state.ts';
import type { Inputs } from './inputs.ts';
import type { Done, EffectOf, Stage } from './stage.ts';

/** Asks the policy. If it fails or is not there any more, every call is denied. */
export function judge(stage: Stage, inputs: Inputs, { id, calls }: EffectOf<'judge-calls'>, done: Done): void {
  const { runId, policy, principal, context, signal, clock } = stage;
  const settle = (verdicts: readonly Verdict[]): void =>
    done({ type: 'calls-judged', at: clock.now(), effect: id, verdicts });
  const failed = (thrown: unknown): void => {
    const reason = `the policy failed: ${messageOf(thrown)}`;
    settle(calls.map(() => ({ type: 'deny', reason })));
  };
  const about = { runId, turn: calls[0]!.turn, ...(principal && { principal }), context, signal };
  const ask = (judged: readonly JudgedCall[]): unknown => policy!.judge(judged, about);
  try {
    if (!policy) throw new Error('the run was started with a policy, and there is none now');
    const inputsOf = calls.map((call) => inputs.of(call));
    const later = inputsOf.some((input) => input instanceof Promise);
    const verdicts = later
      ? Promise.all(inputsOf).then((checked) => ask(judgedCalls(calls, checked)))
      : ask(judgedCalls(calls, inputsOf as readonly Checked[]));
    if (isThenable(verdicts)) Promise.resolve(verdicts).then(settle).catch(failed);
    else settle(verdicts as readonly Verdict[]);
  } catch (thrown) {
    failed(thrown);
  }
}

function judgedCalls(calls: readonly Call[], checked: readonly Checked[]): readonly JudgedCall[] {
  return calls.map(({ id, name, effect }, index) => ({ id, name, input: copied(checked[index]!.input), effect }));
}

/** A policy says what may run; what that is, it cannot change. */
function copied(input: unknown): unknown {
  try {
    return structuredClone(input);
  } catch {
    return input; // something that a schema made and nobody can copy
  }
}

function isThenable(value: unknown): value is PromiseLike<readonly Verdict[]> {
  return typeof (value as Partial<PromiseLike<unknown>> | undefined)?.then === 'function';
}

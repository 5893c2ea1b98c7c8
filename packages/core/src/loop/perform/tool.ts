import { Parked } from '../../tools/child.ts';
import { execute, verify, type Execution, type Running } from '../../tools/execute.ts';
import { errorResult, fitted, isTooLong } from '../../tools/result.ts';
import type { CallingRun } from '../../tools/tool.ts';
import { partOf } from '../items.ts';
import { toolEffectId } from '../outstanding.ts';
import type { Answer } from '../options.ts';
import { keepWhole } from './blobs.ts';
import type { Inputs } from './inputs.ts';
import type { Done, EffectOf, Stage } from './stage.ts';

const NO_ANSWERS: readonly Answer[] = [];

/** Runs a tool, or asks it about a call that was lost. `running` holds how to stop what is under way. */
export function runTool(
  stage: Stage,
  inputs: Inputs,
  running: Set<() => void>,
  effect: EffectOf<'call-tool' | 'verify-tool'>,
  done: Done,
): void {
  const { runId, rules, tools, clock, emit, context, principal, signal } = stage;
  const { call, id } = effect;

  const settle = (result: Awaited<Running['result']>): void => {
    const at = clock.now();
    if (result instanceof Parked)
      return done({ type: 'tool-parked', at, effect: id, on: result.on, waiting: result.waiting });
    const tooLong = stage.blobs && isTooLong(result, rules.maxResultChars);
    if (tooLong) void keepWhole(stage, id, result, done);
    else done({ type: 'tool-settled', at, effect: id, result: fitted(result, rules.maxResultChars) });
  };
  const unable = (why: string): void => settle(effect.type === 'verify-tool' ? { type: 'unknown' } : errorResult(why));
  const tool = tools.get(call.name);
  if (!tool?.execute) return unable(`The tool "${call.name}" is not available in this process.`);

  const begin = (input: unknown): void => {
    if (signal.aborted) return;
    const execution: Execution = {
      tool,
      input,
      key: `${runId}/${toolEffectId(call)}`,
      timeoutMs: tool.timeoutMs ?? rules.toolTimeoutMs,
      clock,
      report: (progress) => emit?.({ type: 'tool-report', call: partOf(call), progress }),
      context,
      principal,
      run: tool.share === undefined ? undefined : callingRun(stage, effect),
    };
    const { result, abort } = effect.type === 'verify-tool' ? verify(execution) : execute(execution);
    if (!(result instanceof Promise)) return settle(result);
    if (signal.aborted) abort();
    running.add(abort);
    void result.then((settled) => {
      running.delete(abort);
      settle(settled);
    });
  };
  void inputs.use(call, (input, problem) => {
    if (problem === undefined) begin(input);
    else unable(`The tool "${call.name}" was not called. ${problem}`);
  });
}

function callingRun(
  { runId, journal, clock, nested }: Stage,
  { id, call }: EffectOf<'call-tool' | 'verify-tool'>,
): CallingRun {
  const answers = nested.get(id) ?? NO_ANSWERS;
  return { runId, effect: toolEffectId(call), journal, clock, limits: call.limits ?? {}, answers };
}

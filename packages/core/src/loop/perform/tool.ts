import { execute, verify, type Checked, type Execution, type Settled } from '../../tools/execute.ts';
import { Broken, errorResult, fitted, isTooLong, Parked } from '../../tools/result.ts';
import type { CallingRun, Tool } from '../../tools/tool.ts';
import { partOf } from '../items.ts';
import type { Answer } from '../options.ts';
import { toolEffectId } from '../outstanding.ts';
import type { Call } from '../state.ts';
import { keepWhole } from './blobs.ts';
import type { Inputs } from './inputs.ts';
import { ignore } from './model.ts';
import { draftOf, remembering } from './memory.ts';
import type { Done, EffectOf, Stage } from './stage.ts';

type ToolEffect = EffectOf<'call-tool' | 'verify-tool'>;

/** How to stop what is under way. */
export type RunningTools = Set<(reason?: unknown) => void>;

/** Runs a tool, or asks it about a call that was lost. */
export function runTool(stage: Stage, inputs: Inputs, running: RunningTools, effect: ToolEffect, done: Done): void {
  const tool = stage.tools.get(effect.call.name);
  if (!tool?.execute)
    return unable(stage, effect, `The tool "${effect.call.name}" is not available in this process.`, done);
  const begin = ({ check, input }: Checked): void => {
    if (stage.signal.aborted) return;
    if (check.problem === undefined) start(stage, running, effect, tool, input, done);
    else unable(stage, effect, `The tool "${tool.name}" was not called. ${check.problem}`, done);
  };
  const checked = inputs.of(effect.call);
  if (checked instanceof Promise) void checked.then(begin);
  else begin(checked);
}

function start(stage: Stage, running: RunningTools, effect: ToolEffect, tool: Tool, input: unknown, done: Done): void {
  const { runId, rules, clock, emit, context, principal, signal } = stage;
  const { call } = effect;
  const remembered = tool.remembers && stage.state().agent?.memory;
  const execution: Execution = {
    tool,
    input,
    key: `${runId}/${toolEffectId(call)}`,
    timeoutMs: tool.timeoutMs ?? rules.toolTimeoutMs,
    clock,
    report: emit ? (progress) => emit({ type: 'tool-report', call: partOf(call), progress }) : ignore,
    context,
    principal,
    run: tool.share === undefined ? undefined : callingRun(stage, effect),
    memory: draftOf(remembered),
  };
  const { result, abort } = effect.type === 'verify-tool' ? verify(execution) : execute(execution);
  if (!(result instanceof Promise)) return settle(stage, effect, remembering(remembered, execution, result), done);
  if (signal.aborted) abort(signal.reason);
  running.add(abort);
  void result.then((settled) => {
    running.delete(abort);
    settle(stage, effect, remembering(remembered, execution, settled), done);
  });
}

function settle(stage: Stage, { id }: ToolEffect, result: Settled, done: Done): void {
  if (result instanceof Broken) return stage.fail(result.error);
  const { clock, rules, blobs } = stage;
  const at = clock.now();
  if (result instanceof Parked) {
    const { on, waiting } = result;
    return done({ type: 'tool-parked', at, effect: id, on, waiting });
  }
  if (blobs && isTooLong(result, rules.maxResultChars)) return void keepWhole(stage, id, result, done);
  done({ type: 'tool-settled', at, effect: id, result: fitted(result, rules.maxResultChars) });
}

/** A call that cannot be made is an error; whether a lost one took effect is then not known. */
function unable(stage: Stage, effect: ToolEffect, why: string, done: Done): void {
  settle(stage, effect, effect.type === 'verify-tool' ? { type: 'unknown' } : errorResult(why), done);
}

const NO_ANSWERS: readonly Answer[] = [];

function callingRun(stage: Stage, { id, call }: ToolEffect): CallingRun {
  const { runId, journal, clock, nested, parked, acceptChangedTools } = stage;
  return {
    runId,
    effect: toolEffectId(call),
    journal,
    clock,
    limits: call.limits ?? {},
    answers: nested.get(id) ?? NO_ANSWERS,
    parked: parked.has(id),
    acceptChangedTools,
  };
}

/** Tells the run that a call was parked on to end, too: it is taken up once more, with a signal that has aborted. */
export async function cancelChild(stage: Stage, inputs: Inputs, call: Call): Promise<void> {
  const tool = stage.tools.get(call.name);
  if (tool?.share === undefined) return;
  const { runId, context, principal } = stage;
  const effect: ToolEffect = { type: 'call-tool', id: toolEffectId(call), call };
  const { input, check } = await inputs.of(call);
  if (check.problem !== undefined) return;
  const around = { signal: AbortSignal.abort(), key: `${runId}/${effect.id}`, report: () => {}, context, principal };
  await tool.execute!(input, { ...around, run: callingRun(stage, effect) });
}

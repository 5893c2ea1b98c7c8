import { TreadleError } from '../errors.ts';
import type { LoopResult, RunEnvironment } from '../driver/options.ts';
import { inheritedPolicies } from '../driver/judge.ts';
import { driveRun, listenerOf } from '../driver/run.ts';
import { childRunId } from '../journal/family.ts';
import { exposureElsewhere, withExposure, type Exposure } from '../machine/exposure.ts';
import type { RunStarted } from '../machine/events.ts';
import { withNarrowing } from '../machine/narrowing.ts';
import type { Limits, RunFacts } from '../machine/rules.ts';
import { LIMIT_NAMES } from '../machine/step.ts';
import type { ErrorFacts } from '../messages.ts';
import { combinedPolicy } from '../policy/combined.ts';
import { Broken, errorResult, Finished, Parked } from '../tools/result.ts';
import type { CallingRun, ToolContext } from '../tools/tool.ts';
import type { AgentToolDefinition } from './agent-tool.ts';

/* The run of a call of a tool that `agentTool` made. This is loaded when the first such tool is made. */

type Definition = AgentToolDefinition<never>;

/** What the definition of the tool says about its run. */
export interface ChildRun {
  readonly name: string;
  readonly prompt: ((input: never) => ReturnType<NonNullable<Definition['prompt']>>) | undefined;
  readonly limits: Limits | undefined;
  readonly narrow: Definition['narrow'] | undefined;
  /** What it sees with its instructions. */
  readonly exposure?: Exposure | undefined;
  readonly options: Omit<
    Definition,
    'name' | 'description' | 'input' | 'prompt' | 'share' | 'timeoutMs' | 'limits' | 'narrow'
  >;
}

/** Starts or resumes the run of a call, and returns what the call becomes. */
export async function runChild(
  { name, prompt, limits, narrow, exposure: told, options }: ChildRun,
  task: unknown,
  { run, signal, principal, context }: ToolContext,
): Promise<Parked | Finished | Broken> {
  if (!run) return new Finished(errorResult(`The tool "${name}" is a run of its own and can only be called by a run.`));
  const runId = childRunId(run.runId, run.effect);
  const policy = combinedPolicy([
    ...inheritedPolicies(run.state(), run.options.policy),
    ...(options.policy ? [options.policy] : []),
  ]);
  const filters = new Set([...(options.resultFilters ?? []), ...(run.options.resultFilters ?? [])]);
  const shared = {
    ...options,
    ...definedOf(run.options, INHERITED_NAMES),
    ...(run.options.canAnswer === false && { canAnswer: false }),
    ...(policy && { policy }),
    ...(filters.size > 0 && { resultFilters: [...filters] }),
    context,
    journal: run.journal,
    clock: run.clock,
    runId,
    signal,
  };
  try {
    const resumed = await isStarted(runId, run);
    if (resumed && run.child === 'new') return new Finished(errorResult(leftOver(name, runId, run)));
    if (!resumed && signal.aborted)
      return new Finished(errorResult(`${name} was cancelled.`, { errorType: 'interrupted' }));
    const narrowed = withNarrowing(run.narrowed, narrow);
    const exposure = withExposure(exposureElsewhere(run.state()), told);
    const facts = resumed ? {} : factsForChild(run, await run.started());
    const first = {
      ...(narrowed && { narrow: narrowed }),
      ...(exposure && { carried: { exposure } }),
      ...(principal && { principal }),
      input: (prompt ?? defaultPrompt)(task as never),
      limits: tighterLimits(limits ?? {}, run.limits),
      parent: { runId: run.runId, effect: run.effect },
    };
    const resuming = { answers: run.answers, ...definedOf(run.options, ACCEPTED_NAMES) };
    const child = driveRun(
      { ...facts, ...shared, ...(resumed ? resuming : first) },
      listenerOf(options),
      run.child === 'begun' ? {} : { onStored: run.childStarted },
    );
    run.waitFor(child.result.catch(() => {}));
    return toolOutcome(name, await child.result);
  } catch (error) {
    // Failures inside the run are results. This is a failure of its journal, its lease or its code.
    if (error instanceof TreadleError) return new Broken(error);
    throw error;
  }
}

/** What the run of a call belongs to: the same as the run that calls it. */
function factsForChild(run: CallingRun, started: RunStarted | undefined): RunFacts {
  const { session, labels } = started ?? {};
  const trace = run.traceparent() ?? started?.trace ?? started?.parent?.trace;
  return {
    ...(session !== undefined && { session }),
    ...(trace !== undefined && { trace }),
    ...(labels && { labels }),
  };
}

/**
 * Which options the run of a call inherits. The compiler demands a decision for each new option.
 *
 * - `own`: the definition of the tool has it, or the run does without.
 * - `given`: `runChild` passes it, changed or as the call has it.
 */
const INHERITED: { readonly [Name in keyof Required<RunEnvironment>]: 'inherited' | 'own' | 'given' } = {
  ledger: 'inherited',
  killProcess: 'inherited',
  matchPattern: 'inherited',
  tracing: 'inherited',
  exposes: 'inherited',
  resultFilters: 'given',
  startRun: 'inherited',
  policy: 'given',
  canAnswer: 'given',
  context: 'given',
  journal: 'given',
  clock: 'given',
  signal: 'given',
  model: 'own',
  tools: 'own',
  agents: 'own',
  models: 'own',
  summariser: 'own',
  guardrails: 'own',
  prepareTurn: 'own',
  holdIdleMs: 'own',
  // The run of a call is not a run of the conversation.
  kept: 'own',
  // Answers for the run of a call are verified, and rejections audited, by the run that calls it.
  verifyAnswer: 'own',
  audit: 'own',
  beforePause: 'own',
  durableItems: 'own',
  onItem: 'own',
  onTurnStart: 'own',
  onToolCall: 'own',
  onToolResult: 'own',
  onFinish: 'own',
};

const INHERITED_NAMES = (Object.keys(INHERITED) as (keyof RunEnvironment)[]).filter(
  (name) => INHERITED[name] === 'inherited',
);

const ACCEPTED_NAMES = ['acceptChangedTools', 'keepMissingTools', 'acceptChangedProgram'] as const;

function definedOf<Name extends keyof CallingRun['options']>(
  options: CallingRun['options'],
  names: readonly Name[],
): Partial<Pick<CallingRun['options'], Name>> {
  const defined: Partial<Pick<CallingRun['options'], Name>> = {};
  for (const name of names) if (options[name] !== undefined) defined[name] = options[name];
  return defined;
}

/** Whether the run of the call is in the journal. Throws if it is missing though it has begun, or is another call's. */
async function isStarted(runId: string, { journal, child, runId: caller, effect }: CallingRun): Promise<boolean> {
  const [first] = await journal.read(runId);
  if (!first && child === 'begun') {
    const remedy = 'Restore it, or cancel the waiting run.';
    throw new TreadleError(
      'unknown-run',
      `Run "${caller}" waits for the run "${runId}", which is not in the journal. ${remedy}`,
    );
  }
  if (!first) return false;
  const parent = first.event.type === 'run-started' ? first.event.parent : undefined;
  if (parent?.runId === caller && parent.effect === effect) return true;
  throw new TreadleError(
    'run-exists',
    `Run "${runId}" does not belong to a call of "${caller}". Rename one of the two.`,
  );
}

/** An error result instead of an exception: it is durable, so that resuming the calling run does not use the other run. */
function leftOver(name: string, runId: string, { runId: caller }: CallingRun): string {
  const owner = `an earlier run "${caller}"`;
  return `The tool "${name}" was not called: the journal has the run "${runId}" of ${owner}. Delete that run.`;
}

function defaultPrompt(input: { readonly task?: unknown }): string {
  return typeof input.task === 'string' ? input.task : JSON.stringify(input);
}

function tighterLimits(a: Limits, b: CallingRun['limits']): Limits {
  const both = LIMIT_NAMES.map((name) => [name, Math.min(a[name] ?? Infinity, b[name] ?? Infinity)] as const);
  return Object.fromEntries(both.filter(([, limit]) => limit !== Infinity));
}

function toolOutcome(name: string, result: LoopResult): Parked | Finished {
  const { outcome, text, usage, calls } = result;
  const exposes = result.carried?.exposure;
  if (!outcome) return new Parked(result.runId, result.waiting);
  const settled = (content: string, isError: boolean, facts?: ErrorFacts): Finished =>
    new Finished({
      type: 'result',
      content: [{ type: isError ? 'error' : 'text', text: content }],
      isError,
      usage,
      calls,
      ...(exposes && { exposes }),
      ...facts,
    });
  switch (outcome.type) {
    case 'completed':
      return settled(text, false);
    case 'exhausted':
      return settled(
        `${name} reached its limit of ${outcome.limit}.${text === '' ? '' : ` Its answer so far: ${text}`}`,
        true,
      );
    case 'failed':
      return settled(`${name} failed: ${outcome.error.message} (${outcome.error.code})`, true);
    case 'cancelled':
      return settled(`${name} was cancelled.`, true, { errorType: 'interrupted' });
    default:
      return outcome satisfies never;
  }
}

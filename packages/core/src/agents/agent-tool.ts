import { TreadleError } from '../errors.ts';
import type { LoopOptions, LoopResult } from '../driver/options.ts';
import { callableModels, narrowOption, requirePrices } from '../driver/open.ts';
import { driveRun, guardListener } from '../driver/run.ts';
import type { Limits } from '../machine/rules.ts';
import { childRunId } from '../journal/family.ts';
import { LIMIT_NAMES } from '../machine/step.ts';
import { narrower } from '../machine/narrowing.ts';
import type { ErrorFacts, InputMessage } from '../messages.ts';
import { RUN_NAMES, rejectMisnamed } from '../misnamed.ts';
import { combinedPolicy } from '../policy/combined.ts';
import { Broken, errorResult, Finished, Parked } from '../tools/result.ts';
import type { OutputOf, Schema } from '../tools/schema.ts';
import { tool, type CallingRun, type Tool, type ToolDefinition } from '../tools/tool.ts';

/** A tool that is a whole run: its input becomes the task of the run, and the answer of the run its result. */
export interface AgentToolDefinition<S extends Schema>
  extends Omit<LoopOptions, SetByCaller>, Pick<ToolDefinition<S>, JudgedBy> {
  readonly name: string;
  readonly description: string;
  /** Default: `{ task: string }`. */
  readonly input?: S;
  /** The task of the run; default: the `task` of the input, or the JSON of the input. */
  readonly prompt?: (input: OutputOf<S>) => string | readonly InputMessage[];
  /**
   * The share of the calling run's remaining limits that the run may use; default 0.5. `ledger`: if the calling run has a
   * ledger, the run draws on it like its caller, and only the time is limited by what the caller has left. What it used
   * counts for the limits of its caller when it ends. Without a ledger, its share is 0.5.
   */
  readonly share?: number | 'ledger';
  /** Default: one hour. */
  readonly timeoutMs?: number;
}

/** What the policy of the calling run judges the call by. */
type JudgedBy = 'touches' | 'permissions' | 'operation' | 'needsApproval';

/** Options that the calling run sets. */
type SetByCaller = 'input' | 'runId' | 'parent' | 'journal' | 'ledger' | 'signal' | 'clock' | 'output';

const HOUR = 3_600_000;
/** Part of the recorded parameters: a change would make resumed runs report changed tools. */
const TASK = {
  type: 'object',
  properties: { task: { type: 'string', description: 'What to do, with everything that has to be known for it' } },
  required: ['task'],
} as const;

/**
 * Creates a tool that is a run. The run is journaled under an id derived from the call, so after a crash it is resumed
 * together with its parent. When it pauses, its parent pauses. It is cancelled with its parent, and its usage counts for
 * its parent.
 */
export function agentTool<const S extends Schema = typeof TASK>(definition: AgentToolDefinition<S>): Tool {
  const { name, description, input, prompt, share = 0.5, timeoutMs = HOUR, limits, narrow, ...rest } = definition;
  const { touches, permissions, operation, needsApproval, ...options } = rest;
  rejectMisnamed(`The tool "${name}"`, options, RUN_NAMES, 'invalid-options');
  requirePrices(limits ?? {}, options);
  if (narrow) narrowOption(narrow);
  const made = tool({
    name,
    description,
    input: (input ?? TASK) as Schema,
    effect: 'idempotent',
    timeoutMs,
    ...(touches && { touches: touches as NonNullable<Tool['touches']> }),
    ...(permissions && { permissions }),
    ...(operation !== undefined && { operation: operation as NonNullable<Tool['operation']> }),
    ...(needsApproval && { needsApproval: needsApproval as NonNullable<Tool['needsApproval']> }),
    async execute(task, { run, signal, principal, context }) {
      if (!run)
        return new Finished(errorResult(`The tool "${name}" is a run of its own and can only be called by a run.`));
      const runId = childRunId(run.runId, run.effect);
      const { acceptChangedTools, keepMissingTools, acceptChangedProgram, answers } = run;
      const { ledger, killProcess, canAnswer, matchPattern } = run;
      const policy = combinedPolicy([...run.policies(), ...(options.policy ? [options.policy] : [])]);
      const shared = {
        ...options,
        ...(policy && { policy }),
        context,
        journal: run.journal,
        ...(ledger && { ledger }),
        ...(killProcess && { killProcess }),
        ...(canAnswer === false && { canAnswer }),
        ...(matchPattern && { matchPattern }),
        clock: run.clock,
        runId,
        signal,
      };
      try {
        const resumed = await isStarted(runId, run);
        if (resumed && run.child === 'new') return new Finished(errorResult(leftOver(name, runId, run)));
        if (!resumed && signal.aborted)
          return new Finished(errorResult(`${name} was cancelled.`, { errorType: 'interrupted' }));
        const narrowed = narrower(narrow, run.narrowed);
        const facts = resumed ? {} : await run.facts();
        const first = {
          ...(narrowed && { narrow: narrowed }),
          ...(principal && { principal }),
          input: (prompt ?? defaultPrompt)(task as never),
          limits: tighterLimits(limits ?? {}, run.limits),
          parent: { runId: run.runId, effect: run.effect },
        };
        const resuming = { answers, acceptChangedTools, keepMissingTools, acceptChangedProgram };
        const child = driveRun(
          { ...facts, ...shared, ...(resumed ? resuming : first) },
          options.onItem && guardListener(options.onItem),
          run.child === 'begun' ? {} : { onStored: run.childStarted },
        );
        run.waitFor(child.result.catch(() => {}));
        return toolOutcome(name, await child.result);
      } catch (error) {
        // Failures inside the run are results. This is a failure of its journal, its lease or its code.
        if (error instanceof TreadleError) return new Broken(error);
        throw error;
      }
    },
  });
  const asks = callableModels(options);
  return share === 'ledger' ? { ...made, share: 0.5, drawsOnLedger: true, asks } : { ...made, share, asks };
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
  if (!outcome) return new Parked(result.runId, result.waiting);
  const settled = (content: string, isError: boolean, facts?: ErrorFacts): Finished =>
    new Finished({
      type: 'result',
      content: [{ type: isError ? 'error' : 'text', text: content }],
      isError,
      usage,
      calls,
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

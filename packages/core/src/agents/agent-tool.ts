import { TreadleError } from '../errors.ts';
import type { LoopOptions, LoopResult } from '../loop/options.ts';
import { askedBy, demandPrices } from '../loop/rules.ts';
import { runLoop } from '../loop/run.ts';
import type { SettledResult } from '../loop/events.ts';
import type { Limits } from '../loop/pinned.ts';
import type { Message } from '../messages.ts';
import { Broken, errorResult, Finished, Parked } from '../tools/result.ts';
import type { OutputOf, Schema } from '../tools/schema.ts';
import { tool, type CallingRun, type Tool } from '../tools/tool.ts';

/** A tool that is a whole run: what it is called with becomes the run's task, and its answer the result. */
export interface AgentToolDefinition<S extends Schema> extends Omit<LoopOptions, Decided> {
  readonly name: string;
  readonly description: string;
  /** Default: `{ task: string }`. */
  readonly input?: S;
  /** The task for the run; default: the `task` of the input, or else its JSON. */
  readonly prompt?: (input: OutputOf<S>) => string | readonly Message[];
  /** How much of what is left of the calling run's limits it may use up; default 0.5. */
  readonly share?: number;
  /** Default: an hour. */
  readonly timeoutMs?: number;
}

/** What the calling run decides. */
type Decided = 'input' | 'runId' | 'parent' | 'journal' | 'signal' | 'clock' | 'output';

const HOUR = 3_600_000;
const TASK = {
  type: 'object',
  properties: { task: { type: 'string', description: 'What to do, with everything that has to be known for it' } },
  required: ['task'],
} as const;

/**
 * The run has a journal entry of its own, named after the call, so it survives a crash with its parent and is taken up
 * where it was. It pauses its parent where it pauses, and is cancelled with it. What it has used counts for its parent.
 */
export function agentTool<const S extends Schema = typeof TASK>(definition: AgentToolDefinition<S>): Tool {
  const { name, description, input, prompt, share = 0.5, timeoutMs = HOUR, limits, ...options } = definition;
  demandPrices(limits ?? {}, options);
  const made = tool({
    name,
    description,
    input: (input ?? TASK) as Schema,
    effect: 'idempotent',
    timeoutMs,
    async execute(given, { run, signal, principal, context }) {
      if (!run) return errorResultOf(`The tool "${name}" is a run of its own and can only be called by a run.`);
      const runId = `${run.runId}.${run.effect}`;
      const { acceptChangedTools, answers } = run;
      const around = { ...options, context, journal: run.journal, clock: run.clock, runId, signal };
      try {
        const begun = await hasBegun(runId, run);
        if (!begun && signal.aborted) return errorResultOf(`${name} was cancelled.`);
        const started = {
          ...(principal && { principal }),
          input: (prompt ?? defaultPrompt)(given as never),
          limits: lower(limits ?? {}, run.limits),
          parent: { runId: run.runId, effect: run.effect },
        };
        const result = await runLoop({ ...around, ...(begun ? { answers, acceptChangedTools } : started) });
        return outcomeOf(name, result);
      } catch (error) {
        // Nothing that happens in a run: its journal, its lease or its code. To go on would be to guess.
        if (error instanceof TreadleError) return new Broken(error);
        throw error;
      }
    },
  });
  return { ...made, share, asks: askedBy(options) };
}

/** Whether the call's own run is in the journal. One that must be and is not, or is another's, is no run to start anew. */
async function hasBegun(runId: string, { journal, parked, runId: caller, effect }: CallingRun): Promise<boolean> {
  const [first] = await journal.read(runId);
  if (!first && parked) {
    const remedy = 'Bring it into the journal, or cancel the run.';
    throw new TreadleError('unknown-run', `Run "${caller}" waits for the run "${runId}", which is gone. ${remedy}`);
  }
  if (!first) return false;
  const parent = first.event.type === 'run-started' ? first.event.parent : undefined;
  if (parent?.runId === caller && parent.effect === effect) return true;
  throw new TreadleError(
    'run-exists',
    `Run "${runId}" does not belong to a call of "${caller}". Rename one of the two.`,
  );
}

function defaultPrompt(input: { readonly task?: unknown }): string {
  return typeof input.task === 'string' ? input.task : JSON.stringify(input);
}

/** The tighter of two limits, for each of them. */
function lower(a: Limits, b: CallingRun['limits']): Limits {
  const names = ['calls', 'tokens', 'cost', 'durationMs'] as const;
  const both = names.map((name) => [name, Math.min(a[name] ?? Infinity, b[name] ?? Infinity)] as const);
  return Object.fromEntries(both.filter(([, limit]) => limit !== Infinity));
}

function outcomeOf(name: string, result: LoopResult): Parked | Finished {
  const { outcome, text, usage, calls } = result;
  if (!outcome) return new Parked(result.runId, result.waiting);
  const settled = (content: string, isError: boolean): Finished =>
    new Finished({
      type: 'result',
      content: [{ type: isError ? 'error' : 'text', text: content }],
      isError,
      usage,
      calls,
    });
  switch (outcome.type) {
    case 'completed':
      return settled(text, false);
    case 'exhausted':
      return settled(
        `${name} met its limit of ${outcome.limit}.${text === '' ? '' : ` What it had until then: ${text}`}`,
        true,
      );
    case 'failed':
      return settled(`${name} failed: ${outcome.error.message} (${outcome.error.code})`, true);
    case 'cancelled':
      return settled(`${name} was cancelled.`, true);
    default:
      return outcome satisfies never;
  }
}

function errorResultOf(message: string): Finished {
  return new Finished(errorResult(message) satisfies SettledResult);
}

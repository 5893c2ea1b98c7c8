import type { LoopOptions } from '../driver/options.ts';
import {
  callableModels,
  narrowOption,
  requireModel,
  requirePrices,
  rulesOf,
  RUN_NAMES,
  RUN_OPTIONS,
} from '../driver/open.ts';
import { TreadleError } from '../errors.ts';
import type { InputMessage } from '../messages.ts';
import type { OutputOf, Schema } from '../tools/schema.ts';
import { checkOptions, checkSettings, type KnownOptions, type OptionNames } from '../known-options.ts';
import { tool, toolsByName, type Tool, type ToolDefinition } from '../tools/tool.ts';
import type { ChildRun, runChild } from './child-run.ts';

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
type SetByCaller = 'input' | 'runId' | 'parent' | 'journal' | 'ledger' | 'signal' | 'clock' | 'output' | 'carried';

const HOUR = 3_600_000;
/** Part of the recorded parameters: a change would make resumed runs report changed tools. */
const TASK = {
  type: 'object',
  properties: { task: { type: 'string', description: 'What to do, with everything that has to be known for it' } },
  required: ['task'],
} as const;

const SET_BY_CALLER = [
  'runId',
  'parent',
  'journal',
  'ledger',
  'signal',
  'clock',
  'output',
  'carried',
  'resume',
  'answers',
];

const AGENT_TOOL_OPTIONS: KnownOptions = {
  names: {
    ...RUN_NAMES,
    name: 'string',
    description: 'string',
    input: '',
    prompt: 'function',
    share: '',
    timeoutMs: 'number',
    touches: 'function',
    permissions: '',
    operation: '',
    needsApproval: '',
  } satisfies OptionNames<Omit<AgentToolDefinition<Schema>, 'resume'>>,
  elsewhere: RUN_OPTIONS.elsewhere!,
};

/** The code of child runs. A program without such a tool does not load it. */
let run: typeof runChild | undefined;

/** Loads it ahead, so that a call does not wait for it. */
function loadChildRuns(): void {
  // If it cannot be loaded, the first call fails with that error.
  void import('./child-run.ts').then(
    (loaded) => (run = loaded.runChild),
    () => {},
  );
}

/**
 * Creates a tool that is a run. The run is journaled under an id derived from the call, so after a crash it is resumed
 * together with its parent. When it pauses, its parent pauses. It is cancelled with its parent, and its usage counts for
 * its parent.
 */
export function agentTool<const S extends Schema = typeof TASK>(definition: AgentToolDefinition<S>): Tool {
  checkOptions(`The tool "${definition?.name}"`, definition, AGENT_TOOL_OPTIONS);
  const { name, description, input, prompt, share = 0.5, timeoutMs = HOUR, limits, narrow, ...rest } = definition;
  const { touches, permissions, operation, needsApproval, ...options } = rest;
  checkSettings(`The tool "${name}"`, options.settings);
  const set = SET_BY_CALLER.find((one) => options[one as never] !== undefined);
  if (set)
    throw new TreadleError('invalid-options', `The tool "${name}" has "${set}", which the calling run sets. Omit it.`);
  requireModel(options.model);
  toolsByName(options.tools ?? []);
  const { limits: given } = rulesOf({ ...options, input: name, ...(limits && { limits }), ...(narrow && { narrow }) });
  requirePrices(given, options);
  if (narrow) narrowOption(narrow);
  if (share !== 'ledger' && !(share > 0 && share <= 1)) {
    throw new TreadleError(
      'invalid-options',
      `The tool "${name}" has the share ${String(share)}. Use a number above 0, up to 1.`,
    );
  }
  if (!run) loadChildRuns();
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
    async execute(task, context) {
      run ??= (await import('./child-run.ts')).runChild;
      return run({ name, prompt: prompt as ChildRun['prompt'], limits, narrow, options }, task, context);
    },
  });
  const asks = callableModels(options);
  return share === 'ledger' ? { ...made, share: 0.5, drawsOnLedger: true, asks } : { ...made, share, asks };
}

import type { Answer, Audit, LoopOptions, RunEnvironment, VerifyAnswer } from '../driver/options.ts';
import { checkSignal, guardListener } from '../driver/run.ts';
import { itemStream, type ItemStream } from '../driver/stream.ts';
import { TreadleError } from '../errors.ts';
import type { Item } from '../journal/items.ts';
import type { Journal } from '../journal/port.ts';
import type { Ledger } from '../ledger/port.ts';
import type { Limits, RunFacts } from '../machine/rules.ts';
import type { Model, Settings } from '../model.ts';
import { newRunId, type Clock } from '../platform.ts';
import type { Policy, Principal } from '../policy/port.ts';
import type { Skill } from '../skills/skill.ts';
import type { PatternMatcher } from '../tools/json-schema.ts';
import type { ExecuteCallbacks } from './callbacks.ts';
import type { Agent, AnyAgent } from './define.ts';
import type { ExecuteResult } from './result.ts';
import type { RunSetup } from './run-agent.ts';
import { checkOptions, checkSettings, type KnownOptions, type OptionNames } from '../known-options.ts';

export interface ExecuteAgentOptions<Input, Output>
  extends RunFacts, Pick<RunEnvironment, 'resultFilters' | 'exposes' | 'killProcess' | 'tracing'> {
  /** Passed to the prompts, the helpers and the validators. */
  readonly input: Input;
  /** Cancels the execution. A cancelled run cannot be resumed. */
  readonly signal?: AbortSignal;
  /**
   * Leaves the run as it is, so that it can be resumed. The result is `EXECUTION_PAUSED`, with nothing to wait for. Needs a
   * journal.
   */
  readonly detach?: AbortSignal;
  readonly callbacks?: ExecuteCallbacks<Output>;
  /** Stores the run, so that it can be resumed: execute it again with the same `runId` and `input`. */
  readonly journal?: Journal;
  /** Resumes the run of that id if the journal has one; otherwise starts it. */
  readonly runId?: string;
  /** Replaces the model of the agent. */
  readonly model?: Model;
  /** Merged over the settings of the agent. Recorded when the run starts. */
  readonly settings?: Settings;
  /** Merged over the limits of the agent. Recorded when the run starts. */
  readonly limits?: Limits;
  /** Added to `narrow` of the agent. Recorded when the run starts. */
  readonly narrow?: LoopOptions['narrow'];
  /** Added to the skills of the agent. Recorded when the run starts. */
  readonly skills?: readonly Skill[];
  /** Judges calls of helpers and reflections, but not the call that ends an attempt. */
  readonly policy?: Policy;
  /** Verifies who gave an answer, before it is recorded. Without it, `by` of an answer is trusted. */
  readonly verifyAnswer?: VerifyAnswer;
  /** Receives what is rejected and so leaves no trace in the journal. */
  readonly audit?: Audit;
  /** Enforces budgets, as the option `ledger` of `runLoop` does. A run that was started with one needs one to be resumed. */
  readonly ledger?: Ledger;
  readonly principal?: Principal;
  /** Passed unchanged to helpers, the reflection, validators and the policy. Not journaled. */
  readonly context?: unknown;
  /** Answers for a paused run. */
  readonly answers?: readonly Answer[];
  /** Resumes the run even if its tools have changed. */
  readonly acceptChangedTools?: boolean;
  /** Keeps missing tools as the journal records them; a call of one gets an error result. */
  readonly keepMissingTools?: boolean;
  /** Called for each item of the run as it happens. Errors thrown by it are ignored. */
  readonly onItem?: (item: Item) => void;
  /** As for a run. */
  readonly matchPattern?: PatternMatcher;
  readonly clock?: Clock;
}

/** An execution in progress. Leaving the iteration early cancels it. */
export interface LiveExecution<Output, Final = unknown> extends AsyncIterable<Item> {
  readonly runId: string;
  readonly result: Promise<ExecuteResult<Output, Final>>;
  cancel(): void;
}

/**
 * Runs an agent until its output is accepted or it fails. Failures inside the run are in the result. Rejects with a
 * `TreadleError` for misuse (such as invalid options, or the `runId` of another agent's run) and if the journal fails.
 */
export async function executeAgent<Input, Output, Run, Attempt, Final>(
  agent: Agent<Input, Output, Run, Attempt, Final>,
  options: ExecuteAgentOptions<Input, Output>,
): Promise<ExecuteResult<Output, Final>> {
  checkExecution(agent, options);
  const { onItem, signal } = options;
  return loadAndRun(agent, options, {
    signal,
    runId: options.runId ?? newRunId(),
    listener: onItem && guardListener(onItem),
  });
}

/** Like `executeAgent`, with the items of the run as they happen: text as it streams, calls, results, facts. */
export function streamAgent<Input, Output, Run, Attempt, Final>(
  agent: Agent<Input, Output, Run, Attempt, Final>,
  options: ExecuteAgentOptions<Input, Output>,
): LiveExecution<Output, Final> {
  checkExecution(agent, options);
  const controller = new AbortController();
  const cancel = (): void => controller.abort();
  const items: ItemStream = itemStream(cancel);
  const onItem = options.onItem && guardListener(options.onItem);
  const listener = (item: Item): void => {
    items.push(item);
    onItem?.(item);
  };
  const signal = options.signal ? AbortSignal.any([options.signal, controller.signal]) : controller.signal;
  const runId = options.runId ?? newRunId();
  const result = loadAndRun(agent, options, { signal, runId, listener });
  result.then(() => items.close(), items.close);
  return { runId, result, cancel, [Symbol.asyncIterator]: () => items[Symbol.asyncIterator]() };
}

const EXECUTION_OPTIONS: KnownOptions = {
  names: {
    input: '',
    signal: '',
    detach: '',
    callbacks: 'object',
    journal: '',
    runId: 'name',
    model: '',
    settings: 'object',
    limits: 'object',
    narrow: '',
    skills: 'array',
    policy: '',
    verifyAnswer: 'function',
    audit: '.rejectedAnswer',
    ledger: '.reserve',
    resultFilters: 'array',
    exposes: 'function',
    killProcess: 'function',
    principal: 'object',
    context: '',
    answers: 'array',
    acceptChangedTools: 'boolean',
    keepMissingTools: 'boolean',
    onItem: 'function',
    matchPattern: 'function',
    tracing: '.follow',
    clock: '.now',
    session: 'string',
    task: 'string',
    trace: 'string',
    labels: 'object',
  } satisfies OptionNames<ExecuteAgentOptions<unknown, unknown>>,
  elsewhere: { prompt: 'input', messages: 'input', abortSignal: 'signal' },
};

const CALLBACKS: KnownOptions = {
  names: {
    onAttemptStart: 'function',
    onAttemptComplete: 'function',
    onToolCall: 'function',
    onToolResult: 'function',
    onValidationFailure: 'function',
    onSuccess: 'function',
    onFailure: 'function',
  } satisfies OptionNames<ExecuteCallbacks<unknown>>,
  noun: 'callback',
};

function checkExecution(
  agent: unknown,
  options: Pick<ExecuteAgentOptions<unknown, never>, 'signal' | 'detach' | 'settings' | 'callbacks' | 'runId'>,
): void {
  if ((agent as AnyAgent | undefined)?.validation === undefined) {
    throw new TreadleError('invalid-options', 'The agent is missing. Give one that defineAgent returned.');
  }
  if (typeof options !== 'object' || options === null) {
    throw new TreadleError('invalid-options', 'The options are missing. Give { input }.');
  }
  checkOptions('An execution', options, EXECUTION_OPTIONS);
  checkSettings('An execution', options.settings);
  // The object may have other properties that its callbacks use.
  const callbacks = Object.entries(options.callbacks ?? {}).filter(([name]) => name.startsWith('on'));
  checkOptions('An execution', Object.fromEntries(callbacks), CALLBACKS);
  checkSignal(options.signal);
  checkSignal(options.detach);
}

/** A program that executes no agent does not load their code. */
async function loadAndRun<Input, Output, Run, Attempt, Final>(
  agent: Agent<Input, Output, Run, Attempt, Final>,
  options: ExecuteAgentOptions<Input, Output>,
  setup: RunSetup,
): Promise<ExecuteResult<Output, Final>> {
  const { runAgent } = await import('./run-agent.ts');
  return runAgent(agent, options, setup);
}

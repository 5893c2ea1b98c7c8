import { systemClock, type Clock, newRunId } from '../platform.ts';
import { messageOf, TreadleError } from '../errors.ts';
import type { Journal } from '../journal/port.ts';
import type { Answer, Audit, LoopResult, VerifyAnswer } from '../driver/options.ts';
import type { Ledger } from '../ledger/port.ts';
import type { Item } from '../journal/items.ts';
import type { Limits, RunFacts } from '../machine/rules.ts';
import { checkSignal, driveRun, guardListener } from '../driver/run.ts';
import { itemStream, type ItemStream } from '../driver/stream.ts';
import { NO_USAGE, type Model, type Settings } from '../model.ts';
import type { Policy, Principal } from '../policy/port.ts';
import { callbackDispatcher, type ExecuteCallbacks } from './callbacks.ts';
import type { Agent, AnyAgent } from './define.ts';
import { acceptedOutput, outputChecker, type Accepted } from './output.ts';
import { agentError, agentErrorOf, lastPosition, metadataOf, type AgentError, type ExecuteResult } from './result.ts';
import { agentRules, buildPrompts, loopOptions, maxIterationsOf, startedRules, type Prompts } from './start.ts';
import { agentTools } from './tools.ts';

export interface ExecuteAgentOptions<Input, Output> extends RunFacts {
  /** Passed to the prompts, the helpers and the validators. */
  readonly input: Input;
  /** Cancels the execution. A cancelled run cannot be resumed. */
  readonly signal?: AbortSignal;
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
  return runAgent(agent, options, {
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
  const result = runAgent(agent, options, { signal, runId, listener });
  result.then(() => items.close(), items.close);
  return { runId, result, cancel, [Symbol.asyncIterator]: () => items[Symbol.asyncIterator]() };
}

function checkExecution(agent: unknown, options: { readonly signal?: AbortSignal }): void {
  if ((agent as AnyAgent | undefined)?.validation === undefined) {
    throw new TreadleError('invalid-options', 'The agent is missing. Give one that defineAgent returned.');
  }
  if (typeof options !== 'object' || options === null) {
    throw new TreadleError('invalid-options', 'The options are missing. Give { input }.');
  }
  checkSignal(options.signal);
}

interface RunSetup {
  readonly runId: string;
  readonly signal: AbortSignal | undefined;
  readonly listener: ((item: Item) => void) | undefined;
}

async function runAgent<Input, Output, Run, Attempt, Final>(
  typed: Agent<Input, Output, Run, Attempt, Final>,
  options: ExecuteAgentOptions<Input, Output>,
  { runId, signal, listener }: RunSetup,
): Promise<ExecuteResult<Output, Final>> {
  // From here on the schemas guarantee the types.
  const agent = typed as unknown as AnyAgent;
  const { input, callbacks = {}, clock = systemClock, context } = options;
  let accepted: Accepted | undefined;
  const onAccepted = (output: Accepted): void => void (accepted = output);
  const rules = agentRules(agent, input);
  const started = await startedRules(options.journal, options.runId, rules);
  const dispatcher = callbackDispatcher(agent, callbacks, {
    clock,
    maxAttempts: started?.agent?.maxAttempts ?? rules.maxAttempts,
    maxIterations: started?.maxTurns ?? maxIterationsOf(agent),
  });

  const finish = async (result: LoopResult, ending: Ending): Promise<ExecuteResult<Output, Final>> => {
    const position = lastPosition(result);
    if (ending.type === 'success') dispatcher.succeed(position, ending.output);
    else dispatcher.fail(position, ending.error);
    const metadata = metadataOf(agent, result, await dispatcher.errors());
    return { ...ending, metadata, messages: result.messages } as ExecuteResult<Output, Final>;
  };

  let prompts: Prompts | undefined;
  if (!started) {
    const built = await buildPrompts(agent.prompts, input, signal);
    if (built.type === 'failure') return finish(emptyResult(runId), built);
    prompts = built;
  }
  const tools = agentTools(agent, { input, attempt: () => dispatcher.state().attempt });
  const run = driveRun(
    loopOptions(agent, options, { runId, signal, tools, prompts }),
    (item, before, after) => {
      dispatcher.onItem(item, before, after);
      listener?.(item);
    },
    { agent: { rules, check: outputChecker({ agent, input, context, onAccepted }) } },
  );
  const result = await run.result;
  if (result.outcome?.type !== 'completed') {
    const error = agentErrorOf(result, dispatcher.state().maxIterations, signal?.aborted === true);
    return finish(result, { type: 'failure', error });
  }
  accepted ??= await acceptedOutput(agent, result.output);
  return finish(result, await successOf(agent, input, result, accepted));
}

/** An `ExecuteResult` without the fields that all results have. */
type Ending =
  | { readonly type: 'success'; readonly output: unknown; readonly finalState?: unknown }
  | { readonly type: 'failure'; readonly error: AgentError };

/** Adds the `finalState` of `projectFinalState`. */
async function successOf(
  agent: AnyAgent,
  input: unknown,
  result: LoopResult,
  accepted: Accepted | undefined,
): Promise<Ending> {
  if (!accepted) {
    const message = `Run "${result.runId}" ended with an output that the schema of the agent now rejects.`;
    throw new TreadleError('invalid-options', `${message} Give the agent that it was executed with.`);
  }
  const { output } = accepted;
  if (!agent.projectFinalState) return { type: 'success', output };
  const { run, attempt } = result.agent?.memory ?? {};
  try {
    const finalState = await agent.projectFinalState({ input, output, run, attempt });
    return { type: 'success', output, ...(finalState !== undefined && { finalState }) };
  } catch (thrown) {
    const message = `projectFinalState failed: ${messageOf(thrown)}`;
    return { type: 'failure', error: agentError('STATE_PROJECTION_FAILED', message, lastPosition(result)) };
  }
}

/** The result of a run that was not started. */
function emptyResult(runId: string): LoopResult {
  return { runId, waiting: [], text: '', messages: [], usage: NO_USAGE, turns: 0, calls: 0, durationMs: 0 };
}

import { messageOf, TreadleError } from '../errors.ts';
import { newRunId, systemClock, type Clock } from '../platform.ts';
import type { Journal } from '../journal/port.ts';
import type { Answer, ContinueOptions, LoopOptions, LoopResult } from '../driver/options.ts';
import type { Item } from '../journal/items.ts';
import type { AgentRules, Limits, Rules } from '../machine/rules.ts';
import { checkSignal, driveRun, guardListener } from '../driver/run.ts';
import { itemStream, type ItemStream } from '../driver/stream.ts';
import type { Message } from '../messages.ts';
import { NO_USAGE, type Model, type Settings } from '../model.ts';
import type { Policy, Principal } from '../policy/port.ts';
import { follower, type ExecuteCallbacks } from './callbacks.ts';
import { defined } from './defined.ts';
import type { Agent, FinalState } from './define.ts';
import { metadataOf } from './metadata.ts';
import { buildPrompts, type Prompts } from './prompts.ts';
import { agentError, errorOf, type AgentError, type At, type ExecuteResult } from './result.ts';
import { agentRules } from './rules.ts';
import { agentTools, maxIterationsOf, type AnyAgent, type Progress } from './tools.ts';
import { acceptedAgain, outputCheck, type Accepted } from './validation.ts';

export interface ExecuteAgentOptions<Input, Output> {
  /** For the prompts and the validators. */
  readonly input: Input;
  /** Cancels the execution for good: it cannot be gone on with. */
  readonly signal?: AbortSignal;
  readonly callbacks?: ExecuteCallbacks<Output>;
  /** Keeps the run, so that a killed one goes on: execute it again with the same `runId` and `input`. */
  readonly journal?: Journal;
  /** A run of that name that is in the journal goes on; else it is started. */
  readonly runId?: string;
  /** Instead of the agent's own. */
  readonly model?: Model;
  /** Beside the agent's own, and in their place where both have one. Pinned when the run starts. */
  readonly settings?: Settings;
  readonly limits?: Limits;
  /** Judges helpers and the reflection, not what ends an attempt. */
  readonly policy?: Policy;
  readonly principal?: Principal;
  /** Handed to helpers, the reflection, validators and the policy as it is. Not journaled. */
  readonly context?: unknown;
  /** For what a paused run waits for. */
  readonly answers?: readonly Answer[];
  /** Goes on though the tools of the run have changed since. */
  readonly acceptChangedTools?: boolean;
  /** Called for each item of the run as it happens. What it throws is ignored. */
  readonly onItem?: (item: Item) => void;
  readonly clock?: Clock;
}

/** An execution on its way. Leaving the iteration early cancels it. */
export interface LiveExecution<Output, Final = unknown> extends AsyncIterable<Item> {
  readonly runId: string;
  readonly result: Promise<ExecuteResult<Output, Final>>;
  cancel(): void;
}

/**
 * Runs an agent until its output is accepted or it fails. Whatever happens inside the run is in the result. It rejects
 * with a `TreadleError` for misuse (such as options that cannot work, or a `runId` of another agent's run) and if the
 * journal fails.
 */
export async function executeAgent<Input, Output, Run, Attempt, Final>(
  agent: Agent<Input, Output, Run, Attempt, Final>,
  options: ExecuteAgentOptions<Input, Output>,
): Promise<ExecuteResult<Output, Final>> {
  checkExecution(agent, options);
  const { onItem, signal } = options;
  return execute(agent, options, {
    signal,
    runId: options.runId ?? newRunId(),
    listener: onItem && guardListener(onItem),
  });
}

/** The same, with the items of the run as they happen: text as it streams, calls, results, facts. */
export function streamAgent<Input, Output, Run, Attempt, Final>(
  agent: Agent<Input, Output, Run, Attempt, Final>,
  options: ExecuteAgentOptions<Input, Output>,
): LiveExecution<Output, Final> {
  checkExecution(agent, options);
  const controller = new AbortController();
  const cancel = (): void => controller.abort();
  const items: ItemStream = itemStream(cancel);
  const heard = options.onItem && guardListener(options.onItem);
  const listener = (item: Item): void => {
    items.push(item);
    heard?.(item);
  };
  const signal = options.signal ? AbortSignal.any([options.signal, controller.signal]) : controller.signal;
  const runId = options.runId ?? newRunId();
  const result = execute(agent, options, { signal, runId, listener });
  result.then(() => items.close(), items.close);
  return { runId, result, cancel, [Symbol.asyncIterator]: () => items[Symbol.asyncIterator]() };
}

function checkExecution(agent: unknown, options: { readonly signal?: AbortSignal }): void {
  const wrong = (what: string): never => {
    throw new TreadleError('invalid-options', what);
  };
  if ((agent as AnyAgent | undefined)?.validation === undefined) wrong('There is no agent. Give one of defineAgent.');
  if (typeof options !== 'object' || options === null) wrong('There are no options. Give { input }.');
  checkSignal(options.signal);
}

interface Around {
  readonly runId: string;
  readonly signal: AbortSignal | undefined;
  readonly listener: ((item: Item) => void) | undefined;
}

async function execute<Input, Output, Run, Attempt, Final>(
  typed: Agent<Input, Output, Run, Attempt, Final>,
  options: ExecuteAgentOptions<Input, Output>,
  around: Around,
): Promise<ExecuteResult<Output, Final>> {
  // From here on the types are what the schemas have checked.
  const agent = typed as unknown as AnyAgent;
  const { input, callbacks = {}, clock = systemClock, context } = options;
  const { runId, signal, listener } = around;
  let accepted: Accepted | undefined;
  const accept = (one: Accepted): void => void (accepted = one);
  const rules = agentRules(agent, input);
  const code = { rules, check: outputCheck({ agent, input, context, accept }) };
  const begun = await begunRun(options.journal, options.runId, rules);
  const follow = follower(agent, callbacks, {
    clock,
    maxAttempts: begun?.agent?.maxAttempts ?? rules.maxAttempts,
    maxIterations: begun?.maxTurns ?? maxIterationsOf(agent),
  });

  const finish = async (result: LoopResult, made: Made): Promise<ExecuteResult<Output, Final>> => {
    const at = atEnd(result);
    if (made.type === 'output') follow.succeed(at, made.output);
    else follow.fail(at, made.error);
    const metadata = metadataOf(agent, result, await follow.errors());
    const { messages } = result;
    if (made.type === 'failure') return { type: 'failure', error: made.error, metadata, messages };
    const { output, finalState } = made;
    return {
      type: 'success',
      output: output as Output,
      ...(finalState !== undefined && { finalState: finalState as Final }),
      metadata,
      messages,
    };
  };

  let prompts: Prompts | undefined;
  if (!begun) {
    const built = await buildPrompts(agent.prompts, input, signal);
    if (built.type === 'failure') return finish(nothingDone(runId), built);
    prompts = built;
  }
  const run = driveRun(
    loopOptions(agent, options, around, { input, attempt: () => follow.state().attempt, prompts }),
    (item, before, after) => {
      follow.follow(item, before, after);
      listener?.(item);
    },
    code,
  );
  const result = await run.result;
  if (result.outcome?.type !== 'completed') {
    const error = errorOf(result, atEnd(result), follow.state().maxIterations, signal?.aborted === true);
    return finish(result, { type: 'failure', error });
  }
  accepted ??= await acceptedAgain(agent, result.output);
  return finish(result, await finalOf(agent, input, result, accepted));
}

type Made =
  | { readonly type: 'output'; readonly output: unknown; readonly finalState?: unknown }
  | { readonly type: 'failure'; readonly error: AgentError };

/** With what `projectFinalState` makes of the state that the helpers left. */
async function finalOf(
  agent: AnyAgent,
  input: unknown,
  result: LoopResult,
  accepted: Accepted | undefined,
): Promise<Made> {
  if (!accepted) {
    const message = `Run "${result.runId}" ended with an output that the agent's schema does not take any more.`;
    throw new TreadleError('invalid-options', `${message} Give the agent that it was executed with.`);
  }
  const { output } = accepted;
  if (!agent.projectFinalState) return { type: 'output', output };
  const { run, attempt } = result.agent?.memory ?? {};
  try {
    const finalState = await agent.projectFinalState({ input, output, run, attempt } satisfies FinalState<
      unknown,
      unknown,
      unknown,
      unknown
    >);
    return { type: 'output', output, finalState };
  } catch (thrown) {
    const message = `projectFinalState failed: ${messageOf(thrown)}`;
    return { type: 'failure', error: agentError('STATE_PROJECTION_FAILED', message, atEnd(result)) };
  }
}

/** What the run goes by, if it is in the journal already. Throws if it is another one of that name. */
async function begunRun(
  journal: Journal | undefined,
  runId: string | undefined,
  { name, input }: AgentRules,
): Promise<Rules | undefined> {
  if (!journal || runId === undefined) return undefined;
  const [first] = await journal.read(runId);
  if (first?.event.type !== 'run-started') return undefined;
  const { rules } = first.event;
  const { agent } = rules;
  const other = (what: string): TreadleError =>
    new TreadleError('run-exists', `There is a run "${runId}" already, ${what}. Give another runId.`);
  if (agent?.name !== name) throw other(agent ? `of the agent "${agent.name}"` : 'which is none of an agent');
  if (agent.input !== input) throw other('which was started with another input');
  return rules;
}

function loopOptions(
  agent: AnyAgent,
  options: ExecuteAgentOptions<unknown, never>,
  { runId, signal }: Around,
  { prompts, ...progress }: Progress & { readonly prompts: Prompts | undefined },
): LoopOptions | ContinueOptions {
  const { toolChoice = 'required', parallel, maxParallel, maxResultChars, toolTimeoutMs } = agent;
  const { journal, policy, principal, context, clock, answers, acceptChangedTools } = options;
  const surroundings = {
    runId,
    model: options.model ?? agent.model,
    tools: agentTools(agent, progress),
    ...defined({ journal, policy, context, clock, signal }),
  };
  if (!prompts) return { ...surroundings, ...defined({ answers, acceptChangedTools }) } as ContinueOptions;
  return {
    ...surroundings,
    input: [{ role: 'user', content: prompts.user }],
    ...(prompts.system !== undefined && { instructions: prompts.system }),
    maxTurns: maxIterationsOf(agent),
    errorLimit: 0,
    repeatLimit: 0,
    toolChoice,
    limits: { ...agent.limits, ...options.limits },
    settings: { ...agent.settings, ...options.settings },
    ...defined({ parallel, maxParallel, maxResultChars, toolTimeoutMs, principal }),
  };
}

function atEnd({ agent, turns }: LoopResult): At {
  return { attempt: agent?.attempt ?? 1, iteration: turns - (agent?.from ?? 0) };
}

const NO_MESSAGES: readonly Message[] = [];

/** The result of a run that never began. */
function nothingDone(runId: string): LoopResult {
  return { runId, waiting: [], text: '', messages: NO_MESSAGES, usage: NO_USAGE, turns: 0, calls: 0, durationMs: 0 };
}
